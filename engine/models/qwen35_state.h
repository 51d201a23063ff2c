#pragma once
// One sequence of a qwen35 model: attention KV, recurrent state and convolution tail.
#include <span>

#include "engine/models/kv_cache.h"
#include "engine/models/model.h"
#include "engine/models/qwen35_config.h"

namespace ponder::models {

class Qwen35State final : public SequenceState {
 public:
  Qwen35State(const Qwen35Config& config, KvType kv, std::int64_t n_ctx);

  /// Bytes of the recurrent state and the convolution tails.
  static std::uint64_t state_bytes(const Qwen35Config& config);
  static kernels::KvShape kv_shape(const Qwen35Config& config, KvType kv);

  std::int64_t length() const override { return length_; }
  std::int64_t trial() const override { return 0; }
  void clear() override;

  /// Room for `n` more tokens; the first call takes the memory.
  Result<void> prepare(std::int64_t n);
  void advance(std::int64_t n) { length_ += n; }

  KvCache& kv() { return kv_; }
  /// Of recurrent layer number `index` (attention layers not counted), in the layout of
  /// kernels/ops/gated_delta.h and conv_silu.h.
  float* recurrent(std::int64_t index);  ///< [v_heads, dk / 16, dk, 16]
  float* conv_tail(std::int64_t index);  ///< [3, conv_dim]

 private:
  std::int64_t layers_;
  std::size_t recurrent_floats_;  ///< of a layer
  std::size_t tail_floats_;
  std::int64_t length_ = 0;
  KvCache kv_;
  kernels::Arena arena_;
  std::span<float> recurrent_;
  std::span<float> tails_;
};

}  // namespace ponder::models
