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

enum class KvType { f32, f16 };  ///< q8_0 and the rotated 4-bit type come with the state store

struct LoadOptions {
  std::int64_t n_ctx = 0;  ///< 0: the file's context length, at most 32,768
  int threads = 0;         ///< 0: the machine's cores
  KvType kv = KvType::f16;
  std::int64_t chunk = 512;  ///< largest number of tokens one forward() takes
};

/// What a file needs at a given context, in bytes.
struct MemoryNeed {
  std::uint64_t weights = 0;
  std::uint64_t kv = 0;     ///< of one sequence at n_ctx
  std::uint64_t state = 0;  ///< recurrent state and convolution tail of one sequence
  std::uint64_t scratch = 0;
  std::uint64_t total = 0;
};

/// Attention KV, recurrent state and convolution tail of one sequence. Grows as tokens come.
class SequenceState {
 public:
  virtual ~SequenceState() = default;
  virtual std::int64_t length() const = 0;  ///< tokens read so far
  virtual void clear() = 0;
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

  virtual std::unique_ptr<SequenceState> new_sequence() const = 0;

  /// Reads `ids` (1..chunk of them) at positions length().. and writes the logits
  /// [logit_rows, vocab] of the last `logit_rows` of them (0: none). length() + ids.size() must
  /// not pass n_ctx.
  virtual Result<void> forward(SequenceState& sequence, std::span<const std::int32_t> ids,
                               std::int64_t logit_rows, std::span<float> logits) = 0;
};

/// For `ponder-engine info`: without loading weights.
Result<MemoryNeed> memory_need(const artifact::Gguf& file, const LoadOptions& options);
/// Each a sentence: unsupported tensor types, architecture, rope scaling. Empty: usable.
std::vector<std::string> unsupported(const artifact::Gguf& file);

}  // namespace ponder::models
