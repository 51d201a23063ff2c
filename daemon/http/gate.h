#pragma once
// The strict gate: what a request's header may look like, judged on its raw bytes before any
// other parser sees them. HTTP parsers differ in what they forgive (folded lines, bare LF,
// Transfer-Encoding beside Content-Length), and every difference is a way to smuggle a request;
// so one spelling of each thing is accepted and the rest is 400 with the connection closed.
// Pure functions.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/http/message.h"
#include "engine/base/error.h"

namespace ponder::daemon {

struct HeadLimits {
  std::size_t max_bytes = 16 * 1024;
  std::size_t max_fields = 64;
};

/// What a body of more than `max_bytes` is answered.
Error body_too_large(std::size_t max_bytes);

/// How far a header has come in `bytes`.
struct HeadScan {
  enum class State { need_more, complete, refused } state = State::need_more;
  std::size_t size = 0;  ///< complete: the header with its empty line
  Error error = {};      ///< refused
};

/// Looks for the end of the header. Refuses as early as it can: a bare LF or CR, a control byte,
/// or more than max_bytes without an end. `from` is how much an earlier call has already seen.
HeadScan scan_head(std::string_view bytes, std::size_t from, const HeadLimits& limits);

/// Parses and judges a complete header (through its empty line). Errors are bad_request, but
/// unsupported_media for a Content-Encoding. Door, port and trust are left for the caller.
Result<RequestHead> read_head(std::string_view raw, const HeadLimits& limits);

/// The same strictness for a chunked body, which Beast decodes afterwards: sizes are bare
/// hexadecimal digits, every line ends in CRLF, extensions have a plain form and at most
/// kMaxExtensionBytes, and trailers pass the same test as header lines and may not name what a
/// header decided (its lengths, Host, the key, ...). One object a body; `judge` gets the bytes as
/// they come.
class ChunkGate {
 public:
  explicit ChunkGate(const HeadLimits& limits) : limits_(limits) {}

  /// Takes `bytes` up to the body's end; what stands behind it is the next request's. The first
  /// error is final.
  Result<void> judge(std::string_view bytes);
  bool done() const { return state_ == State::done; }

  static constexpr std::size_t kMaxExtensionBytes = 256;

 private:
  enum class State { size_line, data, data_cr, data_lf, trailer_line, done };

  Result<void> end_line();
  Result<void> judge_size_line();
  Result<void> judge_trailer();

  const HeadLimits limits_;
  State state_ = State::size_line;
  std::string line_;        ///< the size or trailer line so far, its CR included
  std::uint64_t left_ = 0;  ///< of the chunk's data
  std::size_t trailers_ = 0;
  std::size_t trailer_bytes_ = 0;
};

/// ASCII only.
std::string lower_case(std::string_view text);

}  // namespace ponder::daemon
