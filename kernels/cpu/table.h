#pragma once
// The op table of one instruction set: every kernel template instantiated for the lanes S. A
// kernel is its file and a row here (and in core/op_list.inc).
#include "kernels/core/op_table.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/conv_silu.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/gated_delta.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/mixture.h"
#include "kernels/cpu/norms.h"

namespace ponder::kernels {

/// `More`: the products of more_products.h for the same lanes.
template <class S, PanelProductFunction More>
constexpr OpTable cpu_table(const char* name) {
  OpTable table;
  table.name = name;
  table.add = ElementwiseCpu<S>::add;
  table.attention = AttentionCpu<S>::run;
  table.conv_silu = ConvSiluCpu<S>::run;
  table.gated_delta = GatedDeltaCpu<S>::run;
  table.gated_delta_gates = GatedDeltaCpu<S>::gates;
  table.gated_rms_norm = NormsCpu<S>::gated_rms_norm;
  table.kv_write = AttentionCpu<S>::write;
  table.l2_norm = NormsCpu<S>::l2_norm;
  table.matmul = MatMulCpu<S, More>::run;
  table.mix = MixtureCpu<S>::mix;
  table.rms_norm = NormsCpu<S>::rms_norm;
  table.rope = ElementwiseCpu<S>::rope;
  table.route = MixtureCpu<S>::route;
  table.sigmoid_gate = ElementwiseCpu<S>::sigmoid_gate;
  table.swiglu = ElementwiseCpu<S>::swiglu;
  return table;
}

/// One for each translation unit isa_<name>.cc; null where it was not built.
const OpTable* plain_table();
const OpTable* avx2_table();
const OpTable* avx512_table();

}  // namespace ponder::kernels
