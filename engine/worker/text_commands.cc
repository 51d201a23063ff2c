// `ponder-engine tokenize`, `detokenize` and `render`: text to ids and back, without weights.
#include "engine/base/json.h"
#include "engine/base/utf8.h"
#include "engine/run/prompt.h"
#include "engine/worker/command_input.h"
#include "engine/worker/commands.h"

namespace ponder::worker {
namespace {

Result<run::Vocabulary> open_vocabulary(const ModelArguments& model) {
  TRY(const std::unique_ptr<artifact::Gguf> file, artifact::Gguf::open(model.file));
  return run::load_vocabulary(*file);
}

json::array ids_array(const std::vector<text::TokenId>& ids) {
  json::array out;
  out.reserve(ids.size());
  for (const text::TokenId id : ids)
    out.emplace_back(id);
  return out;
}

}  // namespace

Result<int> run_tokenize(const ModelArguments& model, bool special) {
  TRY(const run::Vocabulary vocabulary, open_vocabulary(model));
  TRY(const std::string text, read_stdin());
  TRY_VOID(write_stdout(to_json(ids_array(vocabulary.tokenizer->encode(text, special))) + "\n"));
  return kExitDone;
}

Result<int> run_detokenize(const ModelArguments& model) {
  TRY(const run::Vocabulary vocabulary, open_vocabulary(model));
  TRY(const std::vector<text::TokenId> ids, read_ids(vocabulary.tokenizer->size()));
  TRY_VOID(write_stdout(vocabulary.tokenizer->decode(ids)));
  return kExitDone;
}

Result<int> run_render(const ModelArguments& model) {
  TRY(const run::Vocabulary vocabulary, open_vocabulary(model));
  TRY(const std::string text, read_stdin());
  TRY(const json::object body, parse_json_object(text));
  GenerationRequest request;
  TRY(request.chat, parse_chat_request(body));
  TRY(const run::RenderedPrompt prompt, run::render_prompt(vocabulary, request));
  const json::object out{{"prompt", replace_invalid(prompt.text)}, {"ids", ids_array(prompt.ids)}};
  TRY_VOID(write_stdout(to_json(out) + "\n"));
  return kExitDone;
}

}  // namespace ponder::worker
