#pragma once
// All op contracts, for callers of an OpTable.
#include "kernels/core/op_table.h"
#include "kernels/ops/add.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/conv_silu.h"
#include "kernels/ops/gated_delta.h"
#include "kernels/ops/l2_norm.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/mixture.h"
#include "kernels/ops/rms_norm.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/sigmoid_gate.h"
#include "kernels/ops/swiglu.h"
