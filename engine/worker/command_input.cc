#include "engine/worker/command_input.h"

#include <fmt/core.h>

#include <cstdio>

#include "engine/base/json.h"

namespace ponder::worker {
namespace {
constexpr std::size_t kMaxInput = 64u << 20;
}

Result<std::string> read_stdin() {
  std::string text;
  char bytes[64 << 10];
  for (std::size_t n; (n = std::fread(bytes, 1, sizeof bytes, stdin)) > 0;) {
    text.append(bytes, n);
    if (text.size() > kMaxInput)
      return fail(ErrorCode::too_large, fmt::format("stdin holds more than {} bytes", kMaxInput));
  }
  if (std::ferror(stdin) != 0) return fail(ErrorCode::bad_request, "stdin cannot be read");
  return text;
}

Result<std::vector<text::TokenId>> read_ids(std::int32_t vocab) {
  TRY(const std::string text, read_stdin());
  const Result<json::value> value = parse_json(text, {kMaxInput, 4});
  const json::array* array = value ? value->if_array() : nullptr;
  if (!array)
    return fail(ErrorCode::bad_request,
                "stdin must hold one JSON array of token ids, such as [1, 2, 3]",
                "ponder-engine tokenize prints one");
  std::vector<text::TokenId> ids;
  ids.reserve(array->size());
  for (const json::value& id : *array) {
    if (!id.is_int64() || id.as_int64() < 0 || id.as_int64() >= vocab)
      return fail(ErrorCode::bad_request,
                  fmt::format("{} is not a token id of this model; they go from 0 to {}",
                              to_json(id).substr(0, 40), vocab - 1));
    ids.push_back(static_cast<text::TokenId>(id.as_int64()));
  }
  return ids;
}

Result<void> write_stdout(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size() ||
      std::fflush(stdout) != 0)
    return fail(ErrorCode::storage, "stdout cannot be written to");
  return {};
}

Result<models::LoadOptions> load_options(const ModelArguments& arguments) {
  models::LoadOptions options;
  options.n_ctx = arguments.n_ctx;
  options.threads = arguments.threads;
  options.chunk = arguments.chunk;
  options.drafts = arguments.drafts;
  TRY(options.kv, run::parse_kv(arguments.kv));
  return options;
}

Result<run::LoadedModel> load(const ModelArguments& arguments) {
  run::EngineOptions options;
  options.model_path = arguments.file;
  TRY(options.load, load_options(arguments));
  return run::load_model(options);
}

Result<std::unique_ptr<models::Model>> load_weights(const ModelArguments& arguments) {
  TRY(const models::LoadOptions options, load_options(arguments));
  TRY(const std::unique_ptr<artifact::Gguf> file, artifact::Gguf::open(arguments.file));
  return models::Model::load(*file, options);
}

Result<void> check_spec(int spec, const models::Model& model) {
  if (spec <= 0 || model.drafts()) return {};
  return fail(ErrorCode::bad_request, "this model has no layer to draft tokens with",
              "leave --spec away, or use --spec -1 for drafts from the text itself");
}

}  // namespace ponder::worker
