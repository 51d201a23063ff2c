#pragma once
// The one list that says which tensors a model wants, of which shape, and where they go. Checking a
// file, sizing its memory and loading it all walk this list, so they cannot disagree.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/artifact/gguf.h"
#include "engine/base/error.h"
#include "kernels/core/arena.h"
#include "kernels/core/stream.h"
#include "kernels/core/weight.h"
#include "kernels/ops/matmul.h"

namespace ponder::models {

/// One tensor and its place: `matrix`, `vector` or `experts`, in the hands of whoever owns the
/// weights; with none the tensor is checked and not loaded.
struct WeightSlot {
  std::string name;
  std::vector<std::uint64_t> extents;               ///< exact, first = row length
  kernels::Weight* matrix = nullptr;                ///< kept in the file's precision, packed
  const float** vector = nullptr;                   ///< decoded to f32
  std::vector<kernels::Weight>* experts = nullptr;  ///< extents [cols, rows, experts]: one each
  bool conv_taps = false;       ///< a vector that is stored [channels, 4] and kept [4, channels]
  std::string other_name = {};  ///< accepted instead of `name`
};

/// NAME.scale for NAME.weight, else empty: the tensor with NVFP4's second scale, one f32 or one for
/// each expert, which load_slots reads into Weight::scale where a file has it. NAME.input_scale
/// serves a product of quantised activations that is not done here.
std::string scale_name(std::string_view name);

/// Sentences about slots that the file does not fill: missing, of another shape, or of a type that
/// cannot be computed (told once a type). Empty: all good.
std::vector<std::string> check_slots(const artifact::Gguf& file,
                                     const std::vector<WeightSlot>& slots);

/// Arena bytes that load_slots takes. The slots must have passed check_slots.
std::uint64_t slot_bytes(const artifact::Gguf& file, const std::vector<WeightSlot>& slots);

/// What the rows that the slots' matrices are multiplied with take in a product's workspace.
kernels::MatMulColumns slot_columns(const artifact::Gguf& file,
                                    const std::vector<WeightSlot>& slots);

/// Reads each tensor in slabs on the stream's threads and packs it into the arena, so that never
/// more than one copy and a slab a thread is in memory.
Result<void> load_slots(const artifact::Gguf& file, const std::vector<WeightSlot>& slots,
                        kernels::Arena& arena, const kernels::Stream& stream);

}  // namespace ponder::models
