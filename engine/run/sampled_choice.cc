#include "engine/run/sampled_choice.h"

#include <algorithm>

namespace ponder::run {

SampledChoice::SampledChoice(const text::Tokenizer& tokenizer, const sample::SamplerConfig& config,
                             std::int64_t prompt, std::int64_t most, bool ignore_end)
    : tokenizer_(tokenizer),
      config_(config),
      prompt_(prompt),
      most_(most),
      ignore_end_(ignore_end) {}

std::optional<std::int32_t> SampledChoice::next(std::span<float> logits) {
  if (ended()) return std::nullopt;
  const auto known = static_cast<std::size_t>(tokenizer_.size());
  const std::int32_t id = sample::sample(logits.first(known), config_, made_,
                                         prompt_ + static_cast<std::int64_t>(made_.size()));
  if (is_end(id))
    stopped_ = true;
  else
    made_.push_back(id);
  return id;
}

std::int32_t SampledChoice::guess(std::span<float> logits,
                                  std::span<const std::int32_t> drafts) const {
  const auto known = static_cast<std::size_t>(tokenizer_.size());
  std::vector<std::int32_t> history = made_;
  history.insert(history.end(), drafts.begin(), drafts.end());
  return sample::sample(logits.first(known), config_, history,
                        prompt_ + static_cast<std::int64_t>(history.size()));
}

Result<void> read_prompt(models::Model& model, models::SequenceState& sequence,
                         std::span<const std::int32_t> prompt, std::int64_t chunk,
                         std::span<float> logits) {
  const auto most = static_cast<std::size_t>(std::clamp<std::int64_t>(chunk, 1, model.chunk()));
  while (!prompt.empty()) {
    const std::size_t n = std::min(most, prompt.size());
    const bool last = n == prompt.size();
    TRY_VOID(
        model.forward(sequence, prompt.first(n), last ? 1 : 0, last ? logits : std::span<float>()));
    prompt = prompt.subspan(n);
  }
  return {};
}

Result<Drafts> decode(models::Model& model, DecodeStep& step, models::SequenceState& sequence,
                      std::vector<std::int32_t>& ids, SampledChoice& chooser, int spec,
                      std::span<float> logits,
                      const std::function<Result<void>(std::span<const std::int32_t>)>& told) {
  Drafting drafting(spec, model.drafts());
  Decoding decoding;
  decoding.sequence = &sequence;
  decoding.chooser = &chooser;
  decoding.ids = &ids;
  decoding.drafting = &drafting;
  std::size_t heard = chooser.made().size();
  const auto tell = [&]() -> Result<void> {
    const auto fresh = std::span<const std::int32_t>(chooser.made()).subspan(heard);
    heard = chooser.made().size();
    return told ? told(fresh) : Result<void>();
  };
  const std::optional<std::int32_t> first = chooser.next(logits);
  if (first && !chooser.ended()) ids.push_back(*first);
  TRY_VOID(tell());
  while (!chooser.ended()) {
    Decoding* one = &decoding;
    step.run(model, std::span(&one, 1), nullptr);
    if (decoding.error) return fail(*decoding.error);
    TRY_VOID(tell());
  }
  return Drafts{decoding.drafted, decoding.accepted};
}

}  // namespace ponder::run
