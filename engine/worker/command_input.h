#pragma once
// What several commands of `ponder-engine` read: stdin, ids, a model.
#include <memory>
#include <string>
#include <vector>

#include "engine/artifact/gguf.h"
#include "engine/run/load.h"
#include "engine/worker/commands.h"

namespace ponder::worker {

/// All of stdin; too_large past 64 MiB.
Result<std::string> read_stdin();
/// stdin as one JSON array of token ids from 0 to below `vocab`.
Result<std::vector<text::TokenId>> read_ids(std::int32_t vocab);
/// Whole to stdout, whatever bytes; storage when nobody takes them.
Result<void> write_stdout(std::string_view bytes);

Result<models::LoadOptions> load_options(const ModelArguments& arguments);
Result<run::LoadedModel> load(const ModelArguments& arguments);
/// The model alone, for what reads and writes only ids: a file without a tokenizer will do.
Result<std::unique_ptr<models::Model>> load_weights(const ModelArguments& arguments);
/// bad_request where `spec` names a depth and the model has no draft layer.
Result<void> check_spec(int spec, const models::Model& model);

}  // namespace ponder::worker
