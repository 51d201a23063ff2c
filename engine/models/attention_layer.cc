// Softmax attention over the sequence's own keys and values, with grouped heads and, where the
// model has them, norms over each head's query and key and a sigmoid gate over the output.
// Formulas: Hugging Face transformers, models/qwen3, models/qwen3_next and models/llama.
#include "engine/models/decoder_sequence.h"
#include "engine/models/layer_step.h"

namespace ponder::models {
namespace {

/// Floats from head to head of the projected queries.
std::int64_t query_width(const AttentionConfig& a) {
  return a.output_gate ? 2 * a.head_dim : a.head_dim;
}

/// Norm and rotation of `heads` heads, `head_stride` floats apart.
void turn(const LayerStep& step, const float* norm, float* x, std::int64_t heads,
          std::int64_t head_stride) {
  const AttentionConfig& a = step.config.attention;
  if (norm != nullptr)
    step.ops.rms_norm(step.stream, {.x = x,
                                    .w = norm,
                                    .y = x,
                                    .rows = step.rows * heads,
                                    .cols = a.head_dim,
                                    .eps = step.config.eps,
                                    .x_stride = head_stride,
                                    .y_stride = head_stride});
  step.ops.rope(step.stream, {.x = x,
                              .table = step.scratch.rope,
                              .n = step.rows,
                              .heads = heads,
                              .rot = a.rot,
                              .head_stride = head_stride,
                              .row_stride = heads * head_stride,
                              .interleaved = a.pairing == RopePairing::interleaved});
}

}  // namespace

std::uint64_t attention_scratch(const DecoderConfig& config, std::int64_t n) {
  const AttentionConfig& a = config.attention;
  return padded_floats(n * a.heads * query_width(a)) +
         2 * padded_floats(n * a.kv_heads * a.head_dim) + padded_floats(n * a.heads * a.head_dim);
}

void store_keys(const LayerStep& step, const AttentionWeights& weights, std::int64_t index,
                float* k, const float* v) {
  const AttentionConfig& a = step.config.attention;
  const std::int64_t width = a.kv_heads * a.head_dim;
  turn(step, weights.k_norm, k, a.kv_heads, a.head_dim);
  for (const RowRange& part : step.parts) {
    KvTable& kv = part.sequence->kv();
    step.ops.kv_write(step.stream, {.shape = kv.layout().shape(index),
                                    .blocks = kv.blocks(index),
                                    .first_position = part.position,
                                    .n = part.n,
                                    .k = k + part.first * width,
                                    .v = v + part.first * width});
  }
}

void attend(const LayerStep& step, const AttentionWeights& weights, std::int64_t index, float* q,
            float* y) {
  const AttentionConfig& a = step.config.attention;
  const std::int64_t stride = query_width(a);
  turn(step, weights.q_norm, q, a.heads, stride);
  for (const RowRange& part : step.parts) {
    const KvTable& kv = part.sequence->kv();
    step.ops.attention(step.stream, {.shape = kv.layout().shape(index),
                                     .blocks = kv.const_blocks(index),
                                     .first_position = part.position,
                                     .n = part.n,
                                     .heads = a.heads,
                                     .q = q + part.first * a.heads * stride,
                                     .q_head_stride = stride,
                                     .q_row_stride = a.heads * stride,
                                     .y = y + part.first * a.heads * a.head_dim,
                                     .scale = a.scale});
  }
  if (a.output_gate)
    step.ops.sigmoid_gate(step.stream, {.x = y,
                                        .gate = q + a.head_dim,
                                        .y = y,
                                        .rows = step.rows * a.heads,
                                        .cols = a.head_dim,
                                        .gate_stride = stride});
  step.matmul<1>(y, step.rows, {{{&weights.out, step.scratch.out}}});
}

void attention_layer(const LayerStep& step, const AttentionWeights& weights, std::int64_t index) {
  const AttentionConfig& a = step.config.attention;
  Region region(step.scratch.wide);
  float* q = region.floats(step.rows * a.heads * query_width(a));
  float* k = region.floats(step.rows * a.kv_heads * a.head_dim);
  float* v = region.floats(step.rows * a.kv_heads * a.head_dim);
  float* y = region.floats(step.rows * a.heads * a.head_dim);
  step.matmul<3>(step.scratch.norm, step.rows,
                 {{{&weights.q, q}, {&weights.k, k}, {&weights.v, v}}});
  store_keys(step, weights, index, k, v);
  attend(step, weights, index, q, y);
}

}  // namespace ponder::models
