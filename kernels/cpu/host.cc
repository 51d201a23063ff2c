// What ops need at load or once a step, in double or by plain copying: not worth a kernel.
#include <cmath>

#include "engine/base/check.h"
#include "kernels/cpu/matmul.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/conv_silu.h"
#include "kernels/ops/rope.h"

namespace ponder::kernels {

std::size_t matmul_workspace_bytes(std::int64_t n, std::int64_t cols) {
  const std::int64_t quantised = ((cols + 31) / 32 * n * kTokenBlockBytes + 63) / 64 * 64;
  return static_cast<std::size_t>(quantised + n * cols * 4);
}

std::size_t kv_block_bytes(const KvShape& shape) {
  const std::int64_t element = shape.element == KvElement::f32 ? 4 : 2;
  return static_cast<std::size_t>(2 * kKvBlockPositions * shape.kv_heads * shape.head_dim *
                                  element);
}

void conv_taps(const float* weight, std::int64_t channels, float* taps) {
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t j = 0; j < 4; ++j)
      taps[j * channels + c] = weight[c * 4 + j];
}

void rope_table(std::int64_t first_position, std::int64_t n, std::int64_t rot, double theta,
                float* table) {
  CHECK(rot > 0 && rot % 2 == 0 && theta > 0.0);
  const std::int64_t half = rot / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rot));
    for (std::int64_t t = 0; t < n; ++t) {
      const double angle = static_cast<double>(first_position + t) * frequency;
      table[t * rot + i] = static_cast<float>(std::cos(angle));
      table[t * rot + half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace ponder::kernels
