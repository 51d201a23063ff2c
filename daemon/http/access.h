#pragma once
// Who may ask: the API key, the Host list against DNS rebinding, and the browser's own headers
// against pages that would drive the daemon. Const after construction and thread-safe.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/message.h"
#include "engine/base/error.h"

namespace ponder::daemon {

/// Equal or not, in a time that depends on neither: SHA-256 of both, compared in constant time.
class Secret {
 public:
  explicit Secret(std::string_view text);
  bool matches(std::string_view candidate) const;

 private:
  std::array<unsigned char, 32> digest_{};
};

struct AccessOptions {
  std::string api_key;
  std::vector<std::string> listen_addresses = {};  ///< "ADDR:PORT" that may stand in Host, too
  std::vector<std::string> allowed_hosts = {};     ///< "name:port", or "name" for our ports
  std::vector<std::string> allowed_origins = {};   ///< exact, e.g. "http://localhost:3000"
};

class Access {
 public:
  explicit Access(AccessOptions options);

  /// Over the Unix socket always true: its directory and the peer's uid have been checked. Over
  /// TCP whether the request shows the key (Authorization: Bearer, or x-api-key). Errors over TCP:
  /// bad_request for a Host outside the list, forbidden for an Origin or Sec-Fetch-Site that
  /// says another site sent it.
  Result<bool> check(const RequestHead& head) const;

 private:
  bool host_is_ours(const RequestHead& head) const;

  Secret key_;
  std::vector<std::string> hosts_;  ///< lower case
  std::vector<std::string> origins_;
};

}  // namespace ponder::daemon
