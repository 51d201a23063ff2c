#include "engine/models/decoder_load.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/log.h"
#include "engine/models/registry.h"
#include "engine/models/unknown_tensors.h"

namespace ponder::models {
namespace {

/// The multi-token-prediction block is wholly missing although the file announces it.
bool nextn_is_absent(const artifact::Gguf& file, const DecoderConfig& c) {
  const std::string prefix = fmt::format("blk.{}.", c.layers.size());
  const auto starts = [&](const auto& tensor) { return tensor.name.starts_with(prefix); };
  return std::none_of(file.tensors().begin(), file.tensors().end(), starts) &&
         std::none_of(file.foreign_tensors().begin(), file.foreign_tensors().end(), starts);
}

kernels::KvElement element(KvType kv) {
  switch (kv) {
    case KvType::f32:
      return kernels::KvElement::f32;
    case KvType::f16:
      return kernels::KvElement::f16;
    case KvType::q8_0:
      return kernels::KvElement::q8_0;
    case KvType::r4:
      return kernels::KvElement::r4;
  }
  return kernels::KvElement::f16;
}

SequenceLayout sequence_layout(const DecoderPlan& plan) {
  return {&plan.config, plan.kv_layout(), plan.options.n_ctx, plan.options.chunk,
          plan.options.drafts};
}

}  // namespace

KvLayout DecoderPlan::kv_layout() const {
  const AttentionConfig& a = config.attention;
  KvLayout out;
  out.main = {element(options.kv), a.kv_heads, a.head_dim};
  out.main_layers = config.count(Mixer::attention);
  out.draft = {options.kv == KvType::f32 ? kernels::KvElement::f32 : kernels::KvElement::f16,
               a.kv_heads, a.head_dim};
  out.draft_layers = options.drafts ? 1 : 0;
  return out;
}

std::vector<std::string> check_decoder(const artifact::Gguf& file, const DecoderConfig& config) {
  DecoderWeights weights;
  const bool with_nextn = config.nextn > 0 && !nextn_is_absent(file, config);
  const std::vector<WeightSlot> slots = decoder_slots(config, weights, with_nextn, false);
  std::vector<std::string> out = check_slots(file, slots);
  if (out.empty()) out = unknown_tensors(file, slots);
  return out;
}

Result<DecoderPlan> plan_decoder(const artifact::Gguf& file, DecoderConfig config,
                                 const LoadOptions& options) {
  DecoderPlan plan;
  TRY(plan.options, resolve(options, config.n_ctx_train));
  plan.with_nextn = config.nextn > 0 && !nextn_is_absent(file, config);
  plan.options.drafts = options.drafts && plan.with_nextn;
  if (config.nextn > 0 && !plan.with_nextn)
    log_warn(fmt::format(
        "{} announces a multi-token-prediction layer and does not hold it; going on without.",
        file.path().string()));
  plan.config = std::move(config);
  const KvLayout kv = plan.kv_layout();
  if (kv.main_layers > 0 && !kernels::kv_shape_supported(kv.main))
    return fail(ErrorCode::bad_request, kernels::kv_shape_refusal(kv.main));
  return plan;
}

MemoryNeed decoder_memory_need(const artifact::Gguf& file, const DecoderPlan& plan) {
  DecoderWeights weights;
  MemoryNeed need;
  const std::vector<WeightSlot> slots = plan.slots(weights);
  need.weights = arena_bytes(slot_bytes(file, slots));
  const SequenceLayout sequence = sequence_layout(plan);
  need.kv = static_cast<std::uint64_t>(pages_for(plan.options.n_ctx)) * sequence.kv.page_bytes();
  need.state = sequence.state_bytes();
  need.scratch = arena_bytes(Scratch::bytes(plan.config, slot_columns(file, slots),
                                            plan.options.chunk, plan.options.drafts));
  need.total = need.weights + need.kv + need.state + need.scratch;
  return need;
}

std::uint64_t decoder_step_bytes(const artifact::Gguf& file, const DecoderPlan& plan) {
  DecoderWeights weights;
  std::uint64_t total = 0;
  for (const WeightSlot& slot : decoder_slots(plan.config, weights, false, false)) {
    if (slot.matrix == &weights.token_embd && !plan.config.tied) continue;
    const std::uint64_t bytes = slot_bytes(file, {slot});
    total += slot.experts == nullptr
                 ? bytes
                 : bytes / slot.extents[2] * static_cast<std::uint64_t>(plan.config.mixture.used);
  }
  return total;
}

}  // namespace ponder::models
