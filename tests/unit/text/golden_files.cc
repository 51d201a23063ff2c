#include "tests/unit/text/golden_files.h"

#include <stdlib.h>

#include <fstream>
#include <sstream>

#include "engine/base/check.h"

namespace ponder::text {
namespace {

// Property tests draw the same cases in every run; RC_PARAMS in the environment draws others.
const bool kSeeded = setenv("RC_PARAMS", "seed=20260801", 0) == 0;

}  // namespace

std::string read_source_file(std::string_view path) {
  std::ifstream file(std::string(PONDER_SOURCE_DIR) + "/" + std::string(path), std::ios::binary);
  CHECK_MSG(file.good() && kSeeded, path);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::vector<json::object> read_json_lines(std::string_view path) {
  std::istringstream lines(read_source_file(path));
  std::vector<json::object> objects;
  for (std::string line; std::getline(lines, line);) {
    auto object = parse_json_object(line);
    CHECK_MSG(object.has_value(), object ? "" : object.error().message);
    objects.push_back(std::move(*object));
  }
  return objects;
}

std::vector<json::object> read_golden_lines(std::string_view name) {
  return read_json_lines("tests/golden/text/" + std::string(name));
}

TokenizerSpec pebble_spec(std::string_view pre) {
  const auto file = parse_json_object(read_source_file("models/pebble/tokenizer.json"));
  CHECK(file.has_value());
  const json::object& model = file->at("model").as_object();
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = pre;
  const json::object& vocabulary = model.at("vocab").as_object();
  const json::array& added = file->at("added_tokens").as_array();
  const std::size_t size = vocabulary.size() + added.size();
  spec.tokens.resize(size);
  spec.types.resize(size, 1);
  for (const auto& [text, id] : vocabulary)
    spec.tokens[static_cast<std::size_t>(id.as_int64())] = std::string(text);
  for (const json::value& token : added) {
    const auto id = static_cast<std::size_t>(token.at("id").as_int64());
    spec.tokens[id] = std::string(token.at("content").as_string());
    spec.types[id] = spec.tokens[id].substr(0, 2) == "<|" ? 3 : 4;
    if (spec.tokens[id] == "<|im_end|>") spec.eos = static_cast<TokenId>(id);
  }
  for (const json::value& merge : model.at("merges").as_array())
    spec.merges.push_back(std::string(merge.as_array()[0].as_string()) + " " +
                          std::string(merge.as_array()[1].as_string()));
  return spec;
}

TokenizerSpec smollm_spec() {
  const auto file = parse_json_object(read_source_file("tests/golden/text/smollm_vocab.json"));
  CHECK(file.has_value());
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = "smollm";
  for (const char* kind : {"added", "bytes"})
    for (const json::value& token : file->at(kind).as_array()) {
      spec.tokens.emplace_back(token.as_string());
      spec.types.push_back(kind == std::string_view("added") ? 3 : 1);
    }
  for (const json::value& merge : file->at("merges").as_array()) {
    spec.merges.emplace_back(merge.as_string());
    std::string whole = spec.merges.back();
    whole.erase(whole.find(' ', 1), 1);
    spec.tokens.push_back(std::move(whole));
    spec.types.push_back(1);
  }
  spec.bos = 1;
  spec.eos = 2;
  return spec;
}

const Tokenizer& pebble_tokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::create(pebble_spec()).value();
  return *tokenizer;
}

}  // namespace ponder::text
