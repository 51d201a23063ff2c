#pragma once
// A model whose logits are a hash of all tokens before them: whatever goes wrong with a state, a
// chunk, a batch or a trial changes every token after it. It keeps the contract of
// engine/models/model.h and CHECKs that its caller does. Its draft layer agrees with itself as
// often as it is told to.
#include <memory>
#include <set>
#include <vector>

#include "engine/models/model.h"

namespace ponder::test {

/// A planted fault: what each of them breaks is what its name says.
enum class Fault { none, restore, host, batch, keep, small_chunk, read_twice };

struct FakeOptions {
  std::int32_t vocab = 4096;
  std::int64_t n_ctx = 4096;
  std::int64_t chunk = 512;
  bool drafts = true;
  double draft_agrees = 0.8;
  std::int32_t often = -1;  ///< this id is the likeliest in one of forty places
  Fault fault = Fault::none;
  double step_s = 1e-2, row_s = 1e-4, draft_s = 1e-3;  ///< what they take on its own clock
  /// forward() has no memory while a part's sequence begins with this id.
  std::int32_t no_memory_for = -1;
};

class FakeModel final : public models::Model {
 public:
  explicit FakeModel(FakeOptions o = {}) : options(o) {}

  std::int32_t vocab() const override { return options.vocab; }
  std::int64_t n_ctx() const override { return options.n_ctx; }
  std::int64_t n_ctx_train() const override { return options.n_ctx; }
  std::int64_t chunk() const override { return options.chunk; }
  int threads() const override { return 1; }
  std::uint64_t weight_bytes() const override { return 1; }
  std::string device() const override { return "fake"; }
  bool drafts() const override { return options.drafts; }
  std::uint64_t page_bytes() const override { return 1024; }
  std::uint64_t sequence_bytes() const override { return 4096; }

  std::unique_ptr<models::SequenceState> new_sequence() const override;
  Result<void> forward(std::span<const models::StepPart> parts, std::span<float> logits) override;
  using models::Model::forward;
  void keep(models::SequenceState& sequence, std::int64_t rows) override;
  Result<void> draft(std::span<const models::DraftPart> parts, std::span<float> logits) override;
  Result<std::shared_ptr<const models::Snapshot>> save(models::SequenceState& sequence) override;
  Result<std::shared_ptr<const models::Snapshot>> to_host(
      const models::Snapshot& snapshot) override;
  Result<void> restore(models::SequenceState& sequence, const models::Snapshot& snapshot) override;

  FakeOptions options;
  std::int64_t rows_read = 0;  ///< of all forward() calls
  std::int64_t steps = 0;      ///< forward() calls
  mutable int sequences = 0;   ///< new_sequence() calls
  std::size_t most_parts = 0;  ///< of one forward()
  double seconds = 0;          ///< its own clock: a test's drafts and slices are the same each time
  std::vector<std::int64_t> slices;  ///< rows of the last part of each step, if without trial
};

}  // namespace ponder::test
