// The body of POST /v1/jobs: what is accepted is stored, and what is stored is read as the same.
#include "engine/base/check.h"
#include "jobs/submission.h"

using namespace ponder;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto body = parse_json_object(input);
  if (!body) {
    static_cast<void>(jobs::decode_request(input));  // a damaged row
    return 0;
  }
  if (const auto stored = jobs::decode_request(input))
    CHECK(jobs::decode_request(jobs::encode_request(*stored)).has_value());
  auto spec = jobs::parse_job_spec(*body);
  if (!spec) {
    CHECK_MSG(!spec.error().message.empty(), "refused without a word");
    return 0;
  }
  CHECK_MSG(spec->continue_from.empty() || spec->continue_from.size() <= 64, "no id");
  const std::string hash = jobs::body_hash(*spec);
  json::object turned;
  for (auto member = body->rbegin(); member != body->rend(); ++member)
    turned[member->key()] = member->value();
  turned.erase("idempotency_key");
  turned.erase("force_new");
  const auto twin = jobs::parse_job_spec(turned);
  CHECK_MSG(twin && jobs::body_hash(*twin) == hash, "the order of keys makes it another job");
  const jobs::ReadySpec ready = jobs::make_ready(std::move(*spec));
  CHECK(ready.hash == hash && ready.alone.has_value() == ready.spec.continue_from.empty());
  if (!ready.alone || !*ready.alone) return 0;
  const auto again = jobs::decode_request(ready.request);
  CHECK_MSG(again.has_value(), "what was accepted cannot be read from the database");
  CHECK_MSG(jobs::encode_request(*again) == ready.request, "another request comes back");
  CHECK(!again->generation.chat.messages.empty());
  return 0;
}
