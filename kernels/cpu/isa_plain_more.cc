// The seldom formats' products for Plain.
#define PONDER_SMALL_CODE
#include "kernels/cpu/more_products.h"
#include "kernels/cpu/simd_plain.h"

namespace ponder::kernels {

void more_products_plain(const PanelProduct& op) {
  MoreProducts<Plain>::run(op);
}

}  // namespace ponder::kernels
