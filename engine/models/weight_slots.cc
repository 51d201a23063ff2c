#include "engine/models/weight_slots.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "engine/base/check.h"
#include "kernels/ops/conv_silu.h"

namespace ponder::models {
namespace {

constexpr std::uint64_t kSlabBytes = 1u << 20;

std::uint64_t elements(const WeightSlot& slot) {
  std::uint64_t n = 1;
  for (const std::uint64_t extent : slot.extents)
    n *= extent;
  return n;
}

const artifact::TensorInfo* find(const artifact::Gguf& file, const WeightSlot& slot) {
  const artifact::TensorInfo* info = file.find(slot.name);
  return info == nullptr && !slot.other_name.empty() ? file.find(slot.other_name) : info;
}

/// {4, 1, 512} and {4, 512} are the same tensor.
std::vector<std::uint64_t> without_ones(const std::vector<std::uint64_t>& extents) {
  std::vector<std::uint64_t> out;
  std::copy_if(extents.begin(), extents.end(), std::back_inserter(out),
               [](std::uint64_t e) { return e != 1; });
  return out;
}

bool same_shape(const artifact::TensorInfo& info, const WeightSlot& slot) {
  if (slot.extents.size() >= 2 && !slot.conv_taps) return info.extents == slot.extents;
  return without_ones(info.extents) == without_ones(slot.extents);
}

Result<void> load_vector(const artifact::Gguf& file, const artifact::TensorInfo& info,
                         const WeightSlot& slot, kernels::Arena& arena) {
  std::vector<std::byte> stored(info.bytes);
  TRY_VOID(file.read(info, stored));
  const std::uint64_t count = elements(slot);
  const auto out = arena.take_array<float>(count);
  if (slot.conv_taps) {
    std::vector<float> decoded(count);
    kernels::decode(info.type, stored.data(), static_cast<std::int64_t>(count), decoded.data());
    kernels::conv_taps(decoded.data(), static_cast<std::int64_t>(count / 4), out.data());
  } else {
    kernels::decode(info.type, stored.data(), static_cast<std::int64_t>(count), out.data());
  }
  *slot.vector = out.data();
  return {};
}

Result<void> load_scale(const artifact::Gguf& file, const artifact::TensorInfo& info,
                        std::uint64_t index, kernels::Weight& weight) {
  const artifact::TensorInfo* scale = file.find(scale_name(info.name));
  if (scale == nullptr) return {};
  const std::uint64_t count = scale->bytes / sizeof(float);
  return file.read_part(*scale, (count == 1 ? 0 : index) * sizeof(float),
                        std::span(reinterpret_cast<std::byte*>(&weight.scale), sizeof(float)));
}

/// Number `index` of the matrices [cols, rows] that the tensor holds.
Result<void> load_matrix(const artifact::Gguf& file, const artifact::TensorInfo& info,
                         const WeightSlot& slot, std::uint64_t index, kernels::Weight& weight,
                         kernels::Arena& arena, const kernels::Stream& stream) {
  weight.type = info.type;
  weight.cols = static_cast<std::int64_t>(slot.extents[0]);
  weight.rows = static_cast<std::int64_t>(slot.extents[1]);
  std::byte* memory =
      arena.take(kernels::Weight::packed_bytes(weight.type, weight.rows, weight.cols));
  weight.data = memory;
  TRY_VOID(load_scale(file, info, index, weight));

  const std::uint64_t row_bytes = kernels::Weight::source_row_bytes(weight.type, weight.cols);
  const std::uint64_t start = index * static_cast<std::uint64_t>(weight.rows) * row_bytes;
  constexpr std::int64_t kPanel = kernels::Weight::kPanelRows;
  const std::int64_t slab_rows =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(kSlabBytes / (row_bytes * kPanel))) *
      kPanel;
  const std::int64_t slabs = (weight.rows + slab_rows - 1) / slab_rows;
  const std::int64_t workers = std::min<std::int64_t>(slabs, stream.threads());
  std::vector<std::vector<std::byte>> buffers(static_cast<std::size_t>(workers));
  for (auto& buffer : buffers)
    buffer.resize(static_cast<std::size_t>(std::min(slab_rows, weight.rows)) * row_bytes);
  std::mutex mutex;
  Result<void> outcome;
  stream.parallel_for(workers, [&](std::int64_t worker) {
    std::vector<std::byte>& buffer = buffers[static_cast<std::size_t>(worker)];
    for (std::int64_t slab = worker; slab < slabs; slab += workers) {
      const std::int64_t first = slab * slab_rows;
      const std::int64_t count = std::min(slab_rows, weight.rows - first);
      const std::span<std::byte> rows(buffer.data(), static_cast<std::size_t>(count) * row_bytes);
      if (auto read =
              file.read_part(info, start + static_cast<std::uint64_t>(first) * row_bytes, rows);
          !read) {
        const std::lock_guard lock(mutex);
        outcome = std::move(read);
        return;
      }
      kernels::pack_rows(weight, memory, first, count, rows.data());
    }
  });
  return outcome;
}

}  // namespace

std::string scale_name(std::string_view name) {
  constexpr std::string_view kWeight = ".weight";
  if (!name.ends_with(kWeight)) return {};
  name.remove_suffix(kWeight.size());
  return std::string(name) + ".scale";
}

std::vector<std::string> check_slots(const artifact::Gguf& file,
                                     const std::vector<WeightSlot>& slots) {
  std::vector<std::string> out;
  std::set<std::string_view> told;  // types
  for (const WeightSlot& slot : slots) {
    const artifact::TensorInfo* info = find(file, slot);
    if (info != nullptr) {
      if (!same_shape(*info, slot))
        out.push_back(fmt::format("Tensor {} has the shape [{}] instead of [{}].", info->name,
                                  fmt::join(info->extents, ", "), fmt::join(slot.extents, ", ")));
      const artifact::TensorInfo* scale = file.find(scale_name(info->name));
      const std::uint64_t bytes = slot.experts != nullptr ? 4 * slot.extents.back() : 4;
      if (scale != nullptr && slot.vector == nullptr &&
          (scale->type != kernels::DType::F32 || (scale->bytes != 4 && scale->bytes != bytes)))
        out.push_back(fmt::format("Tensor {} must be one F32 number for each matrix of {}.",
                                  scale->name, info->name));
      continue;
    }
    const auto& foreign = file.foreign_tensors();
    const auto found =
        std::find_if(foreign.begin(), foreign.end(), [&](const artifact::ForeignTensor& t) {
          return t.name == slot.name || (!slot.other_name.empty() && t.name == slot.other_name);
        });
    if (found == foreign.end())
      out.push_back(fmt::format("Tensor {} is missing.", slot.name));
    else if (told.insert(found->type).second)
      out.push_back(fmt::format(
          "Tensor {} has type {}, which this build cannot compute; use a file of another type, for "
          "example Q4_K_M, Q6_K, Q8_0, IQ4_XS or, where it must be small, Q3_K_M or Q2_K.",
          found->name, found->type));
  }
  return out;
}

std::uint64_t slot_bytes(const artifact::Gguf& file, const std::vector<WeightSlot>& slots) {
  std::uint64_t total = 0;
  for (const WeightSlot& slot : slots) {
    const artifact::TensorInfo* info = find(file, slot);
    if (slot.vector != nullptr) {
      total += kernels::Arena::padded(elements(slot) * sizeof(float));
    } else if (slot.matrix != nullptr || slot.experts != nullptr) {
      CHECK(info != nullptr);
      const std::uint64_t count = slot.experts != nullptr ? slot.extents[2] : 1;
      total += count * kernels::Arena::padded(kernels::Weight::packed_bytes(
                           info->type, static_cast<std::int64_t>(slot.extents[1]),
                           static_cast<std::int64_t>(slot.extents[0])));
    }
  }
  return total;
}

kernels::MatMulColumns slot_columns(const artifact::Gguf& file,
                                    const std::vector<WeightSlot>& slots) {
  kernels::MatMulColumns out;
  for (const WeightSlot& slot : slots) {
    if (slot.matrix == nullptr && slot.experts == nullptr) continue;
    const artifact::TensorInfo* info = find(file, slot);
    CHECK_MSG(info != nullptr, slot.name);
    out.add(info->type, static_cast<std::int64_t>(slot.extents[0]));
  }
  return out;
}

Result<void> load_slots(const artifact::Gguf& file, const std::vector<WeightSlot>& slots,
                        kernels::Arena& arena, const kernels::Stream& stream) {
  for (const WeightSlot& slot : slots) {
    const artifact::TensorInfo* info = find(file, slot);
    CHECK_MSG(info != nullptr, slot.name);
    if (slot.vector != nullptr) TRY_VOID(load_vector(file, *info, slot, arena));
    if (slot.matrix != nullptr)
      TRY_VOID(load_matrix(file, *info, slot, 0, *slot.matrix, arena, stream));
    if (slot.experts != nullptr) {
      slot.experts->resize(slot.extents[2]);
      for (std::uint64_t e = 0; e < slot.extents[2]; ++e)
        TRY_VOID(load_matrix(file, *info, slot, e, (*slot.experts)[e], arena, stream));
    }
  }
  return {};
}

}  // namespace ponder::models
