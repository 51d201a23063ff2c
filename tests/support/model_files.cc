#include "tests/support/model_files.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/artifact/gguf.h"
#include "engine/artifact/gguf_format.h"
#include "engine/base/check.h"
#include "kernels/core/weight.h"
#include "kernels/quant/float.h"
#include "tests/support/block_encoder.h"

namespace ponder::testing {
namespace {

using kernels::DType;

/// Walks a file that is known to be sound.
class Walk {
 public:
  explicit Walk(std::string_view file) : file_(file) {}
  template <class T>
  T number() {
    T value;
    CHECK(at_ + sizeof value <= file_.size());
    std::memcpy(&value, file_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  void skip_value(std::uint32_t type) {
    if (type == 8) {
      at_ += number<std::uint64_t>();
    } else if (type == 9) {
      const auto element = number<std::uint32_t>();
      const auto count = number<std::uint64_t>();
      for (std::uint64_t i = 0; i < count; ++i)
        skip_value(element);
    } else {
      at_ += artifact::value_bytes(static_cast<artifact::ValueType>(type));
    }
  }
  std::size_t at() const { return at_; }
  void seek(std::size_t at) { at_ = at; }

 private:
  std::string_view file_;
  std::size_t at_ = 0;
};

/// All pairs of `file` as they stand there.
void copy_pairs(std::string_view file, GgufWriter& out) {
  Walk walk(file);
  walk.seek(16);
  const auto pairs = walk.number<std::uint64_t>();
  const std::size_t begin = walk.at();
  for (std::uint64_t i = 0; i < pairs; ++i) {
    walk.skip_value(8);  // the key
    walk.skip_value(walk.number<std::uint32_t>());
  }
  out.add_pairs(pairs, file.substr(begin, walk.at() - begin));
}

std::uint16_t bf16_of_f32(float value) {
  const std::uint32_t bits = kernels::bits_of_float(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <class Decide>
std::string rewrite(const std::filesystem::path& path, const TensorEdit& edit,
                    const Decide& target_of) {
  auto file = artifact::Gguf::open(path);
  CHECK_MSG(file.has_value(), file ? "" : file.error().message);
  GgufWriter out;
  copy_pairs(read_file(path), out);
  for (const artifact::TensorInfo& info : (*file)->tensors()) {
    std::vector<std::byte> stored(info.bytes);
    CHECK((*file)->read(info, stored).has_value());
    const DType target = target_of(info);
    std::string data(reinterpret_cast<const char*>(stored.data()), stored.size());
    if (target != info.type || (edit && target == DType::F32)) {
      std::uint64_t count = 1;
      for (const std::uint64_t extent : info.extents)
        count *= extent;
      std::vector<float> values(count);
      kernels::decode(info.type, stored.data(), static_cast<std::int64_t>(count), values.data());
      if (edit) edit(info.name, values);
      data = encode(target, values);
    }
    out.tensors.push_back(
        {info.name, info.extents, kernels::format(target).gguf_id, std::move(data)});
  }
  return out.bytes();
}

}  // namespace

std::string encode(DType type, std::span<const float> values) {
  std::string out;
  switch (type) {
    case DType::F32:
      return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
    case DType::F16:
      for (const float x : values)
        out += raw(kernels::f16_of_f32(x));
      return out;
    case DType::BF16:
      for (const float x : values)
        out += raw(bf16_of_f32(x));
      return out;
    case DType::Q8_0:
      CHECK(values.size() % 32 == 0);
      for (std::size_t at = 0; at < values.size(); at += 32) {
        float largest = 0;
        for (const float x : values.subspan(at, 32))
          largest = std::max(largest, std::fabs(x));
        const float d = largest / 127;
        out += raw(kernels::f16_of_f32(d));
        for (const float x : values.subspan(at, 32))
          out += raw(static_cast<std::int8_t>(d > 0 ? std::lround(x / d) : 0));
      }
      return out;
    default:
      return encode_blocks(type, values);
  }
}

std::string expand_gguf(const std::filesystem::path& path, DType target, const TensorEdit& edit) {
  return rewrite(path, edit, [&](const artifact::TensorInfo& info) {
    return kernels::format(info.type).block_elements > 1 ? target : info.type;
  });
}

std::string edit_gguf(const std::filesystem::path& path, const TensorEdit& edit) {
  return rewrite(path, edit, [](const artifact::TensorInfo& info) { return info.type; });
}

}  // namespace ponder::testing
