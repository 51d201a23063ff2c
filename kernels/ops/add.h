#pragma once
// y = a + b elementwise. y may be a or b.
#include <cstdint>

namespace ponder::kernels {

struct Add {
  const float* a = nullptr;  ///< [count]
  const float* b = nullptr;  ///< [count]
  float* y = nullptr;        ///< [count], written
  std::int64_t count = 0;
};

}  // namespace ponder::kernels
