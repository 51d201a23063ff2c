#pragma once
// One generation from its prompt's last logits on: samples, splits what comes into thinking,
// answer and calls, watches the budgets, and tells its sink. Knows no model; the engine loop
// feeds it logits. Owned by the engine's thread.
//
// How an output ends:
//   the model's end token, thinking closed, no call open      end_token
//   the same token with a call still open, or in thinking     stream_lost (a cut answer, never
//   that is not to be closed from outside                     a whole one)
//   a stop string in the answer                               stop_string
//   the thinking spent its budget without closing             reasoning_exhausted (on_limit stop)
//   the answer, both together or the window are spent         output_limit
//   the last tokens go round in a cycle                       repetition (not with ignore_eos)
// ignore_eos makes an end token one like any other, in thinking and in an answer without a schema.
// With on_limit "answer", and after answer_now(), thinking is closed by tokens that are not sampled
// (thought_closer.h). With a schema every token of the answer is one that a JSON text of the schema
// can go on with: where the one sampled as usual is not, a second draw of the same position takes
// one of the allowed ones, which together is the law of the settings restricted to those. The
// answer ends where the text is whole and nothing can follow.
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/generator/generator.h"
#include "engine/generator/stop_strings.h"
#include "engine/run/thought_closer.h"
#include "engine/sample/sampler.h"
#include "engine/text/cycle_detector.h"
#include "engine/text/json_constraint.h"
#include "engine/text/output_splitter.h"
#include "engine/text/tokenizer.h"

namespace ponder::run {

/// The family's defaults, changed by what the request says. A seed that is not given is random.
sample::SamplerConfig sampler_config(const SamplingParams& params, bool with_tools);

class OutputStream {
 public:
  /// `asked` is when the caller asked: the time to the first token counts from there. `grammar` is
  /// that of the request's schema; without it the schema is compiled here, and one that cannot be
  /// ends the output at its first token.
  OutputStream(const text::Tokenizer& tokenizer, const GenerationRequest& request, PromptPlan plan,
               bool starts_thinking, std::shared_ptr<OutputSink> sink,
               std::chrono::steady_clock::time_point asked,
               std::shared_ptr<const text::JsonGrammar> grammar = {});

  /// The next token out of the logits of the position before it (`logits` is scratch; only the
  /// ids that the tokenizer knows are looked at). Nothing once the output has ended.
  std::optional<text::TokenId> next(std::span<float> logits);
  /// What next() would choose after `drafts` more tokens from such logits: the same settings, seed
  /// and position, so that a draft layer whose logits are close chooses the same token. Nothing
  /// changes; `logits` is scratch.
  text::TokenId guess(std::span<float> logits, std::span<const text::TokenId> drafts) const;
  /// Takes a token that an earlier run chose; nothing is told. What that run told up to here and
  /// what this one tells from here on are together what an uncut run tells.
  void replay(text::TokenId id);
  /// Closes the thinking soon (Generator::answer_now).
  void answer_now();
  bool ended() const { return ended_; }

  /// Ends it from outside. Text that is held back (what may become a tag, a stop string, a whole
  /// character, an open call) comes out, but not of an output that is cancelled or has no memory:
  /// that one may be resumed, and goes on exactly where it stopped telling.
  void end(Finish finish, std::optional<Error> error = {});

  const PromptPlan& plan() const { return plan_; }
  OutputSink& sink() { return *sink_; }
  Usage& usage() { return usage_; }

 private:
  bool thinking() const { return splitter_.phase() == text::Phase::thinking; }
  /// `state`: of the constraint, where one holds.
  /// -1: the schema lets no token of this vocabulary come.
  text::TokenId choose(std::span<float> logits, std::span<const text::TokenId> history,
                       std::int64_t position, const text::JsonConstraint::State* state) const;
  text::TokenId choose_allowed(std::span<const float> logits,
                               std::span<const sample::Weighted> likely, double u,
                               const text::JsonConstraint::State& state) const;
  TokenLogprobs told_logprobs(const sample::LogProbabilities& raw, text::TokenId id) const;
  const text::JsonConstraint::State* json_state() const;
  std::int64_t position_after(std::size_t drafts) const;
  /// The states that a token moves, told or not.
  void read(text::TokenId id);
  void take(text::TokenId id, std::optional<TokenLogprobs> logprobs);
  void tell(const std::vector<text::SplitEvent>& events, Channel channel,
            std::vector<std::int32_t> tokens, std::vector<TokenLogprobs> logprobs);
  void tell_untold();
  void tell(Delta delta);
  void end_without_a_token();
  /// How the output has ended with the last token, if it has.
  std::optional<Finish> over() const;
  void count();

  const text::Tokenizer& tokenizer_;
  const PromptPlan plan_;
  const sample::SamplerConfig sampling_;
  const std::int64_t max_answer_;
  const bool ignore_eos_;
  const std::optional<int> top_logprobs_;
  const std::shared_ptr<OutputSink> sink_;
  text::OutputSplitter splitter_;
  text::CycleDetector cycles_;
  ThoughtCloser closer_;
  std::optional<text::JsonConstraint> json_;
  std::optional<Error> bad_schema_;
  StopStrings stops_;
  std::vector<std::int32_t> tokens_;
  std::size_t replayed_ = 0;  // so many of tokens_
  bool cycling_ = false;
  /// Tokens of a forced closing that is not complete. They are told together: a cut inside it would
  /// leave tokens that look sampled, and a resumed run would go on as if they were.
  struct Untold {
    text::TokenId id;
    Channel channel;
    std::vector<text::SplitEvent> events;
    std::vector<TokenLogprobs> logprobs;
  };
  std::vector<Untold> untold_;
  std::vector<text::SplitEvent> events_;
  Usage usage_;
  bool ended_ = false;
  const text::TokenId think_end_, call_begin_;  // -1: none
  const std::chrono::steady_clock::time_point asked_;
  std::chrono::steady_clock::time_point first_token_ = {};
};

}  // namespace ponder::run
