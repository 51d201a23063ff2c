// The only file with Beast: its parser reads bodies (lengths and chunks). Headers pass the gate
// first, so Beast judges a second time what was already found strict.
//
// A session is in one phase at a time:
//   head -> body -> answering -> head ...            keep-alive
//                            \-> lingering -> closed  after an error or "Connection: close"
// While answering it goes on reading, because that is how a client's going away is seen; what a
// pipelining client sends early waits in `in_`.
#include "daemon/http/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <deque>
#include <vector>

#include "engine/base/api_version.h"
#include "engine/base/ids.h"
#include "engine/base/log.h"

namespace ponder::daemon {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using std::chrono::milliseconds;

namespace {
constexpr std::size_t kReadBytes = 16 * 1024;
constexpr std::size_t kReadAheadBytes = 32 * 1024;  ///< of a pipelining client
// A body that comes a byte at a time never pauses, so time is given for so many bytes at once.
constexpr std::size_t kBodyBytesForTime = 16 * 1024;
constexpr std::size_t kGatheredWrites = 16;
// A client that is still sending when its request is refused reads the answer only if the
// connection is not reset under it, so the rest is read and dropped for a while.
constexpr milliseconds kLinger{2'000};
constexpr std::size_t kLingerBytes = 64u << 20;
}  // namespace

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(SessionContext& context, StreamSocket socket, Door door, std::uint16_t local_port)
      : context_(context),
        socket_(std::move(socket)),
        door_(door),
        local_port_(local_port),
        deadline_(context.io),
        write_deadline_(context.io),
        beat_(context.io) {}

  void start() {
    context_.sessions.insert(this);
    if (door_ == Door::tcp) ++context_.tcp_sessions;
    set_deadline(context_.limits.header_timeout);
    read();
  }
  void abort();
  void drop();
  void close_if_idle() {
    if (phase_ == Phase::head && in_.empty()) close();
  }

  // What an Exchange asks for; `serial` names the request it belongs to.
  SessionContext& context() { return context_; }
  bool is_closed() const { return closed_; }
  bool is_current(std::uint64_t serial) const {
    return serial == serial_ && phase_ == Phase::answering && !complete_;
  }
  void respond(Response response);
  void begin_events(Heartbeat heartbeat);
  void write_event(std::string bytes);
  void end_events();
  void on_gone(std::function<void()> gone);
  void on_drained(std::function<void()> drained);

  std::atomic<std::size_t> pending{0};  ///< stream bytes handed over and not yet taken

 private:
  enum class Phase { head, body, answering, lingering, closed };

  void read();
  void on_read(const error_code& ec, std::size_t n);
  void advance();
  void begin_request(std::size_t head_size);
  void expect_body();
  void feed_body();
  void dispatch();
  void refuse(Response response, bool close_after);
  void refuse(const Error& error) { refuse(context_.error_answer(error), true); }
  void send_whole(const Response& response);
  void enqueue(std::string bytes);
  void flush();
  void on_written(const error_code& ec, std::size_t n);
  void answer_done();
  void close();
  void tell_gone();
  void charge(std::size_t body_bytes);
  void end_request();
  void set_deadline(milliseconds after);
  void arm(asio::steady_timer& timer, milliseconds after, void (Session::*expired)());
  void deadline_expired() { abort(); }
  void write_expired();
  void beat();

  SessionContext& context_;
  StreamSocket socket_;
  const Door door_;
  const std::uint16_t local_port_;
  asio::steady_timer deadline_;        ///< for what the client sends
  asio::steady_timer write_deadline_;  ///< for what it takes
  asio::steady_timer beat_;

  Phase phase_ = Phase::head;
  std::atomic<bool> closed_{false};
  std::string in_;
  std::size_t scanned_ = 0;
  std::array<char, kReadBytes> read_buffer_;
  bool reading_ = false;
  std::size_t lingered_ = 0;

  // The request being read or answered.
  std::uint64_t serial_ = 0;
  bool counted_ = false;  ///< in context.answering
  bool large_ = false;    ///< its body was of more than kLargeBody
  RequestHead head_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<ChunkGate> chunks_;
  std::size_t judged_ = 0;          ///< of in_, by chunks_
  std::size_t since_deadline_ = 0;  ///< bytes of the body that came since its deadline was set
  std::size_t charged_ = 0;
  bool keep_ = true;
  bool streaming_ = false;
  bool complete_ = false;  ///< all of the answer is in out_ or sent
  bool peer_eof_ = false;
  Heartbeat heartbeat_;
  std::function<void()> gone_;
  std::function<void()> drained_;

  std::deque<std::string> out_;
  std::size_t out_offset_ = 0;
  bool writing_ = false;
};

namespace {

/// Posts to the session's io thread; the calls of an earlier request find their serial outdated.
class SessionExchange final : public Exchange {
 public:
  SessionExchange(std::shared_ptr<Session> session, std::uint64_t serial, RequestHead request)
      : Exchange(std::move(request)), session_(std::move(session)), serial_(serial) {}

  ~SessionExchange() override {
    if (answered_ || session_->is_closed()) return;
    Response lost = session_->context().error_answer(
        Error{ErrorCode::internal, "the request was dropped without an answer",
              "send it again; the daemon's log may say more"});
    lost.close = true;
    respond(std::move(lost));
  }

  void respond(Response response) override {
    answered_ = true;
    on_io([response = std::move(response)](Session& s) mutable { s.respond(std::move(response)); });
  }
  void begin_events(Heartbeat heartbeat) override {
    on_io([heartbeat = std::move(heartbeat)](Session& s) mutable {
      s.begin_events(std::move(heartbeat));
    });
  }
  void write(std::string bytes) override {
    if (session_->is_closed()) return;
    const std::size_t size = bytes.size();
    session_->pending += size;
    asio::post(session_->context().io,
               [session = session_, serial = serial_, bytes = std::move(bytes), size]() mutable {
                 session->pending -= size;
                 if (session->is_current(serial)) session->write_event(std::move(bytes));
               });
  }
  void end_events() override {
    answered_ = true;
    on_io([](Session& s) { s.end_events(); });
  }
  std::size_t pending_bytes() const override { return session_->pending; }
  void on_drained(std::function<void()> drained) override {
    on_io([drained = std::move(drained)](Session& s) mutable { s.on_drained(std::move(drained)); });
  }
  void on_gone(std::function<void()> gone) override {
    asio::post(session_->context().io,
               [session = session_, serial = serial_, gone = std::move(gone)]() mutable {
                 if (session->is_current(serial))
                   session->on_gone(std::move(gone));
                 else if (session->is_closed())
                   gone();
               });
  }
  void after(milliseconds delay, std::function<void()> action) override {
    asio::post(session_->context().io, [session = session_, serial = serial_, delay,
                                        action = std::move(action)]() mutable {
      auto timer = std::make_shared<asio::steady_timer>(session->context().io, delay);
      timer->async_wait([session, serial, timer, action = std::move(action)](const error_code& ec) {
        if (!ec && session->is_current(serial)) action();
      });
    });
  }

 private:
  template <class Action>
  void on_io(Action action) {
    asio::post(session_->context().io,
               [session = session_, serial = serial_, action = std::move(action)]() mutable {
                 if (session->is_current(serial)) action(*session);
               });
  }

  const std::shared_ptr<Session> session_;
  const std::uint64_t serial_;
  std::atomic<bool> answered_{false};
};
}  // namespace

void Session::arm(asio::steady_timer& timer, milliseconds after, void (Session::*expired)()) {
  timer.expires_after(after);  // what waited before ends with an error code
  timer.async_wait([self = shared_from_this(), &timer, expired](const error_code& ec) {
    if (ec || self->closed_) return;
    // A handler that was already on its way when the timer was moved finds it in the future.
    if (timer.expiry() > asio::steady_timer::clock_type::now()) return;
    ((*self).*expired)();
  });
}

void Session::set_deadline(milliseconds after) {
  arm(deadline_, after, &Session::deadline_expired);
}

void Session::read() {
  if (reading_ || peer_eof_ || closed_) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(read_buffer_),
                          [self = shared_from_this()](const error_code& ec, std::size_t n) {
                            self->reading_ = false;
                            self->on_read(ec, n);
                          });
}

void Session::on_read(const error_code& ec, std::size_t n) {
  if (closed_) return;
  if (!ec && phase_ == Phase::lingering) {
    lingered_ += n;
    if (lingered_ > kLingerBytes) return close();
    return read();
  }
  if (!ec) {
    in_.append(read_buffer_.data(), n);
    if (phase_ == Phase::head && in_.size() == n) set_deadline(context_.limits.header_timeout);
    if (phase_ == Phase::body && (since_deadline_ += n) >= kBodyBytesForTime) expect_body();
    return advance();
  }
  peer_eof_ = true;
  keep_ = false;
  if (phase_ != Phase::answering || streaming_ || ec != asio::error::eof) return abort();
  // It may have closed its sending side only: a whole answer that still comes is still sent.
  tell_gone();
}

void Session::advance() {
  switch (phase_) {
    case Phase::head: {
      if (in_.empty()) return read();
      HeadScan scan = scan_head(in_, scanned_, context_.limits.head);
      scanned_ = in_.size();
      if (scan.state == HeadScan::State::need_more) return read();
      if (scan.state == HeadScan::State::refused) return refuse(scan.error);
      return begin_request(scan.size);
    }
    case Phase::body:
      return feed_body();
    case Phase::answering:
      if (in_.size() < kReadAheadBytes) read();
      return;
    case Phase::lingering:
    case Phase::closed:
      return;
  }
}

void Session::begin_request(std::size_t head_size) {
  ++context_.answering;
  counted_ = true;
  auto head = read_head(std::string_view(in_).substr(0, head_size), context_.limits.head);
  if (!head) return refuse(head.error());
  head_ = std::move(*head);
  head_.door = door_;
  head_.local_port = local_port_;
  keep_ = head_.keep_alive && !context_.draining;
  if (auto refusal = context_.admission(head_)) {
    const bool unread_body = head_.has_body();
    if (!unread_body) in_.erase(0, head_size);
    return refuse(std::move(*refusal), unread_body);
  }
  const std::size_t most = context_.limits.max_body_bytes;
  if (head_.content_length.value_or(0) > most) return refuse(body_too_large(most));
  parser_.emplace();
  parser_->eager(true);
  parser_->header_limit(static_cast<std::uint32_t>(context_.limits.head.max_bytes));
  parser_->body_limit(context_.limits.max_body_bytes);
  chunks_.reset();
  if (head_.chunked) chunks_.emplace(context_.limits.head);
  judged_ = head_size;
  phase_ = Phase::body;
  if (head_.expects_continue && head_.has_body() && in_.size() == head_size) {
    enqueue("HTTP/1.1 100 Continue\r\n\r\n");
    flush();
  }
  expect_body();
  feed_body();
}

void Session::expect_body() {
  since_deadline_ = 0;
  set_deadline(context_.limits.body_idle_timeout);
}

void Session::charge(std::size_t body_bytes) {
  if (body_bytes > kLargeBody) large_ = true;
  context_.body_bytes += body_bytes;
  context_.body_bytes -= charged_;
  charged_ = body_bytes;
}

void Session::feed_body() {
  if (chunks_) {
    if (auto judged = chunks_->judge(std::string_view(in_).substr(judged_)); !judged)
      return refuse(judged.error());
    judged_ = in_.size();
  }
  while (!in_.empty() || parser_->is_done()) {
    error_code ec;
    const std::size_t used = parser_->put(asio::buffer(in_), ec);
    in_.erase(0, used);
    judged_ -= std::min(used, judged_);
    charge(parser_->get().body().size());
    if (ec == http::error::need_more) ec = {};
    if (ec == http::error::body_limit)
      return refuse(body_too_large(context_.limits.max_body_bytes));
    if (ec)
      return refuse(Error{ErrorCode::bad_request, "the request is malformed: " + ec.message()});
    if (context_.body_bytes > context_.limits.max_body_bytes_total)
      return refuse(Error{ErrorCode::queue_full, "too many large requests at once",
                          "send it again in a few seconds"});
    if (parser_->is_done()) return dispatch();
    if (used == 0) break;
  }
  // A chunk header or trailer that never ends must not pile up.
  if (in_.size() > context_.limits.head.max_bytes)
    return refuse(Error{ErrorCode::bad_request, "a chunk's header is too long"});
  read();
}

void Session::dispatch() {
  std::string body = std::move(parser_->get().body());
  parser_.reset();
  deadline_.cancel();
  phase_ = Phase::answering;
  auto exchange = std::make_shared<SessionExchange>(shared_from_this(), serial_, head_);
  const auto run = [](const Handler& handler, std::shared_ptr<Exchange> to, std::string text) {
    try {
      handler(std::move(to), std::move(text));
    } catch (const std::exception& e) {  // the Exchange answers 500 when it is dropped
      log_error(fmt::format("a handler threw: {}", e.what()));
    }
  };
  if (body.size() > context_.limits.inline_body_bytes) {
    // The charge passes to the prep thread's task, because this session may end before it.
    const std::size_t charged = std::exchange(charged_, 0);
    asio::post(context_.prep, [run, &context = context_, charged, exchange = std::move(exchange),
                               body = std::move(body)]() mutable {
      run(context.handler, std::move(exchange), std::move(body));
      asio::post(context.io, [&context, charged] { context.body_bytes -= charged; });
    });
  } else {
    charge(0);
    run(context_.handler, std::move(exchange), std::move(body));
  }
  advance();
}

void Session::refuse(Response response, bool close_after) {
  parser_.reset();
  charge(0);
  deadline_.cancel();
  if (!counted_) {
    ++context_.answering;
    counted_ = true;
  }
  phase_ = Phase::answering;
  if (close_after) {
    keep_ = false;
    in_.clear();
  }
  send_whole(response);
}

void Session::respond(Response response) {
  if (!streaming_) send_whole(response);
}

void Session::send_whole(const Response& response) {
  if (response.close) keep_ = false;
  complete_ = true;
  enqueue(render_response(response, keep_, head_.method != "HEAD"));
  flush();
}

void Session::begin_events(Heartbeat heartbeat) {
  if (streaming_) return;
  streaming_ = true;
  heartbeat_ = std::move(heartbeat);
  keep_ = keep_ && head_.version_minor == 1;
  enqueue(
      fmt::format("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                  "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
                  "X-Accel-Buffering: no\r\n{}: {}\r\nX-Request-Id: {}\r\n{}{}\r\n",
                  kApiHeader, kApiVersion, random_hex(8),
                  head_.version_minor == 1 ? "Transfer-Encoding: chunked\r\n" : "",
                  keep_ ? "" : "Connection: close\r\n"));
  flush();
  if (peer_eof_) return abort();
  arm(beat_, heartbeat_.interval, &Session::beat);
}

void Session::write_event(std::string bytes) {
  if (!streaming_ || bytes.empty()) return;
  arm(beat_, heartbeat_.interval, &Session::beat);
  enqueue(head_.version_minor == 1 ? fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes)
                                   : std::move(bytes));
  flush();
  if (pending > context_.limits.max_output_bytes) {
    log_warn("a client that does not read its stream was disconnected");
    drop();
  }
}

void Session::end_events() {
  if (!streaming_) return;
  complete_ = true;
  beat_.cancel();
  if (head_.version_minor == 1) enqueue("0\r\n\r\n");
  if (out_.empty() && !writing_) return answer_done();
  flush();
}

void Session::beat() {
  if (!streaming_ || complete_) return;
  if (out_.empty()) return write_event(heartbeat_.bytes);
  arm(beat_, heartbeat_.interval, &Session::beat);  // it has not even taken the last one
}

void Session::on_gone(std::function<void()> gone) {
  if (peer_eof_) return gone();
  gone_ = std::move(gone);
}

void Session::on_drained(std::function<void()> drained) {
  if (out_.empty() && !writing_) return drained();
  drained_ = std::move(drained);
}

void Session::tell_gone() {
  if (auto gone = std::exchange(gone_, nullptr)) gone();
}

void Session::enqueue(std::string bytes) {
  pending += bytes.size();
  out_.push_back(std::move(bytes));
}

void Session::flush() {
  if (writing_ || out_.empty() || closed_) return;
  writing_ = true;
  arm(write_deadline_, context_.limits.write_idle_timeout, &Session::write_expired);
  std::vector<asio::const_buffer> buffers;
  for (const std::string& bytes : out_) {
    buffers.push_back(asio::buffer(bytes));
    if (buffers.size() == kGatheredWrites) break;
  }
  buffers[0] += out_offset_;
  socket_.async_write_some(buffers,
                           [self = shared_from_this()](const error_code& ec, std::size_t n) {
                             self->writing_ = false;
                             self->on_written(ec, n);
                           });
}

void Session::on_written(const error_code& ec, std::size_t n) {
  if (closed_) return;
  if (ec) return abort();
  pending -= n;
  out_offset_ += n;
  while (!out_.empty() && out_offset_ >= out_.front().size()) {
    out_offset_ -= out_.front().size();
    out_.pop_front();
  }
  if (!out_.empty()) return flush();
  write_deadline_.cancel();
  if (auto drained = std::exchange(drained_, nullptr)) drained();
  if (complete_) answer_done();
}

void Session::write_expired() {
  if (!writing_) return;
  log_warn("a client that takes no bytes was disconnected");
  drop();
}

/// Only now, with the answer out, have the queue and the engine let go of what the body became.
void Session::end_request() {
  if (counted_) --context_.answering;
  counted_ = false;
  if (std::exchange(large_, false)) context_.trim_soon();
}

void Session::answer_done() {
  gone_ = nullptr;
  drained_ = nullptr;
  beat_.cancel();
  end_request();
  ++serial_;
  complete_ = streaming_ = false;
  scanned_ = 0;
  if (!keep_ || context_.draining) {
    if (peer_eof_) return close();
    error_code ignored;
    socket_.shutdown(StreamSocket::shutdown_send, ignored);
    phase_ = Phase::lingering;
    set_deadline(kLinger);
    return read();
  }
  head_ = {};
  phase_ = Phase::head;
  set_deadline(in_.empty() ? context_.limits.keep_alive_timeout : context_.limits.header_timeout);
  advance();
}

void Session::abort() {
  if (closed_) return;
  const auto self = shared_from_this();
  auto gone = std::exchange(gone_, nullptr);
  close();
  if (gone) gone();
}

/// abort() for a client that does not read. Over TCP the kernel would keep what it has not taken,
/// up to megabytes, and go on offering it for minutes; a reset frees it and tells the client at
/// once.
void Session::drop() {
  error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  abort();
}

void Session::close() {
  if (closed_) return;
  closed_ = true;
  phase_ = Phase::closed;
  context_.sessions.erase(this);
  if (door_ == Door::tcp) --context_.tcp_sessions;
  charge(0);
  end_request();
  error_code ignored;
  socket_.close(ignored);
  deadline_.cancel();
  write_deadline_.cancel();
  beat_.cancel();
  gone_ = nullptr;
  drained_ = nullptr;
  parser_.reset();
  out_.clear();
  in_.clear();
}

void start_session(SessionContext& context, StreamSocket socket, Door door,
                   std::uint16_t local_port) {
  std::make_shared<Session>(context, std::move(socket), door, local_port)->start();
}
void abort_session(Session& session) {
  session.abort();
}
void close_if_idle(Session& session) {
  session.close_if_idle();
}

}  // namespace ponder::daemon
