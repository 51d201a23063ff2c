// What the doors and the worker read from outside. What is accepted survives being written again.
#include "engine/base/check.h"
#include "engine/generator/chat_request.h"
#include "engine/generator/protocol.h"

using namespace ponder;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 2 == 0) {
    const auto body = parse_json_object(input);
    if (!body) return 0;
    CHECK(parse_json_object(to_json(*body)).value() == *body);
    if (const auto chat = parse_chat_request(*body)) {
      const json::object written = encode(*chat);
      const auto again = decode_chat_request(written);
      CHECK(again && encode(*again) == written);
    }
    if (const auto sampling = parse_sampling(*body)) {
      const json::object written = encode(*sampling);
      const auto again = decode_sampling(written);
      CHECK(again && encode(*again) == written);
    }
    static_cast<void>(parse_budgets(*body));
    return 0;
  }
  protocol::FrameReader reader;
  reader.feed(input);
  for (int i = 0; i < 64; ++i) {
    const auto frame = reader.next();
    if (!frame || !*frame) break;
    static_cast<void>(protocol::decode_to_worker(**frame));
    static_cast<void>(protocol::decode_from_worker(**frame));
  }
  return 0;
}
