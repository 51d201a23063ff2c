#pragma once
// What the parts of a layer (attention_layer.cc, delta_net_layer.cc, feed_forward.cc) are given
// for one step: the rows of all sequences joined, and scratch memory. Each part reads
// `scratch.norm` [rows, hidden] and writes what is added to the residual stream to `scratch.out`.
#include <array>
#include <cstdint>
#include <span>

#include "engine/base/check.h"
#include "engine/models/decoder.h"
#include "kernels/core/arena.h"
#include "kernels/ops/ops.h"

namespace ponder::models {

class DecoderSequence;

/// Rows first .. first + n - 1 of a step: positions position.. of one sequence.
struct RowRange {
  DecoderSequence* sequence = nullptr;
  std::int64_t first = 0;
  std::int64_t n = 0;
  std::int64_t position = 0;
  bool trial = false;  ///< recurrent state is left as it is and its inputs are logged
};

/// What a step needs besides weights and state. The parts of a layer that are not alive together
/// share one region, `wide`.
struct Scratch {
  float* x = nullptr;     ///< [chunk, hidden], the residual stream
  float* norm = nullptr;  ///< [chunk, hidden], its normalised copy
  float* out = nullptr;   ///< [chunk, hidden], what a mixer or the feed-forward part adds
  float* rope = nullptr;  ///< [chunk, rot], of the rows' positions
  std::span<std::byte> matmul;
  std::span<std::byte> wide;

  /// `columns`: of all matrices (slot_columns).
  static std::uint64_t bytes(const DecoderConfig& config, const kernels::MatMulColumns& columns,
                             std::int64_t rows, bool drafts);
  void bind(kernels::Arena& arena, const DecoderConfig& config,
            const kernels::MatMulColumns& columns, std::int64_t rows, bool drafts);
};

/// Hands out `wide` from front to back for one part of a layer.
class Region {
 public:
  explicit Region(std::span<std::byte> memory) : memory_(memory) {}
  template <class T>
  T* take(std::int64_t count) {
    const std::size_t bytes = kernels::Arena::padded(static_cast<std::size_t>(count) * sizeof(T));
    CHECK(bytes <= memory_.size() - used_);
    T* at = reinterpret_cast<T*>(memory_.data() + used_);
    used_ += bytes;
    return at;
  }
  float* floats(std::int64_t count) { return take<float>(count); }

 private:
  std::span<std::byte> memory_;
  std::size_t used_ = 0;
};

struct LayerStep {
  const DecoderConfig& config;
  const kernels::OpTable& ops;
  const kernels::Stream& stream;
  const Scratch& scratch;
  std::span<const RowRange> parts;
  std::int64_t rows = 0;  ///< of all parts

  template <std::size_t Count>
  void matmul(const float* x, std::int64_t n,
              const std::array<kernels::MatMulOutput, Count>& outputs) const {
    ops.matmul(stream, {.x = x, .n = n, .outputs = outputs, .workspace = scratch.matmul});
  }
  /// scratch.x += scratch.out
  void add_out() const {
    ops.add(stream,
            {.a = scratch.x, .b = scratch.out, .y = scratch.x, .count = rows * config.hidden});
  }
  void rms_norm(const float* x, const float* weight, float* y, std::int64_t n) const {
    ops.rms_norm(
        stream, {.x = x, .w = weight, .y = y, .rows = n, .cols = config.hidden, .eps = config.eps});
  }
};

inline std::uint64_t padded_floats(std::int64_t count) {
  return kernels::Arena::padded(static_cast<std::size_t>(count) * sizeof(float));
}

/// Bytes of `wide` that each part takes for n rows.
std::uint64_t attention_scratch(const DecoderConfig& config, std::int64_t n);
std::uint64_t delta_net_scratch(const DecoderConfig& config, std::int64_t n);
std::uint64_t feed_forward_scratch(const DecoderConfig& config, std::int64_t n);
std::uint64_t mixture_scratch(const DecoderConfig& config, std::int64_t n);
std::uint64_t draft_scratch(const DecoderConfig& config, std::int64_t n);

/// Cosines and sines of all rows' positions, into scratch.rope.
void rope_rows(const LayerStep& step, const float* divisors);

/// `index` counts the attention layers of the model (the layer of a KV page); the draft layer's is
/// their number.
void attention_layer(const LayerStep& step, const AttentionWeights& weights, std::int64_t index);
/// Its halves. Normalises and rotates k [rows, kv_heads, head_dim] in place; stores k and v.
void store_keys(const LayerStep& step, const AttentionWeights& weights, std::int64_t index,
                float* k, const float* v);
/// From the projected q [rows, heads, (query, gate), head_dim], changed in place, to scratch.out;
/// y [rows, heads, head_dim] is overwritten.
void attend(const LayerStep& step, const AttentionWeights& weights, std::int64_t index, float* q,
            float* y);

/// `index` counts the recurrent layers.
void delta_net_layer(const LayerStep& step, const DeltaNetWeights& weights, std::int64_t index);
/// Applies the first `rows` rows on trial to the state of recurrent layer `index`.
void keep_delta_net(const LayerStep& step, DecoderSequence& sequence, std::int64_t index,
                    std::int64_t rows);

void feed_forward(const LayerStep& step, FeedForward kind, const DecoderLayer& layer);
/// The router, the chosen experts and the shared one (mixture.cc), of n rows.
void mixture_feed_forward(const LayerStep& step, const MixtureWeights& weights, std::int64_t n);

}  // namespace ponder::models
