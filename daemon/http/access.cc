#include "daemon/http/access.h"

#include <fmt/core.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>

#include "daemon/http/gate.h"
#include "engine/base/check.h"

namespace ponder::daemon {
namespace {

std::array<unsigned char, 32> sha256(std::string_view text) {
  std::array<unsigned char, 32> digest{};
  unsigned size = 0;
  static EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);  // not for each key
  CHECK(algorithm);
  CHECK(EVP_Digest(text.data(), text.size(), digest.data(), &size, algorithm, nullptr) == 1);
  CHECK(size == digest.size());
  return digest;
}

/// The token of "Bearer TOKEN" (the scheme in any case), or empty.
std::string_view bearer_token(std::string_view value) {
  constexpr std::string_view kScheme = "bearer ";
  if (value.size() <= kScheme.size() || lower_case(value.substr(0, kScheme.size())) != kScheme)
    return {};
  value.remove_prefix(kScheme.size());
  while (!value.empty() && value.front() == ' ')
    value.remove_prefix(1);
  return value;
}
}  // namespace

Secret::Secret(std::string_view text) : digest_(sha256(text)) {}

bool Secret::matches(std::string_view candidate) const {
  const auto digest = sha256(candidate);
  return CRYPTO_memcmp(digest.data(), digest_.data(), digest.size()) == 0;
}

Access::Access(AccessOptions options)
    : key_(options.api_key), origins_(std::move(options.allowed_origins)) {
  CHECK_MSG(!options.api_key.empty(), "the daemon never serves TCP with an empty key");
  for (const auto& list : {options.listen_addresses, options.allowed_hosts})
    for (const std::string& host : list)
      hosts_.push_back(lower_case(host));
}

bool Access::host_is_ours(const RequestHead& head) const {
  const std::string* field = head.header("host");
  if (!field) return false;
  const std::string host = lower_case(*field);
  const std::string port = fmt::format(":{}", head.local_port);
  for (const char* loopback : {"127.0.0.1", "[::1]", "localhost"})
    if (host == loopback + port) return true;
  return std::any_of(hosts_.begin(), hosts_.end(), [&](const std::string& allowed) {
    return host == allowed || host == allowed + port;
  });
}

Result<bool> Access::check(const RequestHead& head) const {
  if (head.door == Door::unix_socket) return true;
  if (!host_is_ours(head))
    return fail(ErrorCode::bad_request, "the Host header does not name this server",
                "use 127.0.0.1 or localhost with the port, or add the name to allowed_hosts");
  if (const std::string* origin = head.header("origin");
      origin && std::find(origins_.begin(), origins_.end(), *origin) == origins_.end())
    return fail(ErrorCode::forbidden, "requests from web pages are refused",
                "add the exact origin to allowed_origins");
  const std::string* site = head.header("sec-fetch-site");
  if (site && !head.header("origin")) {
    const std::string from = lower_case(*site);
    if (from != "same-origin" && from != "none")
      return fail(ErrorCode::forbidden, "requests from other sites are refused",
                  "send it from a program, or from a page whose origin is in allowed_origins");
  }
  const std::string* authorization = head.header("authorization");
  const std::string* api_key = head.header("x-api-key");
  // Both are always compared, so that the time does not tell which one was there.
  const bool by_bearer = key_.matches(authorization ? bearer_token(*authorization) : "");
  const bool by_header = key_.matches(api_key ? std::string_view(*api_key) : "");
  return by_bearer || by_header;
}

}  // namespace ponder::daemon
