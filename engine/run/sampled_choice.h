#pragma once
// The simplest chooser, for the commands of ponder-engine: a sampler, an end, and a number of
// tokens. And the loop around it, for one sequence alone.
#include <functional>
#include <span>
#include <vector>

#include "engine/run/decode_step.h"
#include "engine/sample/sampler.h"
#include "engine/text/tokenizer.h"

namespace ponder::run {

class SampledChoice final : public Chooser {
 public:
  /// `prompt` is the prompt's length: positions count from there. `most` tokens come at most;
  /// with `ignore_end` an end token is a token like any other.
  SampledChoice(const text::Tokenizer& tokenizer, const sample::SamplerConfig& config,
                std::int64_t prompt, std::int64_t most, bool ignore_end);

  std::optional<std::int32_t> next(std::span<float> logits) override;
  std::int32_t guess(std::span<float> logits, std::span<const std::int32_t> drafts) const override;
  bool ended() const override { return stopped_ || room() <= 0; }
  bool is_end(std::int32_t id) const override { return !ignore_end_ && tokenizer_.is_end(id); }
  std::int64_t room() const override { return most_ - static_cast<std::int64_t>(made_.size()); }

  /// Counts as chosen, by an earlier run.
  void replay(std::int32_t id) { made_.push_back(id); }

  const std::vector<std::int32_t>& made() const { return made_; }  ///< without an end token
  bool stopped() const { return stopped_; }                        ///< by an end token

 private:
  const text::Tokenizer& tokenizer_;
  const sample::SamplerConfig config_;
  const std::int64_t prompt_;
  const std::int64_t most_;
  const bool ignore_end_;
  std::vector<std::int32_t> made_;
  bool stopped_ = false;
};

/// Reads `prompt` in chunks of at most `chunk` (and model.chunk()) tokens; `logits` [vocab] are
/// those of the last one.
Result<void> read_prompt(models::Model& model, models::SequenceState& sequence,
                         std::span<const std::int32_t> prompt, std::int64_t chunk,
                         std::span<float> logits);

/// Goes on from `logits`, those after the last of `ids` (all that `sequence` has read; grows), to
/// the end of `chooser`. `told` hears of every token as it is made. The counts of drafts are in
/// the result.
struct Drafts {
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
};
Result<Drafts> decode(models::Model& model, DecodeStep& step, models::SequenceState& sequence,
                      std::vector<std::int32_t>& ids, SampledChoice& chooser, int spec,
                      std::span<float> logits,
                      const std::function<Result<void>(std::span<const std::int32_t>)>& told = {});

}  // namespace ponder::run
