// The kernels for Avx512; compiled with that instruction set's flags (kernels/CMakeLists.txt).
#include "kernels/cpu/more_products.h"
#include "kernels/cpu/table.h"
#if defined(__x86_64__)
#include "kernels/cpu/simd_avx512.h"

namespace ponder::kernels {
const OpTable* avx512_table() {
  static constexpr OpTable kTable = cpu_table<Avx512, more_products_avx512>("avx512");
  return &kTable;
}
}  // namespace ponder::kernels
#else
namespace ponder::kernels {
const OpTable* avx512_table() {
  return nullptr;
}
}  // namespace ponder::kernels
#endif
