#pragma once
// Causal depthwise convolution of 4 taps without bias, then SiLU:
//
//   u = sum_{j=0..3} w[j] x_{t-3+j} per channel;   y_t = u / (1 + exp(-u))
//
// The three inputs before the first row come from `tail` (zeros at the start of a sequence), which
// is left holding the last three inputs (or as it was, with leave_tail). y must not overlap x or
// tail.
#include <cstdint>

namespace ponder::kernels {

struct ConvSilu {
  const float* x = nullptr;     ///< [n, channels]
  const float* taps = nullptr;  ///< [4, channels]: conv_taps() of the weight as stored
  float* tail = nullptr;        ///< [3, channels], oldest first, read and written
  float* y = nullptr;           ///< [n, channels], written
  std::int64_t n = 0;
  std::int64_t channels = 0;
  std::int64_t x_stride = 0;  ///< floats from row to row; 0: channels
  std::int64_t y_stride = 0;
  bool leave_tail = false;  ///< `tail` is only read
};

/// From GGUF's ssm_conv1d order [channels, 4] to `taps` [4, channels].
void conv_taps(const float* weight, std::int64_t channels, float* taps);

}  // namespace ponder::kernels
