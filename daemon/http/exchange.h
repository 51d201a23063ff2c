#pragma once
// One request and its answer, as a handler sees them. Answers are either one Response, or a
// stream of server-sent events. Thread-safe: any thread may answer, exactly once; what comes
// after the client has gone, or after the end, is dropped. An Exchange that is destroyed without
// an answer is answered with 500.
#include <chrono>
#include <functional>
#include <string>

#include "daemon/http/message.h"

namespace ponder::daemon {

/// Sent when a stream has been silent for so long: proxies and clients give up on silence.
struct Heartbeat {
  std::chrono::milliseconds interval{15'000};
  std::string bytes = ": ping\n\n";
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  const RequestHead head;

  virtual void respond(Response response) = 0;

  /// 200 text/event-stream, sent at once.
  virtual void begin_events(Heartbeat heartbeat) = 0;
  /// Appends to the stream. A client that lets more than the connection's bound pile up is
  /// disconnected.
  virtual void write(std::string bytes) = 0;
  virtual void end_events() = 0;
  /// Bytes written and not yet taken by the socket.
  virtual std::size_t pending_bytes() const = 0;
  /// Runs `drained` once, on the io thread, when no bytes are pending.
  virtual void on_drained(std::function<void()> drained) = 0;

  /// Runs `gone` at most once, on the io thread, if the client goes away (or is dropped) before
  /// the answer is complete. At once if it has gone already. `gone` is released when the exchange
  /// is over; until then it may own the Exchange.
  virtual void on_gone(std::function<void()> gone) = 0;

  /// Runs `action` on the io thread after `delay`, unless the exchange is over by then.
  virtual void after(std::chrono::milliseconds delay, std::function<void()> action) = 0;

 protected:
  explicit Exchange(RequestHead h) : head(std::move(h)) {}
};

/// One server-sent event; empty `id` or `event` leave their line out. `data` may hold newlines.
std::string sse_event(std::string_view id, std::string_view event, std::string_view data);

}  // namespace ponder::daemon
