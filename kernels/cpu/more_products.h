#pragma once
// The products of the formats that are met seldom, in a translation unit of their own and for tiles
// of 1, 2, 4 and 8 tokens only (a tile of 7 is 4 + 2 + 1), which halves what a format costs the
// compiler. A token's sums are the same in every split.
#include "engine/base/check.h"
#include "kernels/cpu/products.h"

namespace ponder::kernels {

template <class S>
struct MoreProducts {
  using P = Products<S>;

  static void run(const PanelProduct& op) { tokens<S::kTile>(op, 0); }

 private:
  template <int T>
  static void tokens(const PanelProduct& op, std::int64_t first) {
    for (; op.width - first >= T; first += T)
      product<T>(op, first);
    if constexpr (T > 1) tokens<T / 2>(op, first);
  }

  template <int T>
  static void product(const PanelProduct& op, std::int64_t first) {
    typename S::F sum[T];
    PONDER_UNROLL
    for (int t = 0; t < T; ++t)
      sum[t] = S::zero();
    const auto tile = PartOfTile<T>::of(op.tile, op.width, first);
    switch (op.type) {
      case DType::Q4_0:
        P::template panel<typename P::Q4_0, 32>(op.panel, op.cols, tile, sum);
        break;
      case DType::Q4_1:
        P::template panel<typename P::Q4_1, 32>(op.panel, op.cols, tile, sum);
        break;
      case DType::Q5_0:
        P::template panel<typename P::Q5_0, 32>(op.panel, op.cols, tile, sum);
        break;
      case DType::Q5_1:
        P::template panel<typename P::Q5_1, 32>(op.panel, op.cols, tile, sum);
        break;
      case DType::IQ4_NL:
        P::template panel<typename P::Iq4Nl, 32>(op.panel, op.cols, tile, sum);
        break;
      case DType::MXFP4:
        P::template panel<typename P::Mxfp4, 32>(op.panel, op.cols, tile, sum);
        break;
      case DType::NVFP4:
        P::template panel<typename P::Nvfp4, 64>(op.panel, op.cols, tile, sum);
        break;
      case DType::Q2_K:
        P::template panel<typename P::Q2_K, 256>(op.panel, op.cols, tile, sum);
        break;
      case DType::Q3_K:
        P::template panel<typename P::Q3_K, 256>(op.panel, op.cols, tile, sum);
        break;
      case DType::IQ4_XS:
        P::template panel<typename P::Iq4Xs, 256>(op.panel, op.cols, tile, sum);
        break;
      default:
        CHECK_MSG(false, "a format of matmul.h");
    }
    PONDER_UNROLL
    for (int t = 0; t < T; ++t)
      S::store(op.sums + (first + t) * 16, sum[t]);
  }
};

/// One for each translation unit more_<name>.cc.
void more_products_plain(const PanelProduct& op);
void more_products_avx2(const PanelProduct& op);
void more_products_avx512(const PanelProduct& op);

}  // namespace ponder::kernels
