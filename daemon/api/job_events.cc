// GET /v1/jobs/{id}/events: a job's life as server-sent events. The queue hands out events as fast
// as it reads them, a client takes them as fast as it likes; between the two the subscription is
// given up when much is unsent and taken up again, from the last position sent, when all is.
#include <charconv>
#include <mutex>

#include "daemon/api/api.h"
#include "daemon/api/error_map.h"
#include "daemon/api/request.h"

namespace ponder::daemon {
namespace {

constexpr std::size_t kPauseBytes = 256 * 1024;

class EventStream : public std::enable_shared_from_this<EventStream> {
 public:
  EventStream(jobs::JobQueue& queue, ExchangePtr exchange, std::string id, std::int64_t after)
      : queue_(queue), exchange_(std::move(exchange)), id_(std::move(id)), position_(after) {}

  void begin(std::int64_t heartbeat_ms) {
    exchange_->begin_events({std::chrono::milliseconds(heartbeat_ms), ": ping\n\n"});
    exchange_->on_gone([self = shared_from_this()] { self->over(); });
    subscribe();
  }

 private:
  void subscribe() {
    std::int64_t after = 0;
    std::uint64_t turn = 0;
    {
      const std::lock_guard lock(mutex_);
      if (over_) return;
      paused_ = false;
      after = position_;
      turn = ++turn_;
    }
    const jobs::CallId call = queue_.events(
        id_, after,
        [self = shared_from_this(), turn](jobs::JobEvent e) { self->on_event(turn, e); },
        [self = shared_from_this(), turn](const Error& e) { self->on_failed(turn, e); });
    {
      const std::lock_guard lock(mutex_);
      if (!over_ && turn == turn_ && !paused_) {
        call_ = call;
        return;
      }
    }
    queue_.forget(call);  // over, or paused, before its id was known
  }

  void on_event(std::uint64_t turn, const jobs::JobEvent& event) {
    const bool is_last = event.type == "end";
    {
      const std::lock_guard lock(mutex_);
      if (over_ || paused_ || turn != turn_) return;
      position_ = event.position;
      over_ = is_last;
      exchange_->write(sse_event(std::to_string(event.position), event.type, to_json(event.data)));
      if (!is_last && exchange_->pending_bytes() <= kPauseBytes) return;
      if (!is_last) paused_ = true;
    }
    if (is_last) return exchange_->end_events();
    exchange_->on_drained([self = shared_from_this()] {
      self->give_up_call();
      self->subscribe();
    });
  }

  /// The stream's headers are out, so the error is its last event.
  void on_failed(std::uint64_t turn, const Error& error) {
    {
      const std::lock_guard lock(mutex_);
      if (over_ || turn != turn_) return;
      over_ = true;
    }
    exchange_->write(sse_event("", "error", to_json(error_body(error))));
    exchange_->end_events();
  }

  void over() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    give_up_call();
  }

  void give_up_call() {
    std::optional<jobs::CallId> call;
    {
      const std::lock_guard lock(mutex_);
      call.swap(call_);
    }
    if (call) queue_.forget(*call);
  }

  jobs::JobQueue& queue_;
  const ExchangePtr exchange_;
  const std::string id_;
  std::mutex mutex_;
  std::int64_t position_;   ///< of the last event written
  std::uint64_t turn_ = 0;  ///< which subscription counts
  std::optional<jobs::CallId> call_;
  bool paused_ = false;
  bool over_ = false;
};

/// `after=` wins over the Last-Event-ID that a reconnecting reader sends by itself.
Result<std::int64_t> start_position(const RequestHead& head) {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  if (head.parameter("after")) return int_parameter(head, "after", 0, 0, kMost);
  const std::string* last = head.header("last-event-id");
  if (!last || last->empty()) return std::int64_t{0};
  std::int64_t n = 0;
  const char* end = last->data() + last->size();
  const auto [stopped, problem] = std::from_chars(last->data(), end, n);
  if (problem != std::errc() || stopped != end || n < 0 || n > kMost)
    return fail(ErrorCode::bad_request, "Last-Event-ID must be the id of an event of this job");
  return n;
}
}  // namespace

void get_job_events(const ApiServices& services, ExchangePtr exchange, std::string,
                    std::string id) {
  auto after = start_position(exchange->head);
  if (!after) return exchange->respond(error_response(after.error()));
  // Asked first, so that an unknown id is a 404 and not a stream.
  services.queue.get(
      id, 0, [&services, exchange, id, after = *after](Result<json::object> envelope) {
        if (!envelope) return exchange->respond(error_response(envelope.error()));
        const json::value* state = envelope->if_contains("state");
        if (state && state->is_string() && state->as_string() == "expired") {
          Error gone{ErrorCode::gone, "this job has expired; only its summary is kept"};
          gone.job_id = id;
          return exchange->respond(error_response(gone));
        }
        if (exchange->head.method == "HEAD") return exchange->respond({});
        std::make_shared<EventStream>(services.queue, exchange, id, after)
            ->begin(services.events_heartbeat_ms);
      });
}

}  // namespace ponder::daemon
