#include "engine/models/qwen35_state.h"

#include <algorithm>

#include "engine/base/check.h"

namespace ponder::models {
namespace {

std::size_t recurrent_floats(const Qwen35Config& c) {
  return static_cast<std::size_t>(c.v_heads * c.dk * c.dk);
}
std::size_t tail_floats(const Qwen35Config& c) {
  return static_cast<std::size_t>(3 * c.conv_dim());
}

}  // namespace

Qwen35State::Qwen35State(const Qwen35Config& config, KvType kv, std::int64_t n_ctx)
    : layers_(config.recurrent_layers()),
      recurrent_floats_(recurrent_floats(config)),
      tail_floats_(tail_floats(config)),
      kv_(kv_shape(config, kv), config.attention_layers(), n_ctx) {}

kernels::KvShape Qwen35State::kv_shape(const Qwen35Config& config, KvType kv) {
  return {kv == KvType::f32 ? kernels::KvElement::f32 : kernels::KvElement::f16, config.kv_heads,
          config.head_dim};
}

std::uint64_t Qwen35State::state_bytes(const Qwen35Config& config) {
  const auto layers = static_cast<std::size_t>(config.recurrent_layers());
  return kernels::Arena::padded(layers * recurrent_floats(config) * sizeof(float)) +
         kernels::Arena::padded(layers * tail_floats(config) * sizeof(float));
}

void Qwen35State::clear() {
  length_ = 0;
  std::fill(recurrent_.begin(), recurrent_.end(), 0.0f);
  std::fill(tails_.begin(), tails_.end(), 0.0f);
}

Result<void> Qwen35State::prepare(std::int64_t n) {
  const auto layers = static_cast<std::size_t>(layers_);
  if (arena_.size() == 0 && layers > 0) {
    const std::size_t states = layers * recurrent_floats_, tails = layers * tail_floats_;
    TRY(arena_, kernels::Arena::make(kernels::Arena::padded(states * sizeof(float)) +
                                     kernels::Arena::padded(tails * sizeof(float))));
    recurrent_ = arena_.take_array<float>(states);
    tails_ = arena_.take_array<float>(tails);
  }
  return kv_.grow(length_ + n);
}

float* Qwen35State::recurrent(std::int64_t index) {
  CHECK(index >= 0 && index < layers_);
  return recurrent_.data() + static_cast<std::size_t>(index) * recurrent_floats_;
}
float* Qwen35State::conv_tail(std::int64_t index) {
  CHECK(index >= 0 && index < layers_);
  return tails_.data() + static_cast<std::size_t>(index) * tail_floats_;
}

}  // namespace ponder::models
