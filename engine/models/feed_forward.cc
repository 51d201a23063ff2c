// The dense feed-forward part, and which one a layer has.
#include <algorithm>

#include "engine/models/layer_step.h"

namespace ponder::models {
namespace {

void dense_feed_forward(const LayerStep& step, const DenseWeights& weights) {
  const std::int64_t n = step.rows, width = step.config.ffn;
  Region region(step.scratch.wide);
  float* gate = region.floats(n * width);
  float* up = region.floats(n * width);
  step.matmul<2>(step.scratch.norm, n, {{{&weights.gate, gate}, {&weights.up, up}}});
  step.ops.swiglu(step.stream, {.gate = gate, .up = up, .y = gate, .rows = n, .cols = width});
  step.matmul<1>(gate, n, {{{&weights.down, step.scratch.out}}});
}

}  // namespace

std::uint64_t feed_forward_scratch(const DecoderConfig& config, std::int64_t n) {
  std::uint64_t out = 0;
  if (config.has(FeedForward::dense)) out = 2 * padded_floats(n * config.ffn);
  if (config.has(FeedForward::mixture)) out = std::max(out, mixture_scratch(config, n));
  return out;
}

void feed_forward(const LayerStep& step, FeedForward kind, const DecoderLayer& layer) {
  switch (kind) {
    case FeedForward::dense:
      return dense_feed_forward(step, layer.dense);
    case FeedForward::mixture:
      return mixture_feed_forward(step, layer.mixture, step.rows);
  }
}

}  // namespace ponder::models
