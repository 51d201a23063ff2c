#pragma once
// HTTP requests and answers as plain values, between the sockets (session.cc) and the resources
// (daemon/api). Header names are in lower case. No thread of their own.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/json.h"

namespace ponder::daemon {

/// Which kind of socket a request came through: trust and the Host check hang on it.
enum class Door { unix_socket, tcp };

struct Header {
  std::string name;
  std::string value;
};

/// Everything before the body, after the gate (gate.h) has accepted it.
struct RequestHead {
  std::string method;  ///< as sent, e.g. "GET"
  std::string path;    ///< percent-decoded, begins with '/', without the query
  std::vector<std::pair<std::string, std::string>> query = {};  ///< decoded, in order
  std::vector<Header> headers = {};
  int version_minor = 1;  ///< HTTP/1.0 or HTTP/1.1
  bool keep_alive = true;
  bool expects_continue = false;
  bool chunked = false;
  std::optional<std::uint64_t> content_length = {};

  Door door = Door::unix_socket;
  std::uint16_t local_port = 0;  ///< of the listener; 0 on the Unix socket
  bool trusted = false;  ///< came over the Unix socket, or showed the key (set by admission)

  /// The first header of that (lower-case) name, or null.
  const std::string* header(std::string_view name) const;
  /// The last query parameter of that name, or null.
  const std::string* parameter(std::string_view name) const;
  bool has_body() const { return chunked || content_length.value_or(0) > 0; }
};

/// A whole answer. `body` is sent as JSON; null means no body at all.
struct Response {
  int status = 200;
  json::value body = nullptr;
  std::vector<Header> headers = {};
  bool close = false;  ///< end the connection after it
};

/// A Response as bytes; `keep_alive` and the body's presence say how the connection goes on.
std::string render_response(const Response& response, bool keep_alive, bool with_body);
/// "Not Found" for 404 and so on.
std::string_view reason_phrase(int status);

}  // namespace ponder::daemon
