// `ponder-engine generate MODEL < text`: the continuation of a rendered prompt, as raw bytes.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>

#include "engine/base/json.h"
#include "engine/sample/sampler.h"
#include "engine/worker/command_input.h"
#include "engine/worker/commands.h"
#include "engine/worker/greedy.h"

namespace ponder::worker {
namespace {

using Clock = std::chrono::steady_clock;

double per_second(std::size_t n, Clock::time_point from, Clock::time_point to) {
  const double s = std::chrono::duration<double>(to - from).count();
  return s > 0 ? static_cast<double>(n) / s : 0;
}

}  // namespace

Result<int> run_generate(const GenerateArguments& arguments) {
  TRY(const run::LoadedModel loaded, load(arguments.model));
  models::Model& model = *loaded.model;
  const text::Tokenizer& tokenizer = *loaded.vocabulary.tokenizer;
  TRY(const std::string text, read_stdin());
  const std::vector<text::TokenId> prompt = tokenizer.encode(text, true);
  if (prompt.empty()) return fail(ErrorCode::bad_request, "the prompt on stdin is empty");
  if (static_cast<std::int64_t>(prompt.size()) >= model.n_ctx())
    return fail(ErrorCode::context_length_exceeded,
                fmt::format("the prompt has {} tokens; the window of {} leaves no place for more",
                            prompt.size(), model.n_ctx()),
                "shorten the prompt or give a larger --ctx");

  sample::SamplerConfig sampling;
  sampling.temperature = static_cast<float>(arguments.temperature);
  sampling.seed = arguments.seed;
  const std::int64_t most =
      std::min(arguments.n, model.n_ctx() - static_cast<std::int64_t>(prompt.size()));
  const std::unique_ptr<models::SequenceState> sequence = model.new_sequence();
  std::vector<float> logits(static_cast<std::size_t>(model.vocab()));
  const Clock::time_point began = Clock::now();
  TRY_VOID(read_prompt(model, *sequence, prompt, model.chunk(), logits));
  const Clock::time_point prefilled = Clock::now();

  std::vector<text::TokenId> ids;
  bool end = false;
  while (static_cast<std::int64_t>(ids.size()) < most) {
    const auto position = static_cast<std::int64_t>(prompt.size() + ids.size());
    const auto known = std::span(logits).first(static_cast<std::size_t>(tokenizer.size()));
    const text::TokenId id = sample::sample(known, sampling, ids, position);
    if (tokenizer.is_end(id) && !arguments.ignore_eos) {
      end = true;
      break;
    }
    ids.push_back(id);
    TRY_VOID(write_stdout(tokenizer.bytes_of(id)));
    if (static_cast<std::int64_t>(ids.size()) < most) {
      TRY_VOID(model.forward(*sequence, std::span(&id, 1), 1, logits));
    }
  }
  const Clock::time_point done = Clock::now();

  json::object out{{"prompt_tokens", prompt.size()},
                   {"tokens", ids.size()},
                   {"prefill_tokens_per_s", per_second(prompt.size(), began, prefilled)},
                   {"decode_tokens_per_s", per_second(ids.size(), prefilled, done)},
                   {"stop", end ? "end_token" : "output_limit"},
                   {"ids", nullptr}};
  if (arguments.with_ids) {
    json::array array;
    for (const text::TokenId id : ids)
      array.emplace_back(id);
    out["ids"] = std::move(array);
  }
  std::fprintf(stderr, "%s\n", to_json(out).c_str());
  return kExitDone;
}

}  // namespace ponder::worker
