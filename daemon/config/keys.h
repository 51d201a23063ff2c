#pragma once
// The table of settings: one row a key. The file, the environment and the flags are read through
// it, and docs/config.md is checked against it.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/config.h"
#include "engine/base/json.h"

namespace ponder::daemon {

struct Key {
  enum class Type { text, whole, number, list };
  std::string name;
  Type type;
  std::string limits;  ///< for people: "0 to 65535", "cpu, stub"
  std::string help;
  /// Checks and stores; the error is a sentence without the key's name.
  std::function<Result<void>(Config&, const json::value&)> set;
  std::function<json::value(const Config&)> get;
  bool live = false;  ///< may change while the daemon runs (SIGHUP)
};

const std::vector<Key>& keys();
const Key* find_key(std::string_view name);
/// The key that `name` most likely meant.
const Key& nearest_key(std::string_view name);

/// "text", "whole number", "number", "list of texts".
std::string_view type_word(Key::Type type);
/// The value as it stands in ponder.toml.
std::string toml_text(const json::value& value);
/// The rows as a Markdown table, as docs/config.md holds it.
std::string markdown_table();

}  // namespace ponder::daemon
