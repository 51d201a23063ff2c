// The gated delta net: projections, a short causal convolution, the gated delta rule, a gated norm.
// Formulas: Hugging Face transformers, models/qwen3_5 and models/qwen3_next.
//
// Rows on trial leave state and tail as they are and log what went into them: about 3.4 MiB a row
// for 48 layers of 48 value heads of 128, where a copy of the state would be 150 MiB a row. What is
// kept is then applied by the same op on the same numbers.
#include <algorithm>
#include <cmath>

#include "engine/models/decoder_sequence.h"
#include "engine/models/layer_step.h"

namespace ponder::models {
namespace {

void log_rows(const DeltaNetConfig& d, const TrialLog& log, std::int64_t n, const float* raw,
              const float* mixed, const float* decay, const float* beta) {
  const std::int64_t conv = d.conv_dim(), kv = d.key_dim() + d.value_dim();
  std::copy_n(raw, n * conv, log.raw);
  for (std::int64_t t = 0; t < n; ++t)
    std::copy_n(mixed + t * conv + d.key_dim(), kv, log.kv + t * kv);
  std::copy_n(decay, n * d.v_heads, log.decay);
  std::copy_n(beta, n * d.v_heads, log.beta);
}

}  // namespace

std::uint64_t delta_net_scratch(const DecoderConfig& config, std::int64_t n) {
  const DeltaNetConfig& d = config.delta_net;
  return 2 * padded_floats(n * d.conv_dim()) + 2 * padded_floats(n * d.value_dim()) +
         2 * padded_floats(n * d.v_heads);
}

void delta_net_layer(const LayerStep& step, const DeltaNetWeights& weights, std::int64_t index) {
  const DeltaNetConfig& d = step.config.delta_net;
  const std::int64_t n = step.rows, conv = d.conv_dim();
  Region region(step.scratch.wide);
  float* qkv = region.floats(n * conv);
  float* mixed = region.floats(n * conv);  // after the convolution: queries, keys, values
  float* z = region.floats(n * d.value_dim());
  float* o = region.floats(n * d.value_dim());
  float* a = region.floats(n * d.v_heads);
  float* b = region.floats(n * d.v_heads);

  step.matmul<4>(
      step.scratch.norm, n,
      {{{&weights.qkv, qkv}, {&weights.gate, z}, {&weights.alpha, a}, {&weights.beta, b}}});
  for (const RowRange& part : step.parts)
    step.ops.conv_silu(step.stream, {.x = qkv + part.first * conv,
                                     .taps = weights.conv_taps,
                                     .tail = part.sequence->conv_tail(index),
                                     .y = mixed + part.first * conv,
                                     .n = part.n,
                                     .channels = conv,
                                     .leave_tail = part.trial});
  const float query_scale = 1.0f / std::sqrt(static_cast<float>(d.dk));
  step.ops.l2_norm(step.stream, {.x = mixed,
                                 .rows = n,
                                 .heads = d.k_heads,
                                 .cols = d.dk,
                                 .row_stride = conv,
                                 .scale = query_scale});
  step.ops.l2_norm(
      step.stream,
      {.x = mixed + d.key_dim(), .rows = n, .heads = d.k_heads, .cols = d.dk, .row_stride = conv});
  step.ops.gated_delta_gates(step.stream, {.a = a,
                                           .b = b,
                                           .ssm_a = weights.a,
                                           .ssm_dt = weights.dt,
                                           .decay = a,
                                           .beta = b,
                                           .n = n,
                                           .heads = d.v_heads});
  for (const RowRange& part : step.parts) {
    const float* q = mixed + part.first * conv;
    const float* decay = a + part.first * d.v_heads;
    const float* beta = b + part.first * d.v_heads;
    step.ops.gated_delta(step.stream, {.q = q,
                                       .k = q + d.key_dim(),
                                       .v = q + 2 * d.key_dim(),
                                       .qkv_stride = conv,
                                       .decay = decay,
                                       .beta = beta,
                                       .state = part.sequence->recurrent(index),
                                       .o = o + part.first * d.value_dim(),
                                       .n = part.n,
                                       .k_heads = d.k_heads,
                                       .v_heads = d.v_heads,
                                       .dk = d.dk,
                                       .dv = d.dk,
                                       .leave_state = part.trial});
    if (part.trial)
      log_rows(d, part.sequence->trial_log(index), part.n, qkv + part.first * conv, q, decay, beta);
  }
  step.ops.gated_rms_norm(step.stream, {.x = o,
                                        .w = weights.norm,
                                        .z = z,
                                        .y = o,
                                        .rows = n * d.v_heads,
                                        .cols = d.dk,
                                        .eps = step.config.eps});
  step.matmul<1>(o, n, {{{&weights.out, step.scratch.out}}});
}

void keep_delta_net(const LayerStep& step, DecoderSequence& sequence, std::int64_t index,
                    std::int64_t rows) {
  const DeltaNetConfig& d = step.config.delta_net;
  const TrialLog log = sequence.trial_log(index);
  step.ops.gated_delta(step.stream, {.k = log.kv,
                                     .v = log.kv + d.key_dim(),
                                     .qkv_stride = d.key_dim() + d.value_dim(),
                                     .decay = log.decay,
                                     .beta = log.beta,
                                     .state = sequence.recurrent(index),
                                     .n = rows,
                                     .k_heads = d.k_heads,
                                     .v_heads = d.v_heads,
                                     .dk = d.dk,
                                     .dv = d.dk});
  // The tail: the last three of what it held and the kept inputs, oldest first.
  const std::int64_t conv = d.conv_dim(), old = std::max<std::int64_t>(0, 3 - rows);
  float* tail = sequence.conv_tail(index);
  std::copy_n(tail + (3 - old) * conv, old * conv, tail);
  std::copy_n(log.raw + (rows - (3 - old)) * conv, (3 - old) * conv, tail + old * conv);
}

}  // namespace ponder::models
