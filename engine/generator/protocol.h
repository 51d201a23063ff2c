#pragma once
// What the daemon and its worker say to each other over a socket pair.
//
// A frame is the payload's length (u32, little endian, at most kMaxPayload), one byte of type, and
// the payload: one JSON object. Both ends treat the other as possibly broken: every field is
// checked, and a frame that cannot be decoded is an Error (engine_error), never a crash.
// Text that is not UTF-8 goes out with U+FFFD in place of each bad byte.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/generator/generator.h"

namespace ponder::protocol {

inline constexpr std::int64_t kVersion = 3;
inline constexpr std::size_t kMaxPayload = 64u << 20;

/// How a worker tells the reason of its end by its exit code. 0: the daemon closed the socket.
inline constexpr int kExitDeviceLost = 70;
inline constexpr int kExitOutOfMemory = 71;  ///< an allocation failed where nothing could give way
inline constexpr int kExitModelUnusable = 78;  ///< after Refused: do not start it again

using CallId = std::uint64_t;

// Daemon to worker.
struct PlanCall {
  CallId call = 0;
  GenerationRequest request;
};
struct TokenizeCall {
  CallId call = 0;
  std::string text;
  bool special = false;
};
struct Start {
  GenerationId id = 0;
  GenerationRequest request;
};
struct Cancel {
  GenerationId id = 0;
};
struct Ping {
  std::uint64_t number = 0;
};
struct AnswerNow {
  GenerationId id = 0;
};
using ToWorker = std::variant<PlanCall, TokenizeCall, Start, Cancel, Ping, AnswerNow>;

// Worker to daemon. The first frame is Hello or Refused.
struct Hello {
  std::int64_t version = kVersion;
  ModelInfo model;
  ContextMemory memory = {};
};
struct Refused {
  Error error;
};
struct Planned {
  CallId call = 0;
  Result<PromptPlan> plan = PromptPlan{};
};
struct Tokenized {
  CallId call = 0;
  Result<std::vector<std::int32_t>> ids = std::vector<std::int32_t>{};
};
template <class Event>
struct Of {  ///< an event of one generation
  GenerationId id = 0;
  Event event;
};
struct Pong {
  std::uint64_t number = 0;
};
/// Whenever it has changed since Hello.
struct Memory {
  ContextMemory memory;
};
using FromWorker =
    std::variant<Hello, Refused, Planned, Tokenized, Of<Started>, Of<PrefillProgress>, Of<Delta>,
                 Of<ToolCallMade>, Of<Ended>, Pong, Memory>;

/// The whole frame. A payload over kMaxPayload is too_large.
Result<std::string> encode(const ToWorker& message);
Result<std::string> encode(const FromWorker& message);

struct Frame {
  std::uint8_t type = 0;
  std::string payload;
};
Result<ToWorker> decode_to_worker(const Frame& frame);
Result<FromWorker> decode_from_worker(const Frame& frame);

/// Cuts a stream of bytes into frames.
class FrameReader {
 public:
  void feed(std::string_view bytes) { buffer_ += bytes; }
  /// The next whole frame, nothing while it is not whole, or an Error for a length over the
  /// bound; after an Error the stream is lost.
  Result<std::optional<Frame>> next();

 private:
  std::string buffer_;
  std::size_t read_ = 0;  ///< bytes of buffer_ already given out
};

}  // namespace ponder::protocol
