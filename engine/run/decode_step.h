#pragma once
// One step of several sequences: each that is being decoded reads its last token and what is
// drafted after it, and one more may read a slice of its prompt beside them. What is chosen is what
// plain decoding chooses, bit for bit: a row's logits are the same on trial as alone, and a draft
// counts only where it equals the choice from the row before it.
//
// Owned by the engine's thread.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/models/model.h"
#include "engine/run/speculation.h"

namespace ponder::run {

/// Chooses the tokens of one sequence (an OutputStream in the service, a SampledChoice in tools).
class Chooser {
 public:
  virtual ~Chooser() = default;
  /// The next token from the logits of the position before it; `logits` is scratch. Nothing once
  /// the output has ended.
  virtual std::optional<std::int32_t> next(std::span<float> logits) = 0;
  /// What next() would choose after `drafts` more tokens; nothing changes.
  virtual std::int32_t guess(std::span<float> logits,
                             std::span<const std::int32_t> drafts) const = 0;
  virtual bool ended() const = 0;
  /// Whether this token ends an output: nothing is drafted after it.
  virtual bool is_end(std::int32_t id) const = 0;
  /// Most tokens that may still come.
  virtual std::int64_t room() const = 0;
};

/// A sequence that is being decoded. `ids` are the tokens it has read and, last, the one chosen
/// but not read yet.
struct Decoding {
  models::SequenceState* sequence = nullptr;
  Chooser* chooser = nullptr;
  std::vector<std::int32_t>* ids = nullptr;
  Drafting* drafting = nullptr;
  std::int64_t drafted = 0;  ///< counts grow
  std::int64_t accepted = 0;
  std::optional<Error> error = {};  ///< the step failed for this one
};

/// A slice of a prompt; afterwards `logits` [vocab] are those of its last row, if wanted. They are
/// scratch of the step and good until the next one.
struct PromptSlice {
  models::SequenceState* sequence = nullptr;
  std::span<const std::int32_t> ids;
  bool wants_logits = false;
  std::span<float> logits = {};
  std::optional<Error> error = {};
};

/// Seconds of a clock that never jumps; only differences mean anything. What a step costs decides
/// how deep is drafted and how long slices are: tests bring their own clock.
using StepClock = std::function<double()>;
double steady_seconds();

class DecodeStep {
 public:
  /// `out_of_memory` is called when a step had no memory; where it frees some (returns true), the
  /// step is tried once more.
  explicit DecodeStep(const models::Model& model, std::function<bool()> out_of_memory = {},
                      StepClock clock = steady_seconds);

  /// Rows that a slice beside `decoding` sequences may have at most.
  std::int64_t slice_room(std::size_t decoding) const;
  /// After it each of `decoding` has its next token at the end of its ids, has ended, or has an
  /// error. `slice` may be null.
  void run(models::Model& model, std::span<Decoding* const> decoding, PromptSlice* slice);

  const StepCost& cost() const { return cost_; }

 private:
  void plan(std::span<Decoding* const> decoding, std::int64_t rows_left);
  void draft(models::Model& model, std::span<Decoding* const> decoding);
  bool forward(models::Model& model, std::span<Decoding* const> decoding, PromptSlice* slice);
  Result<void> forward_once(models::Model& model, std::span<const models::StepPart> parts,
                            std::span<float> logits) const;
  void take(models::Model& model, Decoding& d, std::size_t index, std::size_t first_row);
  std::span<float> row(std::size_t index);
  /// Logits of so many rows; false without memory for them.
  bool make_room(std::size_t rows);

  const std::size_t vocab_;
  const std::int64_t chunk_;
  const std::function<bool()> out_of_memory_;
  const StepClock clock_;
  StepCost cost_;
  std::vector<float> logits_;
  std::vector<std::vector<std::int32_t>> rows_;  ///< of each decoding: last token, drafts
  std::vector<bool> looked_up_;
  std::vector<int> depth_;
};

}  // namespace ponder::run
