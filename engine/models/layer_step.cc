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

std::uint64_t matmul_bytes(const DecoderConfig& c, std::int64_t n, bool drafts) {
  std::int64_t cols = std::max({c.hidden, c.attention.heads * c.attention.head_dim,
                                c.delta_net.value_dim(), drafts ? 2 * c.hidden : 0});
  if (c.has(FeedForward::dense)) cols = std::max(cols, c.ffn);
  if (c.has(FeedForward::mixture)) cols = std::max({cols, c.mixture.ffn, c.mixture.shared_ffn});
  return kernels::Arena::padded(kernels::matmul_workspace_bytes(n, cols));
}

}  // namespace

std::uint64_t Scratch::bytes(const DecoderConfig& c, std::int64_t rows, bool drafts) {
  return 3 * padded_floats(rows * c.hidden) + padded_floats(rows * c.attention.rot) +
         matmul_bytes(c, rows, drafts) + wide_bytes(c, rows, drafts);
}

void Scratch::bind(kernels::Arena& arena, const DecoderConfig& c, std::int64_t rows, bool drafts) {
  const auto floats = [&](std::int64_t count) {
    return arena.take_array<float>(static_cast<std::size_t>(count)).data();
  };
  x = floats(rows * c.hidden);
  norm = floats(rows * c.hidden);
  out = floats(rows * c.hidden);
  rope = floats(rows * c.attention.rot);
  matmul = arena.take_array<std::byte>(matmul_bytes(c, rows, drafts));
  wide = arena.take_array<std::byte>(wide_bytes(c, rows, drafts));
}

void rope_rows(const LayerStep& step, const float* divisors) {
  const AttentionConfig& a = step.config.attention;
  for (const RowRange& part : step.parts)
    kernels::rope_table(part.position, part.n, a.rot, a.theta,
                        step.scratch.rope + part.first * a.rot, divisors);
}

}  // namespace ponder::models
