#pragma once
// The streams of events that callers follow. A position counts one for every change of state and
// one for every byte of text; the history (StateChange) says which text lies between which
// changes, so that a stream goes on from any position, from memory or from what is stored. What
// callers see is the position times kNumbersApart: between two of them lie the numbers of
// `progress`, so that every event has a larger one than the event before it. Queue thread only.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "jobs/call_table.h"
#include "jobs/job_queue.h"
#include "jobs/job_text.h"
#include "jobs/store/job_store.h"

namespace ponder::jobs {

class EventStreams {
 public:
  using Event = std::function<void(JobEvent)>;
  using Failed = std::function<void(Error)>;

  /// Three hours of a prefill's progress without a byte of text; numbers stay below 2^53.
  static constexpr std::int64_t kNumbersApart = 1 << 16;

  explicit EventStreams(CallTable& calls) : calls_(calls) {}

  /// Begins after the event with the number `after` (0: before all) of a job with this history.
  void add(CallId call, const std::string& id, std::int64_t after,
           const std::vector<StateChange>& changes, Event event, Failed failed);

  bool has(const std::string& id) const { return streams_.count(id) != 0; }

  /// Tells every stream of the job what it has not been told yet.
  void tell(const std::string& id, const std::vector<StateChange>& changes, const JobText& text);
  /// The same for one stream.
  void tell(CallId call, const std::string& id, const std::vector<StateChange>& changes,
            const JobText& text);
  /// A sign of life after what was told last.
  void progress(const std::string& id, const json::object& data);
  /// The job has ended (everything was told): `end` with its envelope, and the streams are over.
  void end(const std::string& id, std::int64_t position,
           const std::function<json::object()>& envelope);
  /// Forgets streams whose callers gave up.
  void drop_closed(const std::string& id);
  /// Gives all streams of a job up with an error.
  void fail(const std::string& id, const Error& error);
  void fail_all(const Error& error);

  /// The position after everything in the history and `text_bytes` of text.
  static std::int64_t position_of(const std::vector<StateChange>& changes, std::int64_t text_bytes);

 private:
  struct Stream {
    CallId call;
    std::size_t next;     ///< the first change it was not told
    std::int64_t offset;  ///< the first byte of text it was not told
    std::int64_t told;    ///< the number of its last event
    Event event;
    Failed failed;
  };
  static void send(Stream& stream, JobEvent event);
  bool deliver(Stream& stream, const std::string& id, const std::vector<StateChange>& changes,
               const JobText& text);

  CallTable& calls_;
  std::map<std::string, std::vector<Stream>> streams_;
};

}  // namespace ponder::jobs
