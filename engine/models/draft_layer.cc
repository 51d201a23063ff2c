#include "engine/models/draft_layer.h"

#include <algorithm>

#include "engine/models/decoder_sequence.h"

namespace ponder::models {
namespace {

/// The draft layer's index in a KV page.
std::int64_t layer_index(const DecoderConfig& config) {
  return config.count(Mixer::attention);
}

/// r of all rows to scratch.x.
void join(const LayerStep& step, const DecoderWeights& weights, const DraftBatch& batch) {
  const std::int64_t hidden = step.config.hidden;
  Region region(step.scratch.wide);
  float* joined = region.floats(step.rows * 2 * hidden);
  step.stream.parallel_for(step.rows, [&](std::int64_t i) {
    weights.token_embd.decode_row(batch.ids[static_cast<std::size_t>(i)],
                                  step.scratch.x + i * hidden);
  });
  const auto norm = [&](const float* x, const float* w, float* y, std::int64_t n) {
    step.ops.rms_norm(step.stream, {.x = x,
                                    .w = w,
                                    .y = y,
                                    .rows = n,
                                    .cols = hidden,
                                    .eps = step.config.eps,
                                    .x_stride = hidden,
                                    .y_stride = 2 * hidden});
  };
  norm(step.scratch.x, weights.draft.enorm, joined, step.rows);
  for (std::size_t i = 0; i < batch.parts.size(); ++i)
    norm(batch.hidden[i], weights.draft.hnorm, joined + batch.parts[i].first * 2 * hidden + hidden,
         batch.parts[i].n);
  step.matmul<1>(joined, step.rows, {{{&weights.draft.eh_proj, step.scratch.x}}});
}

}  // namespace

std::uint64_t draft_scratch(const DecoderConfig& config, std::int64_t n) {
  return padded_floats(n * 2 * config.hidden);
}

void DraftBatch::reserve(std::int64_t most) {
  parts.reserve(static_cast<std::size_t>(most));
  hidden.reserve(static_cast<std::size_t>(most));
  ids.reserve(static_cast<std::size_t>(most));
}

void DraftBatch::clear() {
  parts.clear();
  hidden.clear();
  ids.clear();
  rows = 0;
}

void DraftBatch::add(DecoderSequence& sequence, std::int64_t position, const float* hidden_rows,
                     std::span<const std::int32_t> next_ids) {
  const auto n = static_cast<std::int64_t>(next_ids.size());
  parts.push_back({&sequence, rows, n, position, false});
  hidden.push_back(hidden_rows);
  ids.insert(ids.end(), next_ids.begin(), next_ids.end());
  rows += n;
}

void DraftBatch::append(std::int32_t next_id) {
  ids.push_back(next_id);
  ++parts.back().n;
  ++rows;
}

void draft_entries(const LayerStep& step, const DecoderWeights& weights, const DraftBatch& batch) {
  const DecoderLayer& layer = weights.draft.layer;
  const std::int64_t width = step.config.attention.kv_heads * step.config.attention.head_dim;
  join(step, weights, batch);
  step.rms_norm(step.scratch.x, layer.mixer_norm, step.scratch.norm, step.rows);
  Region region(step.scratch.wide);
  float* k = region.floats(step.rows * width);
  float* v = region.floats(step.rows * width);
  step.matmul<2>(step.scratch.norm, step.rows,
                 {{{&layer.attention.k, k}, {&layer.attention.v, v}}});
  rope_rows(step, weights.rope_divisors);
  store_keys(step, layer.attention, layer_index(step.config), k, v);
}

void draft_outputs(const LayerStep& step, const DecoderWeights& weights, const DraftBatch& batch) {
  const DecoderLayer& layer = weights.draft.layer;
  const AttentionConfig& a = step.config.attention;
  const std::int64_t hidden = step.config.hidden;
  // From here on only the last row of each part, moved to the front; a row never moves back.
  std::vector<RowRange> lasts;
  for (const RowRange& part : batch.parts) {
    const auto to = static_cast<std::int64_t>(lasts.size());
    const std::int64_t from = part.first + part.n - 1;
    for (float* rows : {step.scratch.x, step.scratch.norm})
      if (from != to) std::copy_n(rows + from * hidden, hidden, rows + to * hidden);
    lasts.push_back({part.sequence, to, 1, part.position + part.n - 1, false});
  }
  const LayerStep last = {step.config,  step.ops, step.stream,
                          step.scratch, lasts,    static_cast<std::int64_t>(lasts.size())};
  Region region(step.scratch.wide);
  float* q = region.floats(last.rows * a.heads * a.head_dim * (a.output_gate ? 2 : 1));
  float* y = region.floats(last.rows * a.heads * a.head_dim);
  last.matmul<1>(step.scratch.norm, last.rows, {{{&layer.attention.q, q}}});
  rope_rows(last, weights.rope_divisors);
  attend(last, layer.attention, layer_index(step.config), q, y);
  last.add_out();
  last.rms_norm(step.scratch.x, layer.feed_forward_norm, step.scratch.norm, last.rows);
  feed_forward(last, step.config.nextn_feed_forward, layer);
  last.add_out();
  last.rms_norm(step.scratch.x, weights.draft.output_norm, step.scratch.norm, last.rows);
}

}  // namespace ponder::models
