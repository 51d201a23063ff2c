// The kernels in standard C++.
#define PONDER_SMALL_CODE
#include "kernels/cpu/more_products.h"
#include "kernels/cpu/simd_plain.h"
#include "kernels/cpu/table.h"

namespace ponder::kernels {

const OpTable* plain_table() {
  static constexpr OpTable kTable = cpu_table<Plain, more_products_plain>("plain");
  return &kTable;
}

}  // namespace ponder::kernels
