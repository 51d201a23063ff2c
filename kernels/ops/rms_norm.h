#pragma once
// rms_norm:       y = x * (1 / sqrt(mean(x^2) + eps)) * w
// gated_rms_norm: y = x * (1 / sqrt(mean(x^2) + eps)) * w * silu(z),   silu(z) = z / (1 + exp(-z))
// for each of `rows` rows of `cols`; statistics in f32 over the whole row, w as stored. y may be x
// (same stride). Strides are in floats, 0 means cols.
#include <cstdint>

namespace ponder::kernels {

struct RmsNorm {
  const float* x = nullptr;  ///< [rows, cols]
  const float* w = nullptr;  ///< [cols]
  float* y = nullptr;        ///< [rows, cols], written
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  float eps = 1e-6f;
  std::int64_t x_stride = 0;
  std::int64_t y_stride = 0;
};

struct GatedRmsNorm {
  const float* x = nullptr;  ///< [rows, cols]
  const float* w = nullptr;  ///< [cols]
  const float* z = nullptr;  ///< [rows, cols]
  float* y = nullptr;        ///< [rows, cols], written
  std::int64_t rows = 0;     ///< tokens * heads
  std::int64_t cols = 0;
  float eps = 1e-6f;
  std::int64_t x_stride = 0;
  std::int64_t z_stride = 0;
  std::int64_t y_stride = 0;
};

}  // namespace ponder::kernels
