// Merges the sources of settings. Nothing here stops at the first problem: a person who mends a
// file wants to hear all of them.
#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <sstream>

#include <toml++/toml.h>

#include "daemon/config/keys.h"

namespace ponder::daemon {
namespace {

constexpr std::uintmax_t kMaxFileBytes = 1 << 20;

using Problems = std::vector<std::string>;

void apply(Config& config, const Key& key, const json::value& value, const std::string& source,
           const std::string& spelling, Problems& problems) {
  if (auto stored = key.set(config, value); !stored)
    problems.push_back(fmt::format("{}: {}", spelling, stored.error().message));
  else
    config.origin[key.name] = source;
}

/// null for what no key can be (dates, tables).
json::value from_toml(const toml::node& node) {
  if (const auto* text = node.as_string()) return json::value(text->get());
  if (const auto* whole = node.as_integer()) return json::value(whole->get());
  if (const auto* number = node.as_floating_point()) return json::value(number->get());
  if (const auto* flag = node.as_boolean()) return json::value(flag->get());
  const auto* entries = node.as_array();
  if (!entries) return nullptr;
  json::array out;
  for (const toml::node& entry : *entries)
    out.push_back(from_toml(entry));
  return out;
}

void read_file(const std::filesystem::path& file, bool required, Config& config,
               Problems& problems) {
  std::error_code ec;
  if (!std::filesystem::exists(file, ec)) {
    if (required) problems.push_back(fmt::format("{}: there is no such file", file.string()));
    return;
  }
  if (std::filesystem::file_size(file, ec) > kMaxFileBytes || ec) {
    problems.push_back(fmt::format("{}: not a file of at most 1 MiB", file.string()));
    return;
  }
  std::ifstream stream(file, std::ios::binary);
  std::stringstream text;
  if (!stream || !(text << stream.rdbuf() || stream.eof())) {
    if (std::filesystem::file_size(file, ec) != 0)
      problems.push_back(fmt::format("{}: cannot be read", file.string()));
    return;
  }
  const std::string name = file.filename().string();
  const std::string content = text.str();
  toml::table table;
  try {
    table = toml::parse(content);
  } catch (const toml::parse_error& e) {
    const auto& where = e.source().begin;
    problems.push_back(
        fmt::format("{} line {} column {}: {}", name, where.line, where.column, e.description()));
    return;
  }
  std::vector<std::pair<std::string, const toml::node*>> in_order;  // the table sorts by key
  for (const auto& [word, node] : table)
    in_order.emplace_back(word.str(), &node);
  std::sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) {
    return a.second->source().begin.line < b.second->source().begin.line;
  });
  for (const auto& [key_name, node] : in_order) {
    const std::string spelling =
        fmt::format("{} line {}: {}", name, node->source().begin.line, key_name);
    if (const Key* key = find_key(key_name)) {
      apply(config, *key, from_toml(*node), name, spelling, problems);
    } else {
      problems.push_back(
          fmt::format("{}: unknown key; did you mean {}?", spelling, nearest_key(key_name).name));
    }
  }
}

/// Text from the environment or a flag, by the key's type; null if it is not of that type.
json::value from_text(const Key& key, const std::string& text) {
  const char* end = text.data() + text.size();
  switch (key.type) {
    case Key::Type::text:
      return json::value(text);
    case Key::Type::whole: {
      std::int64_t n = 0;
      const auto [stopped, problem] = std::from_chars(text.data(), end, n);
      return problem == std::errc() && stopped == end ? json::value(n) : json::value(nullptr);
    }
    case Key::Type::number: {
      double d = 0;
      const auto [stopped, problem] = std::from_chars(text.data(), end, d);
      return problem == std::errc() && stopped == end ? json::value(d) : json::value(nullptr);
    }
    case Key::Type::list: {
      json::array out;
      std::stringstream rest(text);
      for (std::string entry; std::getline(rest, entry, ',');)
        if (!entry.empty()) out.emplace_back(entry);
      return out;
    }
  }
  return nullptr;
}

void read_environment(const Environment& environment, Config& config, Problems& problems) {
  for (const Key& key : keys()) {
    std::string variable = "PONDER_" + key.name;
    std::transform(variable.begin(), variable.end(), variable.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    const char* text = environment(variable.c_str());
    if (text && *text) apply(config, key, from_text(key, text), variable, variable, problems);
  }
}

void read_flags(const FlagValues& flags, Config& config, Problems& problems) {
  for (const auto& [name, texts] : flags) {
    const Key* key = find_key(name);
    if (!key || texts.empty()) continue;
    json::value value;
    if (key->type == Key::Type::list) {
      json::array all;
      for (const std::string& text : texts)
        all.emplace_back(text);
      value = std::move(all);
    } else {
      value = from_text(*key, texts.back());
    }
    apply(config, *key, value, "--" + name, "--" + name, problems);
  }
}
}  // namespace

Result<Config> load_config(const std::filesystem::path& file, bool file_required,
                           const Environment& environment, const FlagValues& flags) {
  Config config;
  Problems problems;
  std::error_code ec;
  bool usage = file_required && !std::filesystem::exists(file, ec);
  read_file(file, file_required, config, problems);
  read_environment(environment, config, problems);
  const std::size_t before_flags = problems.size();
  read_flags(flags, config, problems);
  usage = usage || problems.size() > before_flags;
  if (problems.empty()) return config;
  std::string message;
  for (const std::string& problem : problems)
    message += (message.empty() ? "" : "\n") + problem;
  Error error{ErrorCode::bad_request, std::move(message), "docs/config.md lists the keys"};
  if (usage) error.details[kUsage] = 1;
  return fail(std::move(error));
}

std::string print_config(const Config& config) {
  std::string out;
  for (const Key& key : keys()) {
    const auto origin = config.origin.find(key.name);
    out += fmt::format("{} = {}  # {}\n", key.name, toml_text(key.get(config)),
                       origin == config.origin.end() ? "default" : origin->second);
  }
  return out;
}

Result<ListenAddress> parse_listen_address(const std::string& text) {
  const auto refuse = [&] {
    return fail(
        ErrorCode::bad_request,
        fmt::format("\"{}\" is not ADDR:PORT, such as 192.168.1.5:7663 or [::1]:7663", text));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) return refuse();
  ListenAddress out;
  out.address = text.substr(0, colon);
  int port = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, problem] = std::from_chars(text.data() + colon + 1, end, port);
  if (problem != std::errc() || stopped != end || port < 1 || port > 65535) return refuse();
  out.port = static_cast<std::uint16_t>(port);
  in_addr v4{};
  in6_addr v6{};
  if (out.address.front() == '[' && out.address.back() == ']') {
    out.address = out.address.substr(1, out.address.size() - 2);
    if (::inet_pton(AF_INET6, out.address.c_str(), &v6) != 1) return refuse();
    out.loopback = IN6_IS_ADDR_LOOPBACK(&v6);
  } else {
    if (::inet_pton(AF_INET, out.address.c_str(), &v4) != 1) return refuse();
    out.loopback = (ntohl(v4.s_addr) >> 24) == 127;
  }
  return out;
}

}  // namespace ponder::daemon
