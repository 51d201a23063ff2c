#pragma once
// Which MCP a message speaks. Two eras live side by side: 2026-07-28 is stateless (each request
// names its version and the client's capabilities in params._meta), the older versions open with
// `initialize`. The rule is per message; the only state is the version an `initialize` agreed on.
// https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "mcp/protocol/message.h"

namespace ponder::mcp {

constexpr std::string_view kModernVersion = "2026-07-28";
/// Newest first; the first is offered to a client that asks for one we do not know.
std::span<const std::string_view> legacy_versions();
/// The one version in which several messages may come as a JSON array.
constexpr std::string_view kBatchVersion = "2025-03-26";

constexpr std::string_view kVersionKey = "io.modelcontextprotocol/protocolVersion";
constexpr std::string_view kCapabilitiesKey = "io.modelcontextprotocol/clientCapabilities";
constexpr std::string_view kClientInfoKey = "io.modelcontextprotocol/clientInfo";
constexpr std::string_view kServerInfoKey = "io.modelcontextprotocol/serverInfo";

enum class Era { legacy, modern };

/// The era of a request, or what is wrong with its _meta: -32022 for a version that is not ours,
/// -32602 for one that is not a string or for missing clientCapabilities. A missing _meta is the
/// legacy era.
std::variant<Era, Fault> era_of(const Message& request);

/// params._meta, or nullptr.
const json::object* meta_of(const Message& message);
/// The name in a clientInfo object, or "".
std::string client_name_in(const json::object* holder, std::string_view key);

/// The version that answers an `initialize` for `requested`: itself if it is ours.
std::string_view negotiate(std::string_view requested);

}  // namespace ponder::mcp
