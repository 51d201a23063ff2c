// `ponder-engine selftest MODEL`: the same greedy tokens by every way through the engine. A row's
// numbers are bit-identical in any chunk and state, so a difference is a fault of this machine or
// build.
#include <fmt/core.h>

#include "engine/base/json.h"
#include "engine/worker/command_input.h"
#include "engine/worker/commands.h"
#include "engine/worker/greedy.h"

namespace ponder::worker {
namespace {

constexpr std::int64_t kTokens = 48;

/// A few hundred tokens with numbers to keep apart, so that attention and recurrence both matter.
std::string prompt_text() {
  std::string text = "Here is a list of rooms and the number of chairs in each.\n";
  for (int i = 0; i < 24; ++i)
    text += fmt::format("Room {}{} has {} chairs.\n", static_cast<char>('A' + i % 26),
                        100 + 37 * i % 89, 7 * i % 41);
  return text + "How many chairs does room C127 have, and which room has the most?\n";
}

Result<bool> report(const char* leg, const std::vector<text::TokenId>& ids,
                    const std::vector<text::TokenId>& want) {
  json::value difference = nullptr;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (i < ids.size() && ids[i] == want[i]) continue;
    difference = i;
    break;
  }
  const bool equal = difference.is_null();
  const json::object line{{"leg", leg}, {"equal", equal}, {"first_difference", difference}};
  TRY_VOID(write_stdout(to_json(line) + "\n"));
  return equal;
}

}  // namespace

Result<int> run_selftest(const ModelArguments& arguments) {
  TRY(const run::LoadedModel loaded, load(arguments));
  models::Model& model = *loaded.model;
  const text::Tokenizer& tokenizer = *loaded.vocabulary.tokenizer;
  std::vector<text::TokenId> prompt = tokenizer.encode(prompt_text(), false);
  if (model.n_ctx() <= kTokens)
    return fail(ErrorCode::bad_request,
                fmt::format("a window of {} is too small for the test", model.n_ctx()),
                fmt::format("use --ctx {} or more", 2 * kTokens));
  prompt.resize(std::min(prompt.size(), static_cast<std::size_t>(model.n_ctx() - kTokens)));

  const std::unique_ptr<models::SequenceState> sequence = model.new_sequence();
  const auto generate = [&](std::int64_t chunk) {
    return generate_greedy(model, *sequence, tokenizer, prompt, chunk, kTokens);
  };
  TRY(const std::vector<text::TokenId> cold, generate(model.chunk()));
  TRY(bool equal, report("cold", cold, cold));
  sequence->clear();
  TRY(const std::vector<text::TokenId> warm, generate(model.chunk()));
  TRY(const bool warm_equal, report("warm", warm, cold));
  equal &= warm_equal;
  std::vector<text::TokenId> chunked = cold;
  for (const std::int64_t chunk : {3, 64, 100}) {
    sequence->clear();
    TRY(const std::vector<text::TokenId> ids, generate(chunk));
    if (ids != cold) chunked = ids;
  }
  TRY(const bool chunked_equal, report("chunked", chunked, cold));
  equal &= chunked_equal;
  return equal ? kExitDone : kExitRefused;
}

}  // namespace ponder::worker
