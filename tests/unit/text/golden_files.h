#pragma once
// What the tests of this room read from the source tree: the bundled vocabulary and golden files.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/text/tokenizer.h"

namespace ponder::text {

/// The bytes of a file below the source tree; a missing one ends the test program.
std::string read_source_file(std::string_view path);
/// One JSON object a line, from tests/golden/text.
std::vector<json::object> read_golden_lines(std::string_view name);
std::vector<json::object> read_json_lines(std::string_view path);

/// models/pebble/tokenizer.json as a GGUF file would state it, with this pre-tokenizer. The three
/// tokens that end or begin turns are control tokens, the tags are user-defined.
TokenizerSpec pebble_spec(std::string_view pre = "qwen35");
/// Made once.
const Tokenizer& pebble_tokenizer();
/// The beginning of SmolLM2's vocabulary (tests/golden/text/smollm_vocab.json).
TokenizerSpec smollm_spec();

}  // namespace ponder::text
