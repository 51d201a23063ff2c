#include "engine/run/load.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <utility>

#include "engine/base/utf8.h"

namespace ponder::run {
namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";

/// "-00001-of-00003" at the end of a stem, as llama.cpp names split files.
std::string without_split_number(std::string stem) {
  constexpr std::size_t kSize = 15;
  if (stem.size() <= kSize) return stem;
  const std::string tail = stem.substr(stem.size() - kSize);
  for (std::size_t i = 0; i < kSize; ++i) {
    const char want = "-ddddd-of-ddddd"[i];
    if (want == 'd' ? !std::isdigit(static_cast<unsigned char>(tail[i])) : tail[i] != want)
      return stem;
  }
  return stem.substr(0, stem.size() - kSize);
}

constexpr const char* kBosKey = "tokenizer.ggml.bos_token_id";
constexpr const char* kEosKey = "tokenizer.ggml.eos_token_id";

tl::unexpected<Error> no_vocabulary(const artifact::Gguf& file, const std::string& why) {
  return fail(ErrorCode::model_missing,
              fmt::format("{} is not usable: {}", file.path().filename().string(), why),
              "use a whole model file; it brings its tokenizer along");
}

/// The special token that `key` names among `tokens` of them, or -1 where the file names none.
Result<text::TokenId> special_id(const artifact::Gguf& file, const char* key, std::size_t tokens) {
  const std::int64_t id = file.integer(key).value_or(-1);
  if (id < -1 || id >= static_cast<std::int64_t>(tokens))
    return no_vocabulary(file, fmt::format("{} is {}, and it has {} tokens", key, id, tokens));
  return static_cast<text::TokenId>(id);
}

/// The variables that templates know special tokens by.
Result<json::object> special_texts(const artifact::Gguf& file, const text::Tokenizer& tokenizer) {
  constexpr std::pair<const char*, const char*> kVariables[] = {
      {"bos_token", kBosKey},
      {"eos_token", kEosKey},
      {"pad_token", "tokenizer.ggml.padding_token_id"},
      {"unk_token", "tokenizer.ggml.unknown_token_id"}};
  json::object texts;
  for (const auto& [variable, key] : kVariables) {
    TRY(const text::TokenId id, special_id(file, key, static_cast<std::size_t>(tokenizer.size())));
    if (id >= 0) texts[variable] = replace_invalid(tokenizer.bytes_of(id));
  }
  return texts;
}

bool is_bundled(const std::filesystem::path& file) {
  return file.filename().string().starts_with("pebble-");
}

}  // namespace

Result<models::KvType> parse_kv(std::string_view name) {
  if (name == "f32") return models::KvType::f32;
  if (name == "f16") return models::KvType::f16;
  if (name == "q8_0") return models::KvType::q8_0;
  if (name == "r4") return models::KvType::r4;
  return fail(ErrorCode::bad_request,
              fmt::format("the attention cache cannot be kept as {}", name.substr(0, 20)),
              "use --kv f32, f16, q8_0 or r4");
}

Result<text::TokenizerSpec> tokenizer_spec(const artifact::Gguf& file) {
  const auto missing = [&](std::string_view key) {
    return no_vocabulary(file, fmt::format("it has no {}", key));
  };
  text::TokenizerSpec spec;
  auto model = file.string("tokenizer.ggml.model");
  if (!model) return missing("tokenizer.ggml.model");
  spec.model = std::move(*model);
  spec.pre = file.string("tokenizer.ggml.pre").value_or("");
  auto tokens = file.strings(kTokens);
  if (!tokens) return missing(kTokens);
  spec.tokens = std::move(*tokens);
  if (const auto types = file.integers("tokenizer.ggml.token_type")) {
    for (const std::int64_t type : *types)  // -1 is no type either
      spec.types.push_back(std::in_range<std::int32_t>(type) ? static_cast<std::int32_t>(type)
                                                             : -1);
  } else {
    spec.types.assign(spec.tokens.size(), 1);
  }
  if (auto merges = file.strings("tokenizer.ggml.merges")) spec.merges = std::move(*merges);
  TRY(spec.bos, special_id(file, kBosKey, spec.tokens.size()));
  TRY(spec.eos, special_id(file, kEosKey, spec.tokens.size()));
  return spec;
}

Result<Vocabulary> load_vocabulary(const artifact::Gguf& file) {
  Vocabulary v;
  TRY(text::TokenizerSpec spec, tokenizer_spec(file));
  TRY(v.tokenizer, text::Tokenizer::create(std::move(spec)));
  TRY(v.special_texts, special_texts(file, *v.tokenizer));
  if (const auto source = file.string("tokenizer.chat_template")) {
    if (auto compiled = text::ChatTemplate::compile(*source))
      v.chat_template = std::move(*compiled);
    else
      v.template_fault = std::move(compiled).error();
    v.template_knows_developer = source->find("developer") != std::string::npos;
  }
  return v;
}

std::string model_id_of(const std::filesystem::path& file) {
  return is_bundled(file) ? "pebble" : without_split_number(file.stem().string());
}

std::string model_class_of(const std::filesystem::path& file) {
  return is_bundled(file) ? "demo" : "user";
}

Result<LoadedModel> load_model(const EngineOptions& options) {
  TRY(const std::unique_ptr<artifact::Gguf> file, artifact::Gguf::open(options.model_path));
  LoadedModel loaded;
  TRY(loaded.vocabulary, load_vocabulary(*file));
  TRY(loaded.model, models::Model::load(*file, options.load));
  if (loaded.vocabulary.tokenizer->size() > loaded.model->vocab())
    return fail(ErrorCode::engine_error,
                fmt::format("{} is not usable: its tokenizer has {} tokens and its weights {}",
                            options.model_path.filename().string(),
                            loaded.vocabulary.tokenizer->size(), loaded.model->vocab()));
  loaded.info.id = options.model_id.empty() ? model_id_of(options.model_path) : options.model_id;
  loaded.info.model_class =
      options.model_class.empty() ? model_class_of(options.model_path) : options.model_class;
  loaded.info.path = options.model_path.string();
  loaded.info.n_ctx = loaded.model->n_ctx();
  loaded.info.device = loaded.model->device();
  return loaded;
}

}  // namespace ponder::run
