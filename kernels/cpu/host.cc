// What ops need at load or once a step, in double or by plain copying: not worth a kernel.
#include <fmt/format.h>

#include <cmath>

#include "engine/base/check.h"
#include "kernels/cpu/kv_layout.h"
#include "kernels/cpu/matmul.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/conv_silu.h"
#include "kernels/ops/rope.h"

namespace ponder::kernels {

std::size_t matmul_workspace_bytes(std::int64_t n, const MatMulColumns& columns) {
  const std::int64_t blocks = (columns.quantised + 31) / 32 * n * kTokenBlockBytes;
  return static_cast<std::size_t>((blocks + 63) / 64 * 64 + n * columns.floats * 4);
}

bool kv_shape_supported(const KvShape& shape) {
  std::int64_t unit = 16;
  if (shape.element == KvElement::q8_0) unit = 32;
  if (shape.element == KvElement::r4) unit = 64;
  return shape.kv_heads > 0 && shape.head_dim > 0 && shape.head_dim <= 256 &&
         shape.head_dim % unit == 0;
}

std::string kv_shape_refusal(const KvShape& shape) {
  const auto can = [&](KvElement element) {
    return kv_shape_supported({element, shape.kv_heads, shape.head_dim});
  };
  if (kv_shape_supported(shape)) return {};
  if (!can(KvElement::f16))
    return fmt::format(
        "attention takes heads of at most 256 values, a multiple of 16; this model's have {}",
        shape.head_dim);
  const bool r4 = shape.element == KvElement::r4;
  return fmt::format(
      "{} keys and values need heads of a multiple of {} values; this model's have {}: use {}",
      r4 ? "r4" : "q8_0", r4 ? 64 : 32, shape.head_dim,
      r4 && can(KvElement::q8_0) ? "q8_0 or f16" : "f16");
}

std::size_t kv_block_bytes(const KvShape& shape) {
  CHECK(kv_shape_supported(shape));
  return static_cast<std::size_t>(shape.kv_heads * kv_layout::head_bytes(shape));
}

void conv_taps(const float* weight, std::int64_t channels, float* taps) {
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t j = 0; j < 4; ++j)
      taps[j * channels + c] = weight[c * 4 + j];
}

void rope_table(std::int64_t first_position, std::int64_t n, std::int64_t rot, double theta,
                float* table, const float* divisors) {
  CHECK(rot > 0 && rot % 2 == 0 && theta > 0.0);
  const std::int64_t half = rot / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rot)) /
        (divisors != nullptr ? static_cast<double>(divisors[i]) : 1.0);
    for (std::int64_t t = 0; t < n; ++t) {
      const double angle = static_cast<double>(first_position + t) * frequency;
      table[t * rot + i] = static_cast<float>(std::cos(angle));
      table[t * rot + half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace ponder::kernels
