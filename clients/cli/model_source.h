#pragma once
// Where a model file comes from: the words of `ponder pull`, and what a server's headers tell of
// the file. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"

namespace ponder::cli {

struct ModelFile {
  std::string url;
  std::string name;      ///< in models/, ends in .gguf
  bool is_part = false;  ///< of a split file: alone it is no model
};

struct ModelSource {
  std::vector<ModelFile> files;  ///< one, or all parts of a split file
  bool from_hub = false;         ///< the hub's token may be sent along
};

/// `word` is https://HOST/PATH/FILE.gguf (http:// only from this machine), or
/// hf:OWNER/REPO/FILE.gguf
/// [@REVISION] for the hub at `hub_url`. FILE-00001-of-0000N.gguf stands for all N parts. `name`
/// replaces the file's name where it is not empty (not for a split file). bad_request otherwise.
Result<ModelSource> read_model_source(std::string_view word, std::string_view name,
                                      std::string_view hub_url);

/// What the headers of a request and of its redirects say; a field is empty where none does.
struct RemoteFile {
  int status = 0;  ///< of the last response
  std::optional<std::int64_t> bytes;
  std::string sha256;   ///< 64 hexadecimal digits: hubs tell it as the linked entity's tag
  std::string version;  ///< entity tag or date: equal means the same bytes
};
RemoteFile read_headers(std::string_view text);

/// 64 hexadecimal digits, as lower case ones; empty if `text` is something else.
std::string read_sha256(std::string_view text);

}  // namespace ponder::cli
