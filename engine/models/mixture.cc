// The mixture of experts of a layer. Rows are grouped by expert, so that each expert's weights are
// read once a step and its products run over all its rows; the results are added in each row's own
// order of experts, so that a row's bits do not depend on the others.
#include <algorithm>
#include <cstring>

#include "engine/models/layer_step.h"

namespace ponder::models {
namespace {

using kernels::Arena;

/// Where the rows of each expert lie once they are grouped.
struct Groups {
  std::int32_t* ids = nullptr;    ///< [n, used], an expert each
  float* weights = nullptr;       ///< [n, used]
  std::int32_t* slots = nullptr;  ///< [n, used], rows of the grouped order
  std::int32_t* rows = nullptr;   ///< [n * used], the row that each slot belongs to
  std::int32_t* first = nullptr;  ///< [experts + 1], the first slot of each expert
};

/// Counting sort by expert; within one, rows keep their order.
void group(const Groups& g, std::int64_t n, std::int64_t used, std::int64_t experts) {
  std::memset(g.first, 0, static_cast<std::size_t>(experts + 1) * sizeof(std::int32_t));
  for (std::int64_t i = 0; i < n * used; ++i)
    ++g.first[g.ids[i] + 1];
  for (std::int64_t e = 0; e < experts; ++e)
    g.first[e + 1] += g.first[e];
  for (std::int64_t i = 0; i < n * used; ++i) {
    const std::int32_t slot = g.first[g.ids[i]]++;
    g.slots[i] = slot;
    g.rows[slot] = static_cast<std::int32_t>(i / used);
  }
  for (std::int64_t e = experts; e > 0; --e)  // each went on to where the next one begins
    g.first[e] = g.first[e - 1];
  g.first[0] = 0;
}

class Mixture {
 public:
  Mixture(const LayerStep& step, const MixtureWeights& weights, std::int64_t n)
      : step_(step), w_(weights), c_(step.config.mixture), n_(n), region_(step.scratch.wide) {
    const std::int64_t slots = n * c_.used;
    groups_.ids = region_.take<std::int32_t>(slots);
    groups_.weights = region_.floats(slots);
    groups_.slots = region_.take<std::int32_t>(slots);
    groups_.rows = region_.take<std::int32_t>(slots);
    groups_.first = region_.take<std::int32_t>(c_.experts + 1);
    results_ = region_.floats(slots * step.config.hidden);
    if (c_.shared_ffn > 0) shared_ = region_.floats(n * step.config.hidden);
    logits_ = region_.floats(n * c_.experts);
    gathered_ = region_.floats(n * step.config.hidden);
    gate_ = region_.floats((c_.fused ? 2 : 1) * inner());
    up_ = region_.floats(inner());
  }

  void run() {
    step_.matmul<1>(step_.scratch.norm, n_, {{{&w_.router, logits_}}});
    step_.ops.route(step_.stream, {.logits = logits_,
                                   .ids = groups_.ids,
                                   .weights = groups_.weights,
                                   .n = n_,
                                   .experts = c_.experts,
                                   .used = c_.used});
    group(groups_, n_, c_.used, c_.experts);
    if (n_ == 1)
      experts_of_one_row();
    else
      experts_of_rows();
    if (shared_ != nullptr) shared_expert();
    step_.ops.mix(step_.stream, {.x = results_,
                                 .slots = groups_.slots,
                                 .weights = groups_.weights,
                                 .y = step_.scratch.out,
                                 .n = n_,
                                 .used = c_.used,
                                 .cols = step_.config.hidden,
                                 .shared = shared_,
                                 .gate_x = step_.scratch.norm,
                                 .gate_w = w_.shared_router});
  }

  static std::uint64_t bytes(const DecoderConfig& config, std::int64_t n) {
    const MixtureConfig& c = config.mixture;
    const auto fours = [](std::int64_t count) {
      return Arena::padded(static_cast<std::size_t>(count) * sizeof(float));
    };
    return 4 * fours(n * c.used) + fours(c.experts + 1) + fours(n * c.used * config.hidden) +
           (c.shared_ffn > 0 ? fours(n * config.hidden) : 0) + fours(n * c.experts) +
           fours(n * config.hidden) + fours((c.fused ? 2 : 1) * inner_floats(c, n)) +
           fours(inner_floats(c, n));
  }

 private:
  /// One row takes all its experts at once, several rows one expert at a time.
  static std::int64_t inner_floats(const MixtureConfig& c, std::int64_t n) {
    return std::max({n * c.ffn, c.used * c.ffn, n * c.shared_ffn});
  }
  std::int64_t inner() const { return inner_floats(c_, n_); }

  void swiglu(std::int64_t rows, std::int64_t cols) {
    step_.ops.swiglu(step_.stream,
                     {.gate = gate_, .up = up_, .y = gate_, .rows = rows, .cols = cols});
  }
  /// Of the experts, whose gates and ups may lie together: gate_ [rows, 2 ffn] to up_ [rows, ffn].
  const float* expert_swiglu(std::int64_t rows) {
    if (!c_.fused) {
      swiglu(rows, c_.ffn);
      return gate_;
    }
    step_.ops.swiglu(step_.stream, {.gate = gate_,
                                    .up = gate_ + c_.ffn,
                                    .y = up_,
                                    .rows = rows,
                                    .cols = c_.ffn,
                                    .gate_stride = 2 * c_.ffn,
                                    .up_stride = 2 * c_.ffn});
    return up_;
  }

  /// Gates and ups of all chosen experts read the same row: one product.
  void experts_of_one_row() {
    std::array<kernels::MatMulOutput, 2 * kMaxUsedExperts> outputs;
    std::size_t count = 0;
    for (std::int64_t i = 0; i < c_.used; ++i) {
      const auto e = static_cast<std::size_t>(groups_.ids[i]);
      const std::int64_t slot = groups_.slots[i];
      if (c_.fused) {
        outputs[count++] = {&w_.gate_up[e], gate_ + slot * 2 * c_.ffn};
        continue;
      }
      outputs[count++] = {&w_.gate[e], gate_ + slot * c_.ffn};
      outputs[count++] = {&w_.up[e], up_ + slot * c_.ffn};
    }
    step_.ops.matmul(step_.stream, {.x = step_.scratch.norm,
                                    .n = 1,
                                    .outputs = std::span(outputs).first(count),
                                    .workspace = step_.scratch.matmul});
    const float* inner = expert_swiglu(c_.used);
    for (std::int64_t i = 0; i < c_.used; ++i)
      down(static_cast<std::size_t>(groups_.ids[i]), inner + groups_.slots[i] * c_.ffn,
           groups_.slots[i], 1);
  }

  void experts_of_rows() {
    const std::int64_t hidden = step_.config.hidden;
    for (std::int64_t e = 0; e < c_.experts; ++e) {
      const std::int64_t first = groups_.first[e], rows = groups_.first[e + 1] - first;
      if (rows == 0) continue;
      for (std::int64_t i = 0; i < rows; ++i)
        std::memcpy(gathered_ + i * hidden, step_.scratch.norm + groups_.rows[first + i] * hidden,
                    static_cast<std::size_t>(hidden) * sizeof(float));
      const auto expert = static_cast<std::size_t>(e);
      if (c_.fused)
        step_.matmul<1>(gathered_, rows, {{{&w_.gate_up[expert], gate_}}});
      else
        step_.matmul<2>(gathered_, rows, {{{&w_.gate[expert], gate_}, {&w_.up[expert], up_}}});
      down(expert, expert_swiglu(rows), first, rows);
    }
  }

  void down(std::size_t expert, const float* x, std::int64_t slot, std::int64_t rows) {
    step_.matmul<1>(x, rows, {{{&w_.down[expert], results_ + slot * step_.config.hidden}}});
  }

  void shared_expert() {
    step_.matmul<2>(step_.scratch.norm, n_, {{{&w_.shared.gate, gate_}, {&w_.shared.up, up_}}});
    swiglu(n_, c_.shared_ffn);
    step_.matmul<1>(gate_, n_, {{{&w_.shared.down, shared_}}});
  }

  const LayerStep& step_;
  const MixtureWeights& w_;
  const MixtureConfig& c_;
  const std::int64_t n_;
  Region region_;
  Groups groups_;
  float* results_ = nullptr;   ///< [n * used, hidden], grouped
  float* shared_ = nullptr;    ///< [n, hidden]
  float* logits_ = nullptr;    ///< [n, experts]
  float* gathered_ = nullptr;  ///< [n, hidden]
  float* gate_ = nullptr;      ///< [inner]
  float* up_ = nullptr;
};

}  // namespace

std::uint64_t mixture_scratch(const DecoderConfig& config, std::int64_t n) {
  return Mixture::bytes(config, n);
}

void mixture_feed_forward(const LayerStep& step, const MixtureWeights& weights, std::int64_t n) {
  Mixture(step, weights, n).run();
}

}  // namespace ponder::models
