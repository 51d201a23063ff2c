#pragma once
// From a model file to the parts that read and write with it. What GGUF calls things is known
// here; what they do is the business of engine/text and engine/models.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "engine/artifact/gguf.h"
#include "engine/base/error.h"
#include "engine/generator/generator.h"
#include "engine/models/model.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

namespace ponder::run {

/// "f32", "f16", "q8_0" or "r4"; bad_request names them.
Result<models::KvType> parse_kv(std::string_view name);

/// The keys tokenizer.ggml.*; model_missing names the one that is not there or makes no sense.
Result<text::TokenizerSpec> tokenizer_spec(const artifact::Gguf& file);

/// What a model reads and writes: its tokenizer and, if the file has one, its chat template.
struct Vocabulary {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  ///< may be null
  std::optional<Error> template_fault = {};  ///< why the file's template cannot be used
  bool template_knows_developer = false;     ///< else such messages are rendered as system
  /// bos_token, eos_token, pad_token and unk_token, as far as the file names them: their texts,
  /// for templates that write them.
  json::object special_texts = {};
};
Result<Vocabulary> load_vocabulary(const artifact::Gguf& file);

/// "pebble" for the bundled file (its name starts with "pebble-"), else the file's stem, without
/// the numbers of a split file.
std::string model_id_of(const std::filesystem::path& file);
/// "demo" for the bundled file, else "user".
std::string model_class_of(const std::filesystem::path& file);

struct EngineOptions {
  std::filesystem::path model_path;
  std::string model_id = {};     ///< empty: from the file's name
  std::string model_class = {};  ///< empty: from the file's name
  models::LoadOptions load = {};
};

struct LoadedModel {
  Vocabulary vocabulary;
  std::unique_ptr<models::Model> model;
  ModelInfo info;
};
/// Everything. Takes seconds; out_of_memory and engine_error come from models::Model::load.
Result<LoadedModel> load_model(const EngineOptions& options);

}  // namespace ponder::run
