#include "mcp/protocol/era.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace ponder::mcp {
namespace {
constexpr std::array<std::string_view, 4> kLegacyVersions{"2025-11-25", "2025-06-18", "2025-03-26",
                                                          "2024-11-05"};
}

std::span<const std::string_view> legacy_versions() {
  return kLegacyVersions;
}

const json::object* meta_of(const Message& message) {
  const json::value* meta = message.params.if_contains("_meta");
  return meta ? meta->if_object() : nullptr;
}

std::variant<Era, Fault> era_of(const Message& request) {
  const json::object* meta = meta_of(request);
  const json::value* version = meta ? meta->if_contains(kVersionKey) : nullptr;
  if (!version) return Era::legacy;
  if (!version->is_string())
    return Fault{kInvalidParams, fmt::format("_meta[\"{}\"] must be a string", kVersionKey),
                 request.id};
  if (version->get_string() != kModernVersion) {
    // Only stateless versions are listed: what `server/discover` does not offer must not be here.
    return Fault{kUnsupportedProtocolVersion, "unsupported protocol version", request.id,
                 json::object{{"supported", json::array{kModernVersion}}, {"requested", *version}}};
  }
  const json::value* capabilities = meta->if_contains(kCapabilitiesKey);
  if (!capabilities || !capabilities->is_object())
    return Fault{kInvalidParams, fmt::format("_meta[\"{}\"] must be an object", kCapabilitiesKey),
                 request.id};
  return Era::modern;
}

std::string client_name_in(const json::object* holder, std::string_view key) {
  const json::value* info = holder ? holder->if_contains(key) : nullptr;
  const json::object* object = info ? info->if_object() : nullptr;
  const json::value* name = object ? object->if_contains("name") : nullptr;
  return name && name->is_string() ? std::string(name->get_string()) : std::string();
}

std::string_view negotiate(std::string_view requested) {
  const auto* found = std::find(kLegacyVersions.begin(), kLegacyVersions.end(), requested);
  return found != kLegacyVersions.end() ? *found : kLegacyVersions.front();
}

}  // namespace ponder::mcp
