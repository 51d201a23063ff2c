// The kernels for Avx2; compiled with that instruction set's flags (kernels/CMakeLists.txt).
#include "kernels/cpu/more_products.h"
#include "kernels/cpu/table.h"
#if defined(__x86_64__)
#include "kernels/cpu/simd_avx2.h"

namespace ponder::kernels {
const OpTable* avx2_table() {
  static constexpr OpTable kTable = cpu_table<Avx2, more_products_avx2>("avx2");
  return &kTable;
}
}  // namespace ponder::kernels
#else
namespace ponder::kernels {
const OpTable* avx2_table() {
  return nullptr;
}
}  // namespace ponder::kernels
#endif
