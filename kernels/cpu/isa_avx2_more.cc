// The seldom formats' products for Avx2; compiled with that instruction set's flags
// (kernels/CMakeLists.txt).
#include "kernels/cpu/more_products.h"
#if defined(__x86_64__)
#include "kernels/cpu/simd_avx2.h"

namespace ponder::kernels {
void more_products_avx2(const PanelProduct& op) {
  MoreProducts<Avx2>::run(op);
}
}  // namespace ponder::kernels
#endif
