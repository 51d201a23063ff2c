// Qwen3.5-family dense hybrids: three gated-delta-net layers to one gated attention layer.
//
//   x = embed(id)
//   each layer:  x += mixer(rms(x, attn_norm));  x += ffn(rms(x, post_attention_norm))
//   logits = head * rms(x, output_norm)
//
// Formulas: Hugging Face transformers, models/qwen3_5 and models/qwen3_next.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <system_error>

#include "engine/base/check.h"
#include "engine/base/log.h"
#include "engine/models/qwen35_config.h"
#include "engine/models/qwen35_state.h"
#include "engine/models/qwen35_weights.h"
#include "engine/models/registry.h"
#include "kernels/ops/ops.h"

namespace ponder::models {
namespace {

using kernels::Arena;

/// What a step needs besides weights and state. The parts of a layer that are not alive together
/// share one region, `wide`.
struct Scratch {
  float* x = nullptr;     ///< [chunk, hidden], the residual stream
  float* norm = nullptr;  ///< [chunk, hidden], its normalised copy
  float* out = nullptr;   ///< [chunk, hidden], what a mixer or the feed-forward part adds
  float* rope = nullptr;  ///< [chunk, rot]
  std::span<std::byte> matmul;
  std::span<std::byte> wide;

  static std::uint64_t wide_bytes(const Qwen35Config& c, std::int64_t n) {
    const auto floats = [&](std::int64_t count) {
      return Arena::padded(static_cast<std::size_t>(n * count) * sizeof(float));
    };
    const std::uint64_t delta =
        2 * floats(c.conv_dim()) + 2 * floats(c.value_dim()) + 2 * floats(c.v_heads);
    const std::uint64_t attention = floats(2 * c.heads * c.head_dim) +
                                    2 * floats(c.kv_heads * c.head_dim) +
                                    floats(c.heads * c.head_dim);
    const std::uint64_t ffn = 2 * floats(c.ffn);
    return std::max({delta, attention, ffn});
  }
  static std::uint64_t matmul_bytes(const Qwen35Config& c, std::int64_t n) {
    const std::int64_t cols = std::max({c.hidden, c.ffn, c.value_dim(), c.heads * c.head_dim});
    return Arena::padded(kernels::matmul_workspace_bytes(n, cols));
  }
  static std::uint64_t bytes(const Qwen35Config& c, std::int64_t n) {
    const auto floats = [&](std::int64_t count) {
      return Arena::padded(static_cast<std::size_t>(n * count) * sizeof(float));
    };
    return 3 * floats(c.hidden) + floats(c.rot) + matmul_bytes(c, n) + wide_bytes(c, n);
  }
  void bind(Arena& arena, const Qwen35Config& c, std::int64_t n) {
    x = arena.take_array<float>(static_cast<std::size_t>(n * c.hidden)).data();
    norm = arena.take_array<float>(static_cast<std::size_t>(n * c.hidden)).data();
    out = arena.take_array<float>(static_cast<std::size_t>(n * c.hidden)).data();
    rope = arena.take_array<float>(static_cast<std::size_t>(n * c.rot)).data();
    matmul = arena.take_array<std::byte>(matmul_bytes(c, n));
    wide = arena.take_array<std::byte>(wide_bytes(c, n));
  }
};

/// Hands out `wide` from front to back for one part of a layer.
class Region {
 public:
  explicit Region(std::span<std::byte> memory) : memory_(memory) {}
  float* floats(std::int64_t count) {
    const std::size_t bytes = Arena::padded(static_cast<std::size_t>(count) * sizeof(float));
    CHECK(bytes <= memory_.size() - used_);
    float* at = reinterpret_cast<float*>(memory_.data() + used_);
    used_ += bytes;
    return at;
  }

 private:
  std::span<std::byte> memory_;
  std::size_t used_ = 0;
};

class Qwen35Model final : public Model {
 public:
  Qwen35Model(Qwen35Config config, const LoadOptions& options, const kernels::OpTable& ops)
      : config_(std::move(config)),
        options_(options),
        ops_(ops),
        pool_(options.threads),
        stream_{&pool_} {}

  Result<void> load_weights(const artifact::Gguf& file);

  std::int32_t vocab() const override { return static_cast<std::int32_t>(config_.vocab); }
  std::int64_t n_ctx() const override { return options_.n_ctx; }
  std::int64_t n_ctx_train() const override { return config_.n_ctx_train; }
  std::int64_t chunk() const override { return options_.chunk; }
  int threads() const override { return options_.threads; }
  std::uint64_t weight_bytes() const override { return weights_.step_bytes(loaded_bytes_); }
  std::string device() const override { return "cpu"; }
  std::unique_ptr<SequenceState> new_sequence() const override {
    return std::make_unique<Qwen35State>(config_, options_.kv, options_.n_ctx);
  }
  bool drafts() const override { return false; }
  std::uint64_t page_bytes() const override { return 0; }
  Result<void> forward(std::span<const StepPart> parts, std::span<float> logits) override;
  void keep(SequenceState&, std::int64_t) override {}
  Result<void> draft(std::span<const DraftPart>, std::span<float>) override { return later(); }
  Result<std::shared_ptr<const Snapshot>> save(SequenceState&) override { return later(); }
  Result<std::shared_ptr<const Snapshot>> to_host(const Snapshot&) override { return later(); }
  Result<void> restore(SequenceState&, const Snapshot&) override { return later(); }

 private:
  static tl::unexpected<Error> later() { return fail(ErrorCode::internal, "no snapshots yet"); }
  Result<void> forward_one(SequenceState& sequence, std::span<const std::int32_t> ids,
                           std::int64_t logit_rows, std::span<float> logits);
  Result<void> check_call(const Qwen35State& state, std::span<const std::int32_t> ids,
                          std::int64_t logit_rows, std::span<const float> logits) const;
  void embed(std::span<const std::int32_t> ids);
  void delta_net(const Qwen35Layer& layer, Qwen35State& state, std::int64_t index, std::int64_t n);
  void attention(const Qwen35Layer& layer, Qwen35State& state, std::int64_t index, std::int64_t n);
  void feed_forward(const Qwen35Layer& layer, std::int64_t n);
  void rms_norm(const float* x, const float* weight, float* y, std::int64_t n);
  void add_out(std::int64_t n);
  template <std::size_t Count>
  void matmul(const float* x, std::int64_t n,
              const std::array<kernels::MatMulOutput, Count>& outputs) {
    ops_.matmul(stream_, {.x = x, .n = n, .outputs = outputs, .workspace = scratch_.matmul});
  }

  Qwen35Config config_;
  LoadOptions options_;
  const kernels::OpTable& ops_;
  kernels::ThreadPool pool_;
  kernels::Stream stream_;
  Arena weight_arena_;
  Arena scratch_arena_;
  std::uint64_t loaded_bytes_ = 0;
  Qwen35Weights weights_;
  Scratch scratch_;
};

Result<void> Qwen35Model::load_weights(const artifact::Gguf& file) {
  const std::vector<WeightSlot> slots = qwen35_slots(config_, weights_);
  loaded_bytes_ = slot_bytes(file, slots);
  TRY(weight_arena_, Arena::make(loaded_bytes_));
  TRY(scratch_arena_, Arena::make(Scratch::bytes(config_, options_.chunk)));
  TRY_VOID(load_slots(file, slots, weight_arena_, stream_));
  scratch_.bind(scratch_arena_, config_, options_.chunk);
  return {};
}

Result<void> Qwen35Model::check_call(const Qwen35State& state, std::span<const std::int32_t> ids,
                                     std::int64_t logit_rows, std::span<const float> logits) const {
  const auto n = static_cast<std::int64_t>(ids.size());
  if (n < 1 || n > options_.chunk || logit_rows < 0 || logit_rows > n ||
      static_cast<std::int64_t>(logits.size()) != logit_rows * config_.vocab)
    return fail(ErrorCode::internal,
                fmt::format("A step of {} tokens with {} logit rows does not fit chunks of {}.", n,
                            logit_rows, options_.chunk));
  if (state.length() + n > options_.n_ctx)
    return fail(ErrorCode::context_length_exceeded,
                fmt::format("{} tokens after {} do not fit the context of {}.", n, state.length(),
                            options_.n_ctx));
  for (const std::int32_t id : ids)
    if (id < 0 || id >= config_.vocab)
      return fail(
          ErrorCode::bad_request,
          fmt::format("Token id {} is outside of the vocabulary of {}.", id, config_.vocab));
  return {};
}

Result<void> Qwen35Model::forward(std::span<const StepPart> parts, std::span<float> logits) {
  std::size_t at = 0;
  for (const StepPart& part : parts) {
    const auto n = static_cast<std::size_t>(part.logit_rows * config_.vocab);
    TRY_VOID(forward_one(*part.sequence, part.ids, part.logit_rows, logits.subspan(at, n)));
    at += n;
  }
  return {};
}

Result<void> Qwen35Model::forward_one(SequenceState& sequence, std::span<const std::int32_t> ids,
                                      std::int64_t logit_rows, std::span<float> logits) {
  auto* state = dynamic_cast<Qwen35State*>(&sequence);
  CHECK_MSG(state != nullptr, "the sequence belongs to another model");
  TRY_VOID(check_call(*state, ids, logit_rows, logits));
  const auto n = static_cast<std::int64_t>(ids.size());
  TRY_VOID(state->prepare(n));

  embed(ids);
  kernels::rope_table(state->length(), n, config_.rot, config_.theta, scratch_.rope);
  std::int64_t recurrent = 0, attending = 0;
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    const Qwen35Layer& layer = weights_.layers[i];
    rms_norm(scratch_.x, layer.attn_norm, scratch_.norm, n);
    if (config_.recurrent[i])
      delta_net(layer, *state, recurrent++, n);
    else
      attention(layer, *state, attending++, n);
    add_out(n);
    rms_norm(scratch_.x, layer.post_attention_norm, scratch_.norm, n);
    feed_forward(layer, n);
    add_out(n);
  }
  if (logit_rows > 0) {
    rms_norm(scratch_.x + (n - logit_rows) * config_.hidden, weights_.output_norm, scratch_.norm,
             logit_rows);
    matmul<1>(scratch_.norm, logit_rows, {{{&weights_.head(), logits.data()}}});
  }
  state->advance(n);
  return {};
}

void Qwen35Model::embed(std::span<const std::int32_t> ids) {
  stream_.parallel_for(static_cast<std::int64_t>(ids.size()), [&](std::int64_t i) {
    weights_.token_embd.decode_row(ids[static_cast<std::size_t>(i)],
                                   scratch_.x + i * config_.hidden);
  });
}

void Qwen35Model::rms_norm(const float* x, const float* weight, float* y, std::int64_t n) {
  ops_.rms_norm(
      stream_,
      {.x = x, .w = weight, .y = y, .rows = n, .cols = config_.hidden, .eps = config_.eps});
}

void Qwen35Model::add_out(std::int64_t n) {
  ops_.add(stream_,
           {.a = scratch_.x, .b = scratch_.out, .y = scratch_.x, .count = n * config_.hidden});
}

void Qwen35Model::delta_net(const Qwen35Layer& layer, Qwen35State& state, std::int64_t index,
                            std::int64_t n) {
  const Qwen35Config& c = config_;
  Region region(scratch_.wide);
  float* qkv = region.floats(n * c.conv_dim());
  float* mixed = region.floats(n * c.conv_dim());  // after the convolution: queries, keys, values
  float* z = region.floats(n * c.value_dim());
  float* o = region.floats(n * c.value_dim());
  float* a = region.floats(n * c.v_heads);
  float* b = region.floats(n * c.v_heads);

  matmul<4>(scratch_.norm, n,
            {{{&layer.attn_qkv, qkv},
              {&layer.attn_gate, z},
              {&layer.ssm_alpha, a},
              {&layer.ssm_beta, b}}});
  ops_.conv_silu(stream_, {.x = qkv,
                           .taps = layer.conv_taps,
                           .tail = state.conv_tail(index),
                           .y = mixed,
                           .n = n,
                           .channels = c.conv_dim()});
  float* q = mixed;
  float* k = mixed + c.key_dim();
  float* v = mixed + 2 * c.key_dim();
  const float query_scale = 1.0f / std::sqrt(static_cast<float>(c.dk));
  ops_.l2_norm(stream_, {.x = q,
                         .rows = n,
                         .heads = c.k_heads,
                         .cols = c.dk,
                         .row_stride = c.conv_dim(),
                         .scale = query_scale});
  ops_.l2_norm(stream_,
               {.x = k, .rows = n, .heads = c.k_heads, .cols = c.dk, .row_stride = c.conv_dim()});
  ops_.gated_delta_gates(stream_, {.a = a,
                                   .b = b,
                                   .ssm_a = layer.ssm_a,
                                   .ssm_dt = layer.ssm_dt,
                                   .decay = a,
                                   .beta = b,
                                   .n = n,
                                   .heads = c.v_heads});
  ops_.gated_delta(stream_, {.q = q,
                             .k = k,
                             .v = v,
                             .qkv_stride = c.conv_dim(),
                             .decay = a,
                             .beta = b,
                             .state = state.recurrent(index),
                             .o = o,
                             .n = n,
                             .k_heads = c.k_heads,
                             .v_heads = c.v_heads,
                             .dk = c.dk,
                             .dv = c.dk});
  ops_.gated_rms_norm(stream_, {.x = o,
                                .w = layer.ssm_norm,
                                .z = z,
                                .y = o,
                                .rows = n * c.v_heads,
                                .cols = c.dk,
                                .eps = c.eps});
  matmul<1>(o, n, {{{&layer.ssm_out, scratch_.out}}});
}

void Qwen35Model::attention(const Qwen35Layer& layer, Qwen35State& state, std::int64_t index,
                            std::int64_t n) {
  const Qwen35Config& c = config_;
  const std::int64_t d = c.head_dim, first = state.length();
  Region region(scratch_.wide);
  float* qg = region.floats(n * 2 * c.heads * d);  // of each head, query then gate
  float* k = region.floats(n * c.kv_heads * d);
  float* v = region.floats(n * c.kv_heads * d);
  float* y = region.floats(n * c.heads * d);

  matmul<3>(scratch_.norm, n, {{{&layer.attn_q, qg}, {&layer.attn_k, k}, {&layer.attn_v, v}}});
  ops_.rms_norm(stream_, {.x = qg,
                          .w = layer.attn_q_norm,
                          .y = qg,
                          .rows = n * c.heads,
                          .cols = d,
                          .eps = c.eps,
                          .x_stride = 2 * d,
                          .y_stride = 2 * d});
  ops_.rms_norm(
      stream_,
      {.x = k, .w = layer.attn_k_norm, .y = k, .rows = n * c.kv_heads, .cols = d, .eps = c.eps});
  ops_.rope(stream_, {.x = qg,
                      .table = scratch_.rope,
                      .n = n,
                      .heads = c.heads,
                      .rot = c.rot,
                      .head_stride = 2 * d,
                      .row_stride = 2 * c.heads * d});
  ops_.rope(stream_, {.x = k,
                      .table = scratch_.rope,
                      .n = n,
                      .heads = c.kv_heads,
                      .rot = c.rot,
                      .head_stride = d,
                      .row_stride = c.kv_heads * d});
  ops_.kv_write(stream_, {.shape = state.kv().shape(),
                          .blocks = state.kv().blocks(index),
                          .first_position = first,
                          .n = n,
                          .k = k,
                          .v = v});
  ops_.attention(stream_, {.shape = state.kv().shape(),
                           .blocks = state.kv().const_blocks(index),
                           .first_position = first,
                           .n = n,
                           .heads = c.heads,
                           .q = qg,
                           .q_head_stride = 2 * d,
                           .q_row_stride = 2 * c.heads * d,
                           .y = y});
  ops_.sigmoid_gate(
      stream_,
      {.x = y, .gate = qg + d, .y = y, .rows = n * c.heads, .cols = d, .gate_stride = 2 * d});
  matmul<1>(y, n, {{{&layer.attn_output, scratch_.out}}});
}

void Qwen35Model::feed_forward(const Qwen35Layer& layer, std::int64_t n) {
  Region region(scratch_.wide);
  float* gate = region.floats(n * config_.ffn);
  float* up = region.floats(n * config_.ffn);
  matmul<2>(scratch_.norm, n, {{{&layer.ffn_gate, gate}, {&layer.ffn_up, up}}});
  ops_.swiglu(stream_, {.gate = gate, .up = up, .y = gate, .rows = n, .cols = config_.ffn});
  matmul<1>(gate, n, {{{&layer.ffn_down, scratch_.out}}});
}

/// The whole multi-token-prediction block is missing although the file announces it.
bool nextn_is_absent(const artifact::Gguf& file, const Qwen35Config& c) {
  const std::string prefix = fmt::format("blk.{}.", c.layers);
  const auto starts = [&](const auto& tensor) { return tensor.name.starts_with(prefix); };
  return std::none_of(file.tensors().begin(), file.tensors().end(), starts) &&
         std::none_of(file.foreign_tensors().begin(), file.foreign_tensors().end(), starts);
}

std::vector<std::string> check_file(const artifact::Gguf& file, const Qwen35Config& c) {
  Qwen35Weights weights;
  std::vector<std::string> out = check_slots(file, qwen35_slots(c, weights));
  if (c.nextn > 0 && !nextn_is_absent(file, c))
    for (std::string& sentence : check_slots(file, qwen35_nextn_slots(c)))
      out.push_back(std::move(sentence));
  return out;
}

/// The configuration of a file that can be loaded.
Result<Qwen35Config> usable_config(const artifact::Gguf& file) {
  auto config = read_qwen35_config(file);
  if (config) {
    const std::vector<std::string> faults = check_file(file, *config);
    if (faults.empty()) return config;
    config = fail(ErrorCode::engine_error, faults.front());
  }
  Error error = std::move(config).error();
  error.message = fmt::format("{} is not usable: {}", file.path().string(), error.message);
  return fail(std::move(error));
}

MemoryNeed need_of(const artifact::Gguf& file, const Qwen35Config& c, const LoadOptions& options) {
  Qwen35Weights weights;
  MemoryNeed need;
  need.weights = arena_bytes(slot_bytes(file, qwen35_slots(c, weights)));
  need.kv = arena_bytes(
      KvCache::bytes(Qwen35State::kv_shape(c, options.kv), c.attention_layers(), options.n_ctx));
  need.state = arena_bytes(Qwen35State::state_bytes(c));
  need.scratch = arena_bytes(Scratch::bytes(c, options.chunk));
  need.total = need.weights + need.kv + need.state + need.scratch;
  return need;
}

Result<MemoryNeed> qwen35_memory_need(const artifact::Gguf& file, const LoadOptions& options) {
  TRY(const Qwen35Config config, usable_config(file));
  TRY(const LoadOptions resolved, resolve(options, config.n_ctx_train));
  return need_of(file, config, resolved);
}

Result<std::unique_ptr<Model>> load_qwen35(const artifact::Gguf& file, const LoadOptions& options) {
  TRY(Qwen35Config config, usable_config(file));
  TRY(const LoadOptions resolved, resolve(options, config.n_ctx_train));
  TRY_VOID(check_memory(need_of(file, config, resolved)));
  TRY(const kernels::OpTable* const ops, kernels::cpu_ops());
  if (config.nextn > 0 && nextn_is_absent(file, config))
    log_warn(fmt::format(
        "{} announces a multi-token-prediction layer and does not hold it; going on without.",
        file.path().string()));
  std::unique_ptr<Qwen35Model> model;
  try {
    model = std::make_unique<Qwen35Model>(std::move(config), resolved, *ops);
  } catch (const std::system_error&) {
    return fail(ErrorCode::engine_error,
                fmt::format("The system refused {} threads.", resolved.threads),
                "Use fewer with --threads, or raise the limit on processes.");
  }
  TRY_VOID(model->load_weights(file));
  return std::unique_ptr<Model>(std::move(model));
}

std::vector<std::string> qwen35_unsupported(const artifact::Gguf& file) {
  const auto config = read_qwen35_config(file);
  if (!config) return {config.error().message};
  return check_file(file, *config);
}

}  // namespace

const Architecture kQwen35 = {"qwen35", load_qwen35, qwen35_memory_need, qwen35_unsupported};

}  // namespace ponder::models
