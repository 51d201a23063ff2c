#include "engine/models/qwen35_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ponder::models {
namespace {

tl::unexpected<Error> bad(std::string message, std::string hint = {}) {
  return fail(ErrorCode::engine_error, std::move(message), std::move(hint));
}

class Reader {
 public:
  explicit Reader(const artifact::Gguf& file) : file_(file) {}

  Result<std::int64_t> integer(std::string_view name, std::int64_t min, std::int64_t max) const {
    const std::string key = fmt::format("qwen35.{}", name);
    const auto value = file_.integer(key);
    if (!value) return bad(fmt::format("The metadata key {} is missing or no integer.", key));
    return bounded(key, *value, min, max);
  }
  Result<std::int64_t> integer_or(std::string_view name, std::int64_t fallback, std::int64_t min,
                                  std::int64_t max) const {
    const std::string key = fmt::format("qwen35.{}", name);
    return bounded(key, file_.integer(key).value_or(fallback), min, max);
  }
  Result<double> number(std::string_view name, double min, double max) const {
    const std::string key = fmt::format("qwen35.{}", name);
    const auto value = file_.number(key);
    if (!value) return bad(fmt::format("The metadata key {} is missing or no number.", key));
    if (!(*value >= min && *value <= max))
      return bad(fmt::format("{} is {}, which is not between {} and {}.", key, *value, min, max));
    return *value;
  }
  /// One number, or an array with one a layer in which layers of the other kind hold 0 and all
  /// others agree (files made by Ollama).
  Result<std::int64_t> integer_per_layer(std::string_view name, std::int64_t max) const {
    const std::string key = fmt::format("qwen35.{}", name);
    const auto array = file_.integers(key);
    if (!array) return integer(name, 1, max);
    std::int64_t found = 0;
    for (const std::int64_t value : *array) {
      if (value == 0) continue;
      if (found != 0 && value != found)
        return bad(
            fmt::format("{} differs from layer to layer ({} and {}), which this build does not "
                        "compute.",
                        key, found, value));
      found = value;
    }
    return bounded(key, found, 1, max);
  }

 private:
  static Result<std::int64_t> bounded(const std::string& key, std::int64_t value, std::int64_t min,
                                      std::int64_t max) {
    if (value < min || value > max)
      return bad(fmt::format("{} is {}, which is not between {} and {}.", key, value, min, max));
    return value;
  }
  const artifact::Gguf& file_;
};

Result<void> read_layer_kinds(const artifact::Gguf& file, const Reader& read, Qwen35Config& c) {
  TRY(const std::int64_t interval, read.integer_or("full_attention_interval", 4, 1, 1024));
  for (std::int64_t i = 0; i < c.layers; ++i)
    c.recurrent.push_back((i + 1) % interval != 0);
  const auto kinds = file.integers("qwen35.attention.recurrent_layers");
  if (!kinds) return {};
  if (static_cast<std::int64_t>(kinds->size()) < c.layers)
    return bad(fmt::format("qwen35.attention.recurrent_layers has {} entries for {} layers.",
                           kinds->size(), c.layers));
  for (std::int64_t i = 0; i < c.layers; ++i)
    c.recurrent[i] = (*kinds)[i] != 0;
  return {};
}

Result<void> check_rope_scaling(const artifact::Gguf& file) {
  const auto type = file.string("qwen35.rope.scaling.type");
  if (type && *type != "none" && !type->empty())
    return bad(
        fmt::format("The file uses the rope scaling \"{}\", which this build does not compute.",
                    type->substr(0, 40)),
        "Use a file without rope scaling; its own context length is not changed by it.");
  return {};
}

/// Arrays that go with the vocabulary have its length, and special ids lie inside it.
Result<void> check_vocabulary(const artifact::Gguf& file, std::int64_t vocab) {
  const auto tokens = file.array_length("tokenizer.ggml.tokens");
  if (!tokens) return {};  // a model without its tokenizer can still be computed
  if (*tokens != static_cast<std::uint64_t>(vocab))
    return bad(fmt::format("The tokenizer has {} tokens, but token_embd.weight has {} rows.",
                           *tokens, vocab));
  for (const char* key : {"tokenizer.ggml.token_type", "tokenizer.ggml.scores"}) {
    const auto length = file.array_length(key);
    if (length && *length != *tokens)
      return bad(fmt::format("{} has {} entries for {} tokens.", key, *length, *tokens));
  }
  for (const std::string& key : file.keys()) {
    if (!key.starts_with("tokenizer.ggml.") || !key.ends_with("_token_id")) continue;
    const auto id = file.integer(key);
    if (!id || *id < 0 || *id >= vocab)
      return bad(fmt::format("{} names no token of the {} in the vocabulary.", key, vocab));
  }
  return {};
}

}  // namespace

std::int64_t Qwen35Config::attention_layers() const {
  return std::count(recurrent.begin(), recurrent.end(), false);
}

Result<Qwen35Config> read_qwen35_config(const artifact::Gguf& file) {
  const Reader read(file);
  Qwen35Config c;
  TRY(const std::int64_t blocks, read.integer("block_count", 1, 1024));
  TRY(c.nextn, read.integer_or("nextn_predict_layers", 0, 0, blocks - 1));
  c.layers = blocks - c.nextn;
  TRY(c.hidden, read.integer("embedding_length", 1, 1 << 17));
  TRY(c.ffn, read.integer("feed_forward_length", 1, 1 << 20));
  TRY(c.n_ctx_train, read.integer("context_length", 1, 1 << 30));
  TRY(c.heads, read.integer_per_layer("attention.head_count", 1024));
  TRY(c.kv_heads, read.integer_per_layer("attention.head_count_kv", 1024));
  if (c.heads % c.kv_heads != 0)
    return bad(
        fmt::format("{} attention heads cannot share {} KV heads evenly.", c.heads, c.kv_heads));
  TRY(c.head_dim, read.integer("attention.key_length", 16, 256));
  TRY(const std::int64_t value_length,
      read.integer_or("attention.value_length", c.head_dim, 1, 1 << 16));
  if (c.head_dim % 16 != 0 || value_length != c.head_dim)
    return bad(fmt::format(
        "Attention heads of {} (keys) and {} (values) cannot be computed: both must be the "
        "same multiple of 16.",
        c.head_dim, value_length));
  TRY(c.rot, read.integer_or("rope.dimension_count", c.head_dim, 2, c.head_dim));
  if (c.rot % 2 != 0)
    return bad(fmt::format("qwen35.rope.dimension_count is {}; it must be even.", c.rot));
  TRY(c.theta, read.number("rope.freq_base", 1, 1e12));
  TRY(const double eps, read.number("attention.layer_norm_rms_epsilon", 1e-12, 0.1));
  c.eps = static_cast<float>(eps);

  TRY(const std::int64_t taps, read.integer("ssm.conv_kernel", 1, 1024));
  if (taps != 4)
    return bad(fmt::format("qwen35.ssm.conv_kernel is {}; only 4 can be computed.", taps));
  TRY(c.dk, read.integer("ssm.state_size", 16, 1024));
  if (c.dk % 16 != 0)
    return bad(fmt::format("qwen35.ssm.state_size is {}; it must be a multiple of 16.", c.dk));
  TRY(c.k_heads, read.integer("ssm.group_count", 1, 1024));
  TRY(c.v_heads, read.integer("ssm.time_step_rank", 1, 1024));
  if (c.v_heads % c.k_heads != 0)
    return bad(
        fmt::format("{} value heads cannot share {} key heads evenly.", c.v_heads, c.k_heads));
  TRY(const std::int64_t inner, read.integer("ssm.inner_size", 1, 1 << 20));
  if (inner != c.value_dim())
    return bad(fmt::format("qwen35.ssm.inner_size is {} instead of {} heads of {}.", inner,
                           c.v_heads, c.dk));
  TRY_VOID(read_layer_kinds(file, read, c));
  TRY_VOID(check_rope_scaling(file));

  const artifact::TensorInfo* embedding = file.find("token_embd.weight");
  if (embedding) {
    if (embedding->extents.size() != 2 || embedding->extents[1] > (1u << 21))
      return bad("token_embd.weight is no matrix of at most 2,097,152 rows.");
    c.vocab = static_cast<std::int64_t>(embedding->extents[1]);
    TRY_VOID(check_vocabulary(file, c.vocab));
  }
  // an output of a type that cannot be computed is still an output
  const auto& foreign = file.foreign_tensors();
  c.tied = file.find("output.weight") == nullptr &&
           std::none_of(foreign.begin(), foreign.end(),
                        [](const auto& t) { return t.name == "output.weight"; });
  return c;
}

}  // namespace ponder::models
