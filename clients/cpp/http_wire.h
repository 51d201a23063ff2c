#pragma once
// HTTP/1.1 as bytes: a request to send, a response read piece by piece. No sockets here.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/error.h"

namespace ponder::client {

struct WireRequest {
  std::string_view method;
  std::string_view target;
  std::string_view host;
  std::string_view bearer = {};  ///< the key, or empty
  std::string_view accept = {};
  const std::string* body = nullptr;  ///< JSON, or none
};

/// The bytes of `request`. bad_request for a method or target that does not fit in a request line.
Result<std::string> serialize_request(const WireRequest& request);

/// Reads one response, given in pieces that may be split anywhere. Errors: unreachable for what is
/// no HTTP (so it is no daemon of ours), too_large for a body over the bound.
class ResponseReader {
 public:
  /// `body_bytes_max` bounds the whole body; 0: no bound, for a stream whose body is taken as it
  /// comes.
  explicit ResponseReader(std::uint64_t body_bytes_max);
  ~ResponseReader();

  Result<void> feed(std::string_view bytes);
  /// The peer closed: fine if the response is whole, else stream_lost.
  Result<void> feed_end();

  bool has_head() const;
  bool done() const;
  int status() const;                               ///< once has_head()
  std::string header(std::string_view name) const;  ///< "" if absent
  /// The body read since the last call.
  std::string take_body();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ponder::client
