#include "engine/models/mixture_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/ops/mixture.h"

namespace ponder::models {
namespace {

constexpr std::int64_t kSoftmax = 1;  // of llama.cpp's gating functions

bool has_fused_experts(const artifact::Gguf& file) {
  const auto fused = [](const auto& t) { return t.name.ends_with(".ffn_gate_up_exps.weight"); };
  return std::any_of(file.tensors().begin(), file.tensors().end(), fused) ||
         std::any_of(file.foreign_tensors().begin(), file.foreign_tensors().end(), fused);
}

Result<void> check_router(const MetadataReader& read) {
  TRY(const std::int64_t gating,
      read.integer_or("expert_gating_func", kSoftmax, 0, kSoftmax + 255));
  if (gating != 0 && gating != kSoftmax)
    return unusable(fmt::format("{} is {}; only a softmax over all experts (1) can be computed.",
                                read.key("expert_gating_func"), gating));
  TRY(const std::int64_t groups, read.integer_or("expert_group_count", 0, 0, 4096));
  if (groups > 1)
    return unusable(fmt::format("{} is {}; experts chosen by group cannot be computed.",
                                read.key("expert_group_count"), groups));
  TRY(const double scale, read.number_or("expert_weights_scale", 1, 0, 1e6));
  if (scale != 0 && scale != 1)
    return unusable(fmt::format("{} is {}; only weights that add up to 1 can be computed.",
                                read.key("expert_weights_scale"), scale));
  if (!read.file().boolean(read.key("expert_weights_norm")).value_or(true))
    return unusable(fmt::format("{} is false; only weights that add up to 1 can be computed.",
                                read.key("expert_weights_norm")));
  return {};
}

}  // namespace

Result<void> read_mixture(const MetadataReader& read, DecoderConfig& c) {
  MixtureConfig& m = c.mixture;
  TRY(m.experts, read.integer("expert_count", 1, kernels::kMaxExperts));
  TRY(m.used, read.integer("expert_used_count", 1, kMaxUsedExperts));
  if (m.used > m.experts)
    return unusable(fmt::format("{} is {}, more than the {} experts there are.",
                                read.key("expert_used_count"), m.used, m.experts));
  TRY(m.ffn, read.integer("expert_feed_forward_length", 1, 1 << 20));
  TRY(m.shared_ffn, read.integer_or("expert_shared_feed_forward_length", 0, 0, 1 << 20));
  m.fused = has_fused_experts(read.file());
  TRY_VOID(check_router(read));
  for (LayerKind& layer : c.layers)
    layer.feed_forward = FeedForward::mixture;
  c.nextn_feed_forward = FeedForward::mixture;
  return {};
}

}  // namespace ponder::models
