#pragma once
// What a backend can do, as a table of functions generated from op_list.inc. Every entry obeys
// the same rules: it allocates nothing, logs nothing, trusts its arguments (shapes are CHECKed,
// numbers are not), and THE NUMBERS OF A ROW ARE THE SAME BITS whatever other rows, chunk
// boundaries, thread count or (on the CPU) instruction set it is computed with.
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "kernels/core/stream.h"

namespace ponder::kernels {

#define OP(name, arguments) struct arguments;
#include "kernels/core/op_list.inc"
#undef OP

struct OpTable {
  std::string_view name;  ///< "plain", "avx2", "avx512"
#define OP(op, arguments) void (*op)(const Stream&, const arguments&) = nullptr;
#include "kernels/core/op_list.inc"
#undef OP
};

/// The CPU's ops: the named set, or without a name the one PONDER_CPU names, or else the best
/// this processor has. bad_request for an unknown name or a set the processor cannot run. The
/// table lives for ever; thread-safe.
Result<const OpTable*> cpu_ops(std::string_view name = {});

/// The sets this processor can run, plain first.
std::vector<const OpTable*> runnable_cpu_ops();

}  // namespace ponder::kernels
