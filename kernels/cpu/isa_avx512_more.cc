// The seldom formats' products for Avx512; compiled with that instruction set's flags
// (kernels/CMakeLists.txt).
#include "kernels/cpu/more_products.h"
#if defined(__x86_64__)
#include "kernels/cpu/simd_avx512.h"

namespace ponder::kernels {
void more_products_avx512(const PanelProduct& op) {
  MoreProducts<Avx512>::run(op);
}
}  // namespace ponder::kernels
#endif
