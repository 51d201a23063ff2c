#pragma once
// attention, kv_write. One part takes some query vectors (row, head) of one KV head and walks all
// blocks they see; kQueries vectors share each load of keys and values.
#include <cstring>

#include "engine/base/check.h"
#include "kernels/cpu/attention_quantised.h"
#include "kernels/cpu/attention_softmax.h"
#include "kernels/cpu/pieces.h"
#include "kernels/cpu/unroll.h"
#include "kernels/ops/attention.h"

namespace ponder::kernels {

struct KvF32 {
  static constexpr std::int64_t kBytes = 4;
  template <class S>
  static typename S::F load(const std::byte* p) {
    return S::load_f32(p);
  }
};
struct KvF16 {
  static constexpr std::int64_t kBytes = 2;
  template <class S>
  static typename S::F load(const std::byte* p) {
    return S::load_f16(p);
  }
};

template <class S>
struct AttentionCpu {
  using F = typename S::F;
  static constexpr std::int64_t kBlock = kKvBlockPositions;
  static constexpr std::int64_t kMaxDim = 256;

  static void check_shape(const KvShape& shape) { CHECK(kv_shape_supported(shape)); }

  static void run(const Stream& stream, const Attention& op) {
    check_shape(op.shape);
    CHECK(op.heads > 0 && op.heads % op.shape.kv_heads == 0 && op.first_position >= 0);
    if (op.n == 0) return;
    CHECK(static_cast<std::int64_t>(op.blocks.size()) * kBlock >= op.first_position + op.n);
    // Query vectors of one KV head: (row, head of its group), rows outermost.
    const std::int64_t group = op.heads / op.shape.kv_heads;
    const std::int64_t width = tile_width(stream, op, group);
    const std::int64_t tiles = (op.n * group + width - 1) / width;
    const std::int64_t cost = (op.first_position + op.n) * op.shape.head_dim * width / 8;
    Pieces<S>::for_ranges(stream, tiles * op.shape.kv_heads, cost,
                          [&](std::int64_t first, std::int64_t last) {
                            for (std::int64_t tile = first; tile < last; ++tile) {
                              const std::int64_t from = tile % tiles * width;
                              const std::int64_t left = op.n * group - from;
                              const auto count = static_cast<int>(left < width ? left : width);
                              switch (op.shape.element) {
                                case KvElement::f32:
                                  choose<KvF32, S::kQueries>(op, tile / tiles, from, count);
                                  break;
                                case KvElement::f16:
                                  choose<KvF16, S::kQueries>(op, tile / tiles, from, count);
                                  break;
                                case KvElement::q8_0:
                                case KvElement::r4:
                                  AttentionQuantisedCpu<S>::run(op, tile / tiles, from, count);
                                  break;
                              }
                            }
                          });
  }

  static void write(const Stream& stream, const KvWrite& op) {
    check_shape(op.shape);
    CHECK(op.first_position >= 0);
    CHECK(static_cast<std::int64_t>(op.blocks.size()) * kBlock >= op.first_position + op.n);
    const std::int64_t dim = op.shape.head_dim;
    const std::int64_t width = op.shape.kv_heads * dim;
    const std::int64_t k_stride = op.k_stride != 0 ? op.k_stride : width;
    const std::int64_t v_stride = op.v_stride != 0 ? op.v_stride : width;
    if (kv_layout::quantised(op.shape.element)) {
      Pieces<S>::for_ranges(stream, op.n, width * 8, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i)
          KvWriteQuantisedCpu<S>::row(op, i, op.k + i * k_stride, op.v + i * v_stride);
      });
      return;
    }
    const std::int64_t element = op.shape.element == KvElement::f32 ? 4 : 2;
    Pieces<S>::for_ranges(stream, op.n, width * 4, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        const std::int64_t position = op.first_position + i, slot = position % kBlock;
        std::byte* block = op.blocks[static_cast<std::size_t>(position / kBlock)];
        for (std::int64_t h = 0; h < op.shape.kv_heads; ++h) {
          std::byte* keys = block + h * 2 * kBlock * dim * element;
          const float* k = op.k + i * k_stride + h * dim;
          const float* v = op.v + i * v_stride + h * dim;
          std::byte* column = keys + (slot / 16 * dim * 16 + slot % 16) * element;
          std::byte* row = keys + (kBlock + slot) * dim * element;
          for (std::int64_t d = 0; d < dim; d += 16) {
            std::byte packed[64];
            put(packed, S::load(k + d), element);
            for (std::int64_t j = 0; j < 16; ++j)
              std::memcpy(column + (d + j) * 16 * element, packed + j * element,
                          static_cast<std::size_t>(element));
            put(row + d * element, S::load(v + d), element);
          }
        }
      }
    });
  }

 private:
  /// Query vectors that share each load. Fewer than possible where threads would go without: no
  /// bit depends on it.
  static std::int64_t tile_width(const Stream& stream, const Attention& op, std::int64_t group) {
    const std::int64_t most = kv_layout::quantised(op.shape.element)
                                  ? AttentionQuantisedCpu<S>::kQueries
                                  : std::int64_t{S::kQueries};
    const std::int64_t threads = stream.pool != nullptr ? stream.pool->threads() : 1;
    const std::int64_t parts = (threads + op.shape.kv_heads - 1) / op.shape.kv_heads;
    const std::int64_t even = (op.n * group + parts - 1) / parts;
    return even < most ? even : most;
  }

  static void put(std::byte* p, F x, std::int64_t element) {
    if (element == 2) {
      S::store_f16(p, x);
    } else {
      float values[16];
      S::store(values, x);
      std::memcpy(p, values, sizeof values);
    }
  }

  template <class Element, int Q>
  static void choose(const Attention& op, std::int64_t kv_head, std::int64_t from, int count) {
    if (count == Q) return queries<Element, Q>(op, kv_head, from);
    if constexpr (Q > 1) choose<Element, Q - 1>(op, kv_head, from, count);
  }

  /// Q query vectors `from`.. of one KV head, with a running maximum m, sum l and output o.
  template <class Element, int Q>
  static void queries(const Attention& op, std::int64_t kv_head, std::int64_t from) {
    const std::int64_t dim = op.shape.head_dim, group = op.heads / op.shape.kv_heads;
    const std::int64_t head_stride = op.q_head_stride != 0 ? op.q_head_stride : dim;
    const std::int64_t row_stride = op.q_row_stride != 0 ? op.q_row_stride : op.heads * head_stride;
    const float scale =
        op.scale != 0.0f ? op.scale : 1.0f / __builtin_sqrtf(static_cast<float>(dim));

    const float* q[Q];
    float* y[Q];
    std::int64_t length[Q];  // positions that the vector sees
    float m[Q], l[Q] = {};
    alignas(64) float o[Q][kMaxDim];
    alignas(64) float p[Q][kBlock];
    std::int64_t longest = 0;
    PONDER_UNROLL
    for (int i = 0; i < Q; ++i) {
      const std::int64_t row = (from + i) / group, head = kv_head * group + (from + i) % group;
      q[i] = op.q + row * row_stride + head * head_stride;
      y[i] = op.y + (row * op.heads + head) * dim;
      length[i] = op.first_position + row + 1;
      if (length[i] > longest) longest = length[i];
      m[i] = -__builtin_inff();
      for (std::int64_t d = 0; d < dim; ++d)
        o[i][d] = 0.0f;
    }

    for (std::int64_t start = 0; start < longest; start += kBlock) {
      const std::byte* keys = op.blocks[static_cast<std::size_t>(start / kBlock)] +
                              kv_head * 2 * kBlock * dim * Element::kBytes;
      const std::byte* values = keys + kBlock * dim * Element::kBytes;
      const std::int64_t filled = longest - start < kBlock ? longest - start : kBlock;
      scores<Element, Q>(keys, filled, dim, q, scale, p);
      std::int64_t seen[Q];
      PONDER_UNROLL
      for (int i = 0; i < Q; ++i) {
        seen[i] = length[i] - start < filled ? length[i] - start : filled;
        if (seen[i] > 0) RunningSoftmax<S>::soften(p[i], seen[i], dim, m[i], l[i], o[i]);
      }
      weigh<Element, Q>(values, seen, dim, p, o);
    }
    PONDER_UNROLL
    for (int i = 0; i < Q; ++i) {
      const F inverse = S::set1(1.0f / l[i]);
      for (std::int64_t d = 0; d < dim; d += 16)
        S::store(y[i] + d, S::mul(S::load(o[i] + d), inverse));
    }
  }

  /// p[i][j] = scale * q_i . k_j, kGroups groups of 16 positions at a time; what is computed for
  /// positions that are not filled is dropped by soften().
  template <class Element, int Q>
  static void scores(const std::byte* keys, std::int64_t filled, std::int64_t dim,
                     const float* const (&q)[Q], float scale, float (&p)[Q][kBlock]) {
    constexpr int G = S::kGroups;
    const std::int64_t group_bytes = dim * 16 * Element::kBytes;
    for (std::int64_t g = 0; g * 16 < filled; g += G) {
      F sum[Q][G];
      PONDER_UNROLL
      for (int i = 0; i < Q; ++i)
        PONDER_UNROLL
      for (int j = 0; j < G; ++j)
        sum[i][j] = S::zero();
      const std::byte* at = keys + g * group_bytes;
      for (std::int64_t d = 0; d < dim; ++d, at += 16 * Element::kBytes) {
        F k[G];
        PONDER_UNROLL
        for (int j = 0; j < G; ++j)
          k[j] = Element::template load<S>(at + j * group_bytes);
        PONDER_UNROLL
        for (int i = 0; i < Q; ++i) {
          const F x = S::set1(q[i][d]);
          PONDER_UNROLL
          for (int j = 0; j < G; ++j)
            sum[i][j] = S::fma(x, k[j], sum[i][j]);
        }
      }
      PONDER_UNROLL
      for (int i = 0; i < Q; ++i)
        PONDER_UNROLL
      for (int j = 0; j < G; ++j)
        S::store(p[i] + (g + j) * 16, S::mul(sum[i][j], S::set1(scale)));
    }
  }

  /// o_i += sum_j p[i][j] v_j in order of j: first the positions that all vectors of the tile see,
  /// together, then each vector's rest.
  template <class Element, int Q>
  static void weigh(const std::byte* values, const std::int64_t (&seen)[Q], std::int64_t dim,
                    float (&p)[Q][kBlock], float (&o)[Q][kMaxDim]) {
    std::int64_t together = seen[0];
    for (int i = 1; i < Q; ++i)
      together = seen[i] < together ? seen[i] : together;
    together = together < 0 ? 0 : together;
    constexpr std::int64_t kWide = 4;
    std::int64_t d = 0;
    for (; d + 16 * kWide <= dim; d += 16 * kWide)
      columns<Element, Q, kWide>(values, 0, together, dim, d, p, o);
    for (; d < dim; d += 16)
      columns<Element, Q, 1>(values, 0, together, dim, d, p, o);
    PONDER_UNROLL
    for (int i = 0; i < Q; ++i) {
      if (seen[i] <= together) continue;
      auto& weights = reinterpret_cast<float(&)[1][kBlock]>(p[i]);
      auto& out = reinterpret_cast<float(&)[1][kMaxDim]>(o[i]);
      for (d = 0; d < dim; d += 16)
        columns<Element, 1, 1>(values, together, seen[i], dim, d, weights, out);
    }
  }

  template <class Element, int Q, int V>
  static void columns(const std::byte* values, std::int64_t first, std::int64_t last,
                      std::int64_t dim, std::int64_t at, const float (&p)[Q][kBlock],
                      float (&o)[Q][kMaxDim]) {
    F sum[Q][V];
    PONDER_UNROLL
    for (int i = 0; i < Q; ++i)
      PONDER_UNROLL
    for (int v = 0; v < V; ++v)
      sum[i][v] = S::load(o[i] + at + 16 * v);
    for (std::int64_t j = first; j < last; ++j) {
      F x[V];
      PONDER_UNROLL
      for (int v = 0; v < V; ++v)
        x[v] = Element::template load<S>(values + (j * dim + at + 16 * v) * Element::kBytes);
      PONDER_UNROLL
      for (int i = 0; i < Q; ++i) {
        const F weight = S::set1(p[i][j]);
        PONDER_UNROLL
        for (int v = 0; v < V; ++v)
          sum[i][v] = S::fma(weight, x[v], sum[i][v]);
      }
    }
    PONDER_UNROLL
    for (int i = 0; i < Q; ++i)
      PONDER_UNROLL
    for (int v = 0; v < V; ++v)
      S::store(o[i] + at + 16 * v, sum[i][v]);
  }
};

}  // namespace ponder::kernels
