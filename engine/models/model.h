#pragma once
// Weights bound to one architecture and one backend: token ids in, logits out. A Model is
// immutable after load; a SequenceState is one stream of tokens and belongs to one thread at a
// time. forward() runs on the calling thread and the model's thread pool: one call at a time.
//
// A row's numbers are bit-identical whatever chunk, thread count or state they are computed in.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/artifact/gguf.h"
#include "engine/base/error.h"

namespace ponder::models {

/// What attention keys and values are kept in: exact, half precision, 8 bits, or rotated 4 bits
/// (at most 4.25 bits a value).
enum class KvType { f32, f16, q8_0, r4 };

struct LoadOptions {
  std::int64_t n_ctx = 0;  ///< 0: the file's context length, at most 32,768
  int threads = 0;         ///< 0: the machine's cores
  KvType kv = KvType::f16;
  std::int64_t chunk = 512;  ///< largest number of tokens one forward() takes
  bool drafts = false;       ///< load the file's multi-token-prediction layer, if it has one
};

/// What a file needs at a given context, in bytes.
struct MemoryNeed {
  std::uint64_t weights = 0;
  std::uint64_t kv = 0;     ///< of one sequence at n_ctx
  std::uint64_t state = 0;  ///< recurrent state and convolution tail of one sequence
  std::uint64_t scratch = 0;
  std::uint64_t total = 0;
};

/// Keys and values of 64 positions in all attention layers (and the draft layer). Shared between
/// sequences and snapshots; whoever writes into a page that is shared copies it first.
struct KvPage;

/// One stream of tokens: attention KV, recurrent state, convolution tail and, where the model
/// drafts, the draft layer's KV and the hidden rows it has not read yet. Grows as tokens come.
class SequenceState {
 public:
  virtual ~SequenceState() = default;
  virtual std::int64_t length() const = 0;  ///< tokens read and kept
  virtual std::int64_t trial() const = 0;   ///< rows of the last forward() that wait for keep()
  virtual void clear() = 0;
};

/// A sequence at one position, frozen. Immutable; safe to hold and to destroy from any thread.
class Snapshot {
 public:
  virtual ~Snapshot() = default;
  virtual std::int64_t length() const = 0;
  virtual bool on_device() const = 0;  ///< else a copy in host memory
  /// Bytes of what no other snapshot shares: recurrent state, tails, unread hidden rows.
  virtual std::uint64_t own_bytes() const = 0;
  /// The pages it holds; two snapshots with the same prefix hold the same ones.
  virtual std::span<const std::shared_ptr<const KvPage>> pages() const = 0;
};

/// The rows of one sequence in a step: `ids` at positions sequence->length()..
struct StepPart {
  SequenceState* sequence = nullptr;  ///< each one at most once in a step
  std::span<const std::int32_t> ids;
  std::int64_t logit_rows = 0;  ///< how many of the last rows want logits
  bool trial = false;           ///< the rows are on trial (at most kMaxTrialRows): keep() decides
};
inline constexpr std::int64_t kMaxTrialRows = 16;

/// `id` follows the sequence's last token, or the id of the call before since the last forward().
struct DraftPart {
  SequenceState* sequence = nullptr;
  std::int32_t id = 0;
};

class Model {
 public:
  /// Chooses the architecture by general.architecture (registry.cc). engine_error names what is
  /// not supported and what to use instead; out_of_memory when the memory is not there.
  static Result<std::unique_ptr<Model>> load(const artifact::Gguf& file,
                                             const LoadOptions& options);
  virtual ~Model() = default;

  virtual std::int32_t vocab() const = 0;
  virtual std::int64_t n_ctx() const = 0;
  virtual std::int64_t n_ctx_train() const = 0;
  virtual std::int64_t chunk() const = 0;
  virtual int threads() const = 0;
  virtual std::uint64_t weight_bytes() const = 0;  ///< streamed by one decode step
  virtual std::string device() const = 0;
  virtual bool drafts() const = 0;               ///< draft() is there
  virtual std::uint64_t page_bytes() const = 0;  ///< of one KvPage
  /// Of one sequence, its pages aside: MemoryNeed::state.
  virtual std::uint64_t sequence_bytes() const = 0;

  virtual std::unique_ptr<SequenceState> new_sequence() const = 0;

  /// One step of several sequences, at most chunk() rows together. Writes the wanted logits, part
  /// after part, to `logits` [sum of logit_rows, vocab]. No sequence may pass n_ctx or have rows on
  /// trial. After an error no sequence has changed.
  virtual Result<void> forward(std::span<const StepPart> parts, std::span<float> logits) = 0;
  /// The same for one sequence.
  Result<void> forward(SequenceState& sequence, std::span<const std::int32_t> ids,
                       std::int64_t logit_rows, std::span<float> logits) {
    const StepPart part{&sequence, ids, logit_rows, false};
    return forward(std::span(&part, 1), logits);
  }

  /// Ends a trial: its first `rows` rows become part of the sequence, as if they had been read
  /// without trial, bit for bit; the others never were.
  virtual void keep(SequenceState& sequence, std::int64_t rows) = 0;

  /// Guesses with the multi-token-prediction layer: `logits` [parts, vocab] for the token after
  /// each `id`. Repeated calls go on from their own ids. Nothing of it outlives the next forward(),
  /// and no sequence changes by it. Only where drafts().
  virtual Result<void> draft(std::span<const DraftPart> parts, std::span<float> logits) = 0;

  /// The sequence's state at length(), sharing its pages. No rows may be on trial.
  virtual Result<std::shared_ptr<const Snapshot>> save(SequenceState& sequence) = 0;
  /// A copy in host memory; pages that have one already are not copied again.
  virtual Result<std::shared_ptr<const Snapshot>> to_host(const Snapshot& snapshot) = 0;
  /// Makes `sequence` (of this model, whatever it held) what `snapshot` was, from either memory.
  virtual Result<void> restore(SequenceState& sequence, const Snapshot& snapshot) = 0;
};

/// For `ponder-engine info`: without loading weights.
Result<MemoryNeed> memory_need(const artifact::Gguf& file, const LoadOptions& options);
/// Each a sentence: unsupported tensor types, architecture, rope scaling. Empty: usable.
std::vector<std::string> unsupported(const artifact::Gguf& file);

}  // namespace ponder::models
