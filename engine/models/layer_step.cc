#include "engine/models/layer_step.h"

#include <algorithm>

namespace ponder::models {
namespace {

std::uint64_t wide_bytes(const DecoderConfig& c, std::int64_t n, bool drafts) {
  std::uint64_t out = feed_forward_scratch(c, n);
  if (c.count(Mixer::attention) > 0 || drafts) out = std::max(out, attention_scratch(c, n));
  if (c.count(Mixer::gated_delta_net) > 0) out = std::max(out, delta_net_scratch(c, n));
  if (drafts) out = std::max(out, draft_scratch(c, n));
  return out;
}

}  // namespace

std::uint64_t Scratch::bytes(const DecoderConfig& c, const kernels::MatMulColumns& columns,
                             std::int64_t rows, bool drafts) {
  return 3 * padded_floats(rows * c.hidden) + padded_floats(rows * c.attention.rot) +
         kernels::Arena::padded(kernels::matmul_workspace_bytes(rows, columns)) +
         wide_bytes(c, rows, drafts);
}

void Scratch::bind(kernels::Arena& arena, const DecoderConfig& c,
                   const kernels::MatMulColumns& columns, std::int64_t rows, bool drafts) {
  const auto floats = [&](std::int64_t count) {
    return arena.take_array<float>(static_cast<std::size_t>(count)).data();
  };
  x = floats(rows * c.hidden);
  norm = floats(rows * c.hidden);
  out = floats(rows * c.hidden);
  rope = floats(rows * c.attention.rot);
  matmul = arena.take_array<std::byte>(kernels::matmul_workspace_bytes(rows, columns));
  wide = arena.take_array<std::byte>(wide_bytes(c, rows, drafts));
}

void rope_rows(const LayerStep& step, const float* divisors) {
  const AttentionConfig& a = step.config.attention;
  for (const RowRange& part : step.parts)
    kernels::rope_table(part.position, part.n, a.rot, a.theta,
                        step.scratch.rope + part.first * a.rot, divisors);
}

}  // namespace ponder::models
