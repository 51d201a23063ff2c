#include "engine/models/metadata_reader.h"

#include <fmt/format.h>

#include <algorithm>

namespace ponder::models {
namespace {

Result<std::int64_t> bounded(const std::string& key, std::int64_t value, std::int64_t min,
                             std::int64_t max) {
  if (value < min || value > max)
    return unusable(fmt::format("{} is {}, which is not between {} and {}.", key, value, min, max));
  return value;
}
Result<double> bounded(const std::string& key, double value, double min, double max) {
  if (!(value >= min && value <= max))
    return unusable(fmt::format("{} is {}, which is not between {} and {}.", key, value, min, max));
  return value;
}

/// Arrays that go with the vocabulary have its length, and special ids lie inside it.
Result<void> check_tokenizer(const artifact::Gguf& file, std::int64_t vocab) {
  const auto tokens = file.array_length("tokenizer.ggml.tokens");
  if (!tokens) return {};  // a model without its tokenizer can still be computed
  if (*tokens != static_cast<std::uint64_t>(vocab))
    return unusable(fmt::format("The tokenizer has {} tokens, but token_embd.weight has {} rows.",
                                *tokens, vocab));
  for (const char* key : {"tokenizer.ggml.token_type", "tokenizer.ggml.scores"}) {
    const auto length = file.array_length(key);
    if (length && *length != *tokens)
      return unusable(fmt::format("{} has {} entries for {} tokens.", key, *length, *tokens));
  }
  for (const std::string& key : file.keys()) {
    if (!key.starts_with("tokenizer.ggml.") || !key.ends_with("_token_id")) continue;
    const auto id = file.integer(key);
    if (!id || *id < 0 || *id >= vocab)
      return unusable(fmt::format("{} names no token of the {} in the vocabulary.", key, vocab));
  }
  return {};
}

}  // namespace

tl::unexpected<Error> unusable(std::string message, std::string hint) {
  return fail(ErrorCode::engine_error, std::move(message), std::move(hint));
}

Result<std::int64_t> MetadataReader::integer(std::string_view name, std::int64_t min,
                                             std::int64_t max) const {
  const auto value = file_.integer(key(name));
  if (!value)
    return unusable(fmt::format("The metadata key {} is missing or no integer.", key(name)));
  return bounded(key(name), *value, min, max);
}

Result<std::int64_t> MetadataReader::integer_or(std::string_view name, std::int64_t fallback,
                                                std::int64_t min, std::int64_t max) const {
  return bounded(key(name), file_.integer(key(name)).value_or(fallback), min, max);
}

Result<double> MetadataReader::number(std::string_view name, double min, double max) const {
  const auto value = file_.number(key(name));
  if (!value)
    return unusable(fmt::format("The metadata key {} is missing or no number.", key(name)));
  return bounded(key(name), *value, min, max);
}

Result<double> MetadataReader::number_or(std::string_view name, double fallback, double min,
                                         double max) const {
  return bounded(key(name), file_.number(key(name)).value_or(fallback), min, max);
}

Result<std::int64_t> MetadataReader::integer_per_layer(std::string_view name,
                                                       std::int64_t max) const {
  const auto array = file_.integers(key(name));
  if (!array) return integer(name, 1, max);
  std::int64_t found = 0;
  for (const std::int64_t value : *array) {
    if (value == 0) continue;
    if (found != 0 && value != found)
      return unusable(
          fmt::format("{} differs from layer to layer ({} and {}), which this build does not "
                      "compute.",
                      key(name), found, value));
    found = value;
  }
  return bounded(key(name), found, 1, max);
}

Result<void> MetadataReader::no_rope_scaling() const {
  const auto type = file_.string(key("rope.scaling.type"));
  if (type && *type != "none" && !type->empty())
    return unusable(
        fmt::format("The file uses the rope scaling \"{}\", which this build does not compute.",
                    type->substr(0, 40)),
        "Use a file without rope scaling; its own context length is not changed by it.");
  return {};
}

Result<void> MetadataReader::read_sizes(DecoderConfig& c) const {
  TRY(const std::int64_t blocks, integer("block_count", 1, 1024));
  TRY(c.nextn, integer_or("nextn_predict_layers", 0, 0, blocks - 1));
  c.layers.assign(static_cast<std::size_t>(blocks - c.nextn), {});
  TRY(c.hidden, integer("embedding_length", 1, 1 << 17));
  TRY(c.n_ctx_train, integer("context_length", 1, 1 << 30));
  TRY(const double eps, number("attention.layer_norm_rms_epsilon", 1e-12, 0.1));
  c.eps = static_cast<float>(eps);
  return {};
}

Result<void> MetadataReader::read_attention(DecoderConfig& c) const {
  AttentionConfig& a = c.attention;
  TRY(a.heads, integer_per_layer("attention.head_count", 1024));
  TRY(a.kv_heads, file_.integers(key("attention.head_count_kv")) ||
                          file_.integer(key("attention.head_count_kv"))
                      ? integer_per_layer("attention.head_count_kv", 1024)
                      : Result<std::int64_t>(a.heads));
  if (a.heads % a.kv_heads != 0)
    return unusable(
        fmt::format("{} attention heads cannot share {} KV heads evenly.", a.heads, a.kv_heads));
  TRY(a.head_dim, integer_or("attention.key_length", c.hidden / a.heads, 16, 256));
  TRY(const std::int64_t value_length,
      integer_or("attention.value_length", a.head_dim, 1, 1 << 16));
  if (a.head_dim % 16 != 0 || value_length != a.head_dim)
    return unusable(fmt::format(
        "Attention heads of {} (keys) and {} (values) cannot be computed: both must be the "
        "same multiple of 16.",
        a.head_dim, value_length));
  TRY(a.rot, integer_or("rope.dimension_count", a.head_dim, 2, a.head_dim));
  if (a.rot % 2 != 0)
    return unusable(fmt::format("{} is {}; it must be even.", key("rope.dimension_count"), a.rot));
  TRY(a.theta, number_or("rope.freq_base", 10000, 1, 1e12));
  return {};
}

Result<void> MetadataReader::read_vocabulary(DecoderConfig& c) const {
  const artifact::TensorInfo* embedding = file_.find("token_embd.weight");
  if (embedding) {
    if (embedding->extents.size() != 2 || embedding->extents[1] > (1u << 21))
      return unusable("token_embd.weight is no matrix of at most 2,097,152 rows.");
    c.vocab = static_cast<std::int64_t>(embedding->extents[1]);
    TRY_VOID(check_tokenizer(file_, c.vocab));
  }
  // an output of a type that cannot be computed is still an output
  const auto& foreign = file_.foreign_tensors();
  c.tied = file_.find("output.weight") == nullptr &&
           std::none_of(foreign.begin(), foreign.end(),
                        [](const auto& t) { return t.name == "output.weight"; });
  return {};
}

}  // namespace ponder::models
