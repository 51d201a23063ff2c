#include "engine/run/selftest.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "engine/run/sampled_choice.h"
#include "engine/run/state_store.h"

namespace ponder::run {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kTokens = 48;
constexpr std::size_t kStrangers = 3;

/// A few hundred tokens with numbers to keep apart, so that attention and recurrence both matter.
std::string prompt_text() {
  std::string text = "Here is a list of rooms and the number of chairs in each.\n";
  for (int i = 0; i < 24; ++i)
    text += fmt::format("Room {}{} has {} chairs.\n", static_cast<char>('A' + i % 26),
                        100 + 37 * i % 89, 7 * i % 41);
  return text + "How many chairs does room C127 have, and which room has the most?\n";
}

sample::SamplerConfig greedy() {
  sample::SamplerConfig config;
  config.temperature = 0;
  return config;
}
sample::SamplerConfig sampled() {
  sample::SamplerConfig config;
  config.temperature = 1.5F;
  config.top_p = 1;
  config.top_k = 0;
  config.seed = 20240229;
  return config;
}

class Selftest {
 public:
  Selftest(models::Model& model, const text::Tokenizer& tokenizer,
           const std::function<Result<void>(const SelftestLeg&)>& told)
      : model_(model),
        tokenizer_(tokenizer),
        told_(told),
        step_(model),
        sequence_(model.new_sequence()),
        logits_(static_cast<std::size_t>(model.vocab())) {}

  Result<bool> run() {
    if (model_.n_ctx() <= 2 * kTokens)
      return fail(ErrorCode::bad_request,
                  fmt::format("a window of {} is too small for the test", model_.n_ctx()),
                  fmt::format("use --ctx {} or more", 4 * kTokens));
    prompt_ = tokenizer_.encode(prompt_text(), false);
    prompt_.resize(std::min(prompt_.size(), static_cast<std::size_t>(model_.n_ctx() - kTokens)));

    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      TRY(cold_[kind], plain(kind, model_.chunk(), 0));
    }
    TRY_VOID(leg("cold", [&](std::size_t kind) { return Result<Ids>(cold_[kind]); }));
    TRY_VOID(leg("warm", [&](std::size_t kind) { return warm(kind); }));
    TRY_VOID(leg("restored", [&](std::size_t kind) { return restored(kind, false); }));
    TRY_VOID(leg("host", [&](std::size_t kind) { return restored(kind, true); }));
    TRY_VOID(leg("chunked", [&](std::size_t kind) { return chunked(kind); }));
    TRY_VOID(leg("batched", [&](std::size_t kind) { return batched(kind); }));
    if (model_.drafts()) {
      TRY_VOID(leg("speculative", [&](std::size_t kind) { return speculative(kind); }));
    }
    TRY_VOID(leg("resumed", [&](std::size_t kind) { return resumed(kind); }));
    return all_equal_;
  }

 private:
  Result<void> leg(const char* name, const std::function<Result<Ids>(std::size_t)>& ids_of) {
    SelftestLeg leg{name};
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      TRY(const Ids ids, ids_of(kind));
      const Ids& want = cold_[kind];
      const auto parted = std::mismatch(want.begin(), want.end(), ids.begin(), ids.end());
      if (parted.first == want.end() && parted.second == ids.end()) continue;
      const std::int64_t at = parted.first - want.begin();
      leg.first_difference = std::min(leg.first_difference.value_or(at), at);
    }
    all_equal_ &= !leg.first_difference;
    return told_(leg);
  }

  SampledChoice chooser(std::size_t kind) const {
    return {tokenizer_, kinds_[kind], static_cast<std::int64_t>(prompt_.size()), kTokens, true};
  }

  Result<Ids> finish(std::size_t kind, int spec) {
    Ids ids = prompt_;
    SampledChoice choice = chooser(kind);
    TRY_VOID(decode(model_, step_, *sequence_, ids, choice, spec, logits_));
    return choice.made();
  }

  Result<Ids> plain(std::size_t kind, std::int64_t chunk, int spec) {
    sequence_->clear();
    TRY_VOID(read_prompt(model_, *sequence_, prompt_, chunk, logits_));
    return finish(kind, spec);
  }

  /// Two turns as the loop runs them: one saves its state inside the prompt and goes on, the next
  /// finds it in the store. The first that differs, else the last of them.
  Result<Ids> warm(std::size_t kind) {
    StateStoreOptions options;
    options.device_bytes = std::numeric_limits<std::uint64_t>::max();
    options.page_bytes = model_.page_bytes();
    StateStore store(options,
                     [&](const models::Snapshot& snapshot) { return model_.to_host(snapshot); });
    const auto prompt = std::span<const std::int32_t>(prompt_);
    const auto part = prompt.first(prompt.size() / 2 + 1);
    sequence_->clear();
    TRY_VOID(read_prompt(model_, *sequence_, part, model_.chunk(), logits_));
    TRY(std::shared_ptr<const models::Snapshot> saved, model_.save(*sequence_));
    store.put(part, std::move(saved));
    TRY_VOID(read_prompt(model_, *sequence_, prompt.subspan(part.size()), model_.chunk(), logits_));
    TRY(Ids ids, finish(kind, 0));
    if (ids != cold_[kind]) return ids;

    const StateStore::Found found = store.find(prompt);
    if (!found.snapshot)
      return fail(ErrorCode::engine_error, "a state that was saved is not found again");
    sequence_->clear();
    TRY_VOID(model_.restore(*sequence_, *found.snapshot));
    const auto rest = prompt.subspan(static_cast<std::size_t>(sequence_->length()));
    TRY_VOID(read_prompt(model_, *sequence_, rest, model_.chunk(), logits_));
    return finish(kind, 0);
  }

  /// From a state inside the prompt, after the sequence has gone elsewhere.
  Result<Ids> restored(std::size_t kind, bool through_host) {
    const std::size_t at = prompt_.size() / 2 + 1;
    const auto prompt = std::span<const std::int32_t>(prompt_);
    sequence_->clear();
    TRY_VOID(read_prompt(model_, *sequence_, prompt.first(at), model_.chunk(), logits_));
    TRY(std::shared_ptr<const models::Snapshot> snapshot, model_.save(*sequence_));
    TRY_VOID(read_prompt(model_, *sequence_, prompt.first(at / 2), model_.chunk(), logits_));
    if (through_host) {
      TRY(snapshot, model_.to_host(*snapshot));
    }
    sequence_->clear();
    TRY_VOID(model_.restore(*sequence_, *snapshot));
    TRY_VOID(read_prompt(model_, *sequence_, prompt.subspan(at), model_.chunk(), logits_));
    return finish(kind, 0);
  }

  /// The first that differs, else the last of them.
  Result<Ids> chunked(std::size_t kind) {
    Ids ids;
    for (const std::int64_t chunk : {3, 64, 100}) {
      TRY(ids, plain(kind, chunk, 0));
      if (ids != cold_[kind]) break;
    }
    return ids;
  }

  Result<Ids> speculative(std::size_t kind) {
    Ids ids;
    for (int depth = 1; depth <= kDeepestDraft; ++depth) {
      TRY(ids, plain(kind, model_.chunk(), depth));
      if (ids != cold_[kind]) break;
    }
    return ids;
  }

  Result<Ids> resumed(std::size_t kind) {
    const Ids& all = cold_[kind];
    const Ids made(all.begin(), all.begin() + static_cast<long>(all.size() / 2));
    Ids ids = prompt_;
    ids.insert(ids.end(), made.begin(), made.end());
    sequence_->clear();
    TRY_VOID(read_prompt(model_, *sequence_, ids, model_.chunk(), logits_));
    SampledChoice choice = chooser(kind);
    for (const std::int32_t id : made)
      choice.replay(id);
    TRY_VOID(decode(model_, step_, *sequence_, ids, choice, 0, logits_));
    return choice.made();
  }

  /// Every step shared with strangers that are at other places of other texts.
  Result<Ids> batched(std::size_t kind) {
    struct One {
      std::unique_ptr<models::SequenceState> sequence;
      Ids ids;
      std::unique_ptr<SampledChoice> choice;
      std::unique_ptr<Drafting> drafting;
      Decoding decoding = {};
    };
    std::array<One, kStrangers + 1> all;
    for (std::size_t i = 0; i < all.size(); ++i) {
      One& one = all[i];
      one.ids = prompt_;
      if (i > 0) {
        std::rotate(one.ids.begin(), one.ids.begin() + static_cast<long>(7 * i % one.ids.size()),
                    one.ids.end());
        one.ids.resize(std::max<std::size_t>(one.ids.size() / (i + 1), 1));
      }
      one.sequence = model_.new_sequence();
      TRY_VOID(read_prompt(model_, *one.sequence, one.ids, model_.chunk(), logits_));
      one.choice = std::make_unique<SampledChoice>(
          tokenizer_, kinds_[kind], static_cast<std::int64_t>(one.ids.size()), kTokens, true);
      one.drafting = std::make_unique<Drafting>(0, false);
      const std::optional<std::int32_t> first = one.choice->next(logits_);
      if (first) one.ids.push_back(*first);
      one.decoding.sequence = one.sequence.get();
      one.decoding.chooser = one.choice.get();
      one.decoding.ids = &one.ids;
      one.decoding.drafting = one.drafting.get();
    }
    while (true) {
      std::vector<Decoding*> running;
      for (One& one : all)
        if (!one.choice->ended() && static_cast<std::int64_t>(running.size()) < model_.chunk())
          running.push_back(&one.decoding);
      if (running.empty()) return all[0].choice->made();
      step_.run(model_, running, nullptr);
      for (const Decoding* decoding : running)
        if (decoding->error) return fail(*decoding->error);
    }
  }

  models::Model& model_;
  const text::Tokenizer& tokenizer_;
  const std::function<Result<void>(const SelftestLeg&)>& told_;
  DecodeStep step_;
  const std::unique_ptr<models::SequenceState> sequence_;
  std::vector<float> logits_;
  const std::array<sample::SamplerConfig, 2> kinds_ = {greedy(), sampled()};
  Ids prompt_;
  std::array<Ids, 2> cold_;
  bool all_equal_ = true;
};

}  // namespace

Result<bool> selftest(models::Model& model, const text::Tokenizer& tokenizer,
                      const std::function<Result<void>(const SelftestLeg&)>& told) {
  return Selftest(model, tokenizer, told).run();
}

}  // namespace ponder::run
