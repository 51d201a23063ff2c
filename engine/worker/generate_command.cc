// `ponder-engine generate MODEL < text`: the continuation of a rendered prompt, as raw bytes.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "engine/base/json.h"
#include "engine/run/sampled_choice.h"
#include "engine/worker/command_input.h"
#include "engine/worker/commands.h"

namespace ponder::worker {
namespace {

using Clock = std::chrono::steady_clock;

double per_second(std::size_t n, Clock::time_point from, Clock::time_point to) {
  const double s = std::chrono::duration<double>(to - from).count();
  return s > 0 ? static_cast<double>(n) / s : 0;
}

}  // namespace

Result<int> run_generate(const GenerateArguments& arguments) {
  ModelArguments with_drafts = arguments.model;
  with_drafts.drafts = arguments.spec != 0;
  TRY(const run::LoadedModel loaded, load(with_drafts));
  models::Model& model = *loaded.model;
  TRY_VOID(check_spec(arguments.spec, model));
  const text::Tokenizer& tokenizer = *loaded.vocabulary.tokenizer;
  TRY(const std::string text, read_stdin());
  std::vector<text::TokenId> ids = tokenizer.encode(text, true);
  if (ids.empty()) return fail(ErrorCode::bad_request, "the prompt on stdin is empty");
  const std::size_t prompt = ids.size();
  if (static_cast<std::int64_t>(prompt) >= model.n_ctx())
    return fail(ErrorCode::context_length_exceeded,
                fmt::format("the prompt has {} tokens; the window of {} leaves no place for more",
                            prompt, model.n_ctx()),
                "shorten the prompt or give a larger --ctx");

  sample::SamplerConfig sampling;
  sampling.temperature = static_cast<float>(arguments.temperature);
  sampling.seed = arguments.seed;
  const auto length = static_cast<std::int64_t>(prompt);
  run::SampledChoice choice(tokenizer, sampling, length,
                            std::min(arguments.n, model.n_ctx() - length), arguments.ignore_eos);
  const std::unique_ptr<models::SequenceState> sequence = model.new_sequence();
  std::vector<float> logits(static_cast<std::size_t>(model.vocab()));
  const Clock::time_point began = Clock::now();
  TRY_VOID(run::read_prompt(model, *sequence, ids, model.chunk(), logits));
  const Clock::time_point prefilled = Clock::now();
  run::DecodeStep step(model);
  const auto show = [&](std::span<const text::TokenId> fresh) -> Result<void> {
    for (const text::TokenId id : fresh)
      TRY_VOID(write_stdout(tokenizer.bytes_of(id)));
    return {};
  };
  TRY(const run::Drafts drafts,
      run::decode(model, step, *sequence, ids, choice, arguments.spec, logits, show));
  const Clock::time_point done = Clock::now();

  json::object out{{"prompt_tokens", prompt},
                   {"tokens", choice.made().size()},
                   {"prefill_tokens_per_s", per_second(prompt, began, prefilled)},
                   {"decode_tokens_per_s", per_second(choice.made().size(), prefilled, done)},
                   {"stop", choice.stopped() ? "end_token" : "output_limit"},
                   {"drafted", drafts.drafted},
                   {"accepted", drafts.accepted},
                   {"ids", nullptr}};
  if (arguments.with_ids) {
    json::array array;
    for (const text::TokenId id : choice.made())
      array.emplace_back(id);
    out["ids"] = std::move(array);
  }
  std::fprintf(stderr, "%s\n", to_json(out).c_str());
  return kExitDone;
}

}  // namespace ponder::worker
