#include "tests/support/block_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/base/check.h"
#include "kernels/core/weight.h"
#include "kernels/quant/float.h"
#include "kernels/quant/nvfp4.h"

namespace ponder::testing {
namespace {

using kernels::DType;

/// One block; where the bits of an element's code lie says kernels/quant/<format>.h.
class Block {
 public:
  explicit Block(DType type) : type_(type), bytes_(kernels::format(type).block_bytes) {}

  const std::vector<std::byte>& bytes() const { return bytes_; }

  int codes() const {
    switch (type_) {
      case DType::Q2_K:
        return 4;
      case DType::Q3_K:
        return 8;
      case DType::Q5_0:
      case DType::Q5_1:
      case DType::Q5_K:
        return 32;
      case DType::Q6_K:
        return 64;
      default:
        return 16;
    }
  }

  void set_code(std::size_t i, unsigned q) {
    const std::size_t half = i / 128, lane = i % 32, group = i / 32, quarter = group % 4;
    switch (type_) {
      case DType::Q4_0:
      case DType::IQ4_NL:
        return put(2 + i % 16, 4 * (i / 16), 4, q);
      case DType::Q4_1:
        return put(4 + i % 16, 4 * (i / 16), 4, q);
      case DType::MXFP4:
        return put(1 + i % 16, 4 * (i / 16), 4, q);
      case DType::NVFP4:
        return put(4 + 8 * (i / 16) + i % 8, 4 * (i % 16 / 8), 4, q);
      case DType::IQ4_XS:
        return put(8 + 16 * group + i % 16, 4 * (lane / 16), 4, q);
      case DType::Q5_0:
        put(2 + i / 8, i % 8, 1, q >> 4);
        return put(6 + i % 16, 4 * (i / 16), 4, q);
      case DType::Q5_1:
        put(4 + i / 8, i % 8, 1, q >> 4);
        return put(8 + i % 16, 4 * (i / 16), 4, q);
      case DType::Q2_K:
        return put(16 + 32 * half + lane, 2 * quarter, 2, q);
      case DType::Q3_K:
        put(lane, group, 1, q >> 2);
        return put(32 + 32 * half + lane, 2 * quarter, 2, q);
      case DType::Q4_K:
        return put(16 + 32 * (group / 2) + lane, 4 * (group % 2), 4, q);
      case DType::Q5_K:
        put(16 + lane, group, 1, q >> 4);
        return put(48 + 32 * (group / 2) + lane, 4 * (group % 2), 4, q);
      case DType::Q6_K:
        put(128 + 32 * half + lane, 2 * quarter, 2, q >> 4);
        return put(64 * half + 32 * (quarter % 2) + lane, 4 * (quarter / 2), 4, q);
      default:
        CHECK_MSG(false, "a format without codes");
    }
  }

  /// So that the codes reach from -largest to largest.
  void set_scales(std::span<const float> values) {
    const float largest = largest_of(values);
    const float steps = static_cast<float>(codes() - 1);
    switch (type_) {
      case DType::Q4_0:
      case DType::Q5_0:
        return half(0, 2 * largest / (steps - 1));
      case DType::IQ4_NL:
        return half(0, largest / 113);
      case DType::Q4_1:
      case DType::Q5_1:
        half(0, 2 * largest / steps);
        return half(2, -largest);
      case DType::IQ4_XS:  // scales of 33 - 32
        fill(2, 2, 0xaa);
        fill(4, 4, 0x11);
        return half(0, largest / 113);
      case DType::Q2_K:  // scale 1, minimum 1
        fill(0, 16, 0x11);
        half(80, 2 * largest / steps);
        return half(82, largest);
      case DType::Q3_K:  // scales of 33 - 32
        fill(96, 8, 0x11);
        fill(104, 4, 0xaa);
        return half(108, 2 * largest / (steps - 1));
      case DType::Q4_K:
      case DType::Q5_K:
        fill(4, 8, 0x01);
        fill(12, 4, 0x11);
        half(0, 2 * largest / steps);
        return half(2, largest);
      case DType::Q6_K:
        fill(192, 16, 1);
        return half(208, 2 * largest / (steps - 1));
      case DType::MXFP4:
        return fill(0, 1, largest > 0 ? 128 + std::ceil(std::log2(largest / 12)) : 0);
      case DType::NVFP4:
        for (std::size_t s = 0; s < 4; ++s) {
          unsigned byte = 0;
          while (byte < 0x7e &&
                 kernels::nvfp4::scale(byte) * 12 < largest_of(values.subspan(16 * s, 16)))
            ++byte;
          fill(s, 1, byte);
        }
        return;
      default:
        CHECK_MSG(false, "a format without scales");
    }
  }

 private:
  static float largest_of(std::span<const float> values) {
    float largest = 0;
    for (const float x : values)
      largest = std::max(largest, std::fabs(x));
    return largest;
  }
  void put(std::size_t byte, std::size_t shift, unsigned width, unsigned value) {
    const unsigned mask = ((1u << width) - 1) << shift;
    const unsigned old = std::to_integer<unsigned>(bytes_[byte]);
    bytes_[byte] = static_cast<std::byte>((old & ~mask) | ((value << shift) & mask));
  }
  void half(std::size_t at, float value) {
    const std::uint16_t bits = kernels::f16_of_f32(value);
    std::memcpy(bytes_.data() + at, &bits, 2);
  }
  void fill(std::size_t at, std::size_t count, double value) {
    std::fill_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at), count,
                static_cast<std::byte>(static_cast<unsigned>(value)));
  }

  DType type_;
  std::vector<std::byte> bytes_;
};

}  // namespace

std::string encode_blocks(DType type, std::span<const float> values) {
  const std::size_t elements = kernels::format(type).block_elements;
  CHECK(values.size() % elements == 0);
  std::string out;
  std::vector<float> decoded(elements);
  for (std::size_t at = 0; at < values.size(); at += elements) {
    const std::span<const float> wanted = values.subspan(at, elements);
    Block block(type);
    block.set_scales(wanted);
    std::vector<unsigned> best(elements);
    std::vector<float> distance(elements, INFINITY);
    for (unsigned q = 0; q < static_cast<unsigned>(block.codes()); ++q) {
      for (std::size_t i = 0; i < elements; ++i)
        block.set_code(i, q);
      kernels::decode(type, block.bytes().data(), static_cast<std::int64_t>(elements),
                      decoded.data());
      for (std::size_t i = 0; i < elements; ++i)
        if (std::fabs(decoded[i] - wanted[i]) < distance[i]) {
          distance[i] = std::fabs(decoded[i] - wanted[i]);
          best[i] = q;
        }
    }
    for (std::size_t i = 0; i < elements; ++i)
      block.set_code(i, best[i]);
    out.append(reinterpret_cast<const char*>(block.bytes().data()), block.bytes().size());
  }
  return out;
}

}  // namespace ponder::testing
