// The kernels in standard C++.
#include "kernels/cpu/simd_plain.h"
#include "kernels/cpu/table.h"

namespace ponder::kernels {

const OpTable* plain_table() {
  static constexpr OpTable kTable = cpu_table<Plain>("plain");
  return &kTable;
}

}  // namespace ponder::kernels
