#pragma once
// The durable queue: the one scheduler behind every door. Owns the database, the order of work
// and the running set, all on one thread of its own (the queue thread). Every method here may be
// called from any thread; callbacks run on the queue thread and must return at once.
//
// Promises: a job's id leaves submit() only after its row is committed with synchronous=FULL; a
// terminal row is committed FULL before anyone is told; a terminal state never changes; an
// attempt is finished only by the instance that claimed it.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/generator/generator.h"
#include "jobs/job.h"

namespace ponder::jobs {

class ManualExecutor;

struct Options {
  std::filesystem::path database;
  int max_queued = 1000;       ///< queued jobs of both lanes; beyond it submit is queue_full
  int max_turns_waiting = 64;  ///< chat turns waiting for a place
  int max_running_batch = 1;
  int max_running_interactive = 2;  ///< asks and chat turns
  double ageing_s = 300;            ///< a batch job that waited this long goes before newer asks
  int max_attempts = 3;             ///< worker deaths of one job before failed(poison)
  /// A job that ran before goes on after its stored tokens; false: it begins again at its prompt.
  bool resume_after_crash = true;
  int flush_ms = 250;  ///< streamed text reaches the database at least this often
  int keep_read = 50;  ///< newest results that were read
  int keep_unread = 1000;
  int keep_unread_days = 30;
  std::string build;  ///< for the envelope
  /// A job has ended and its row is on disk, also where recovery or a rescue of the database ended
  /// it; called on the queue thread.
  std::function<void(const std::string& id, State state)> on_end = {};
  /// False: another daemon may have this queue, for the lock is not where others look for it.
  /// Asked on the queue thread before a job is accepted or claimed, and once a minute.
  std::function<bool()> is_owner = [] { return true; };
  /// Another daemon has this queue, or a running job of it: nothing is written any more. Called on
  /// the queue thread; a daemon ends here, for its jobs are in better hands. Not for damaged rows.
  std::function<void()> on_lost = [] {};
  int plan_timeout_ms = 3000;  ///< submit waits this long for the generator's exact count
  int end_grace_ms = 5000;     ///< a cancelled generation that does not end is given up then
  int cancel_grace_ms = 800;   ///< the same, of one that a user cancelled
  /// For simulations: no thread is made, the holder runs the queue (jobs/queue_thread.h).
  ManualExecutor* executor = nullptr;
};

/// What changed the answer of submit().
struct Submitted {
  json::object envelope;
  bool created = true;  ///< false: an existing job (key or twin), named in the envelope's note
};

/// A call that can be given up, e.g. because its client went away. The callback then never runs.
using CallId = std::uint64_t;

struct ListFilter {
  std::optional<State> state;
  std::string workspace;  ///< empty: all
  std::string label;      ///< empty: all
  int limit = 50;         ///< 1..1000
  std::string before;     ///< id; empty: from the newest
};
struct ListPage {
  std::vector<json::object> jobs;  ///< envelopes without texts, newest first
  std::string next_before;         ///< empty: no more
};

/// Which results expire now instead of when their time comes. Never pinned ones.
struct Prune {
  std::string workspace;  ///< empty: all
  bool unread = false;    ///< also those that were not read
  bool dry_run = false;   ///< only say which
};

/// `request`: the last user turn as the model reads it (context, files, task, schema).
enum class Part { answer, reasoning, partial, request };
struct ResultPage {
  std::string job_id;
  State state = State::queued;
  Part part = Part::answer;
  std::int64_t offset = 0;        ///< code points, as are the next three
  std::int64_t next_offset = -1;  ///< -1: this was the end
  std::int64_t total_chars = 0;
  bool truncated = false;
  std::string text;
  std::optional<std::uint64_t> seed;  ///< of the sampling; with Part::request only
};

/// One server-sent event of a job. Positions grow; a stream resumed `after` a position misses
/// nothing and repeats nothing.
struct JobEvent {
  std::int64_t position = 0;
  std::string type;   ///< state, progress, reasoning, answer, end
  json::object data;  ///< end: the final envelope
};

/// How get() looks at a job.
struct Look {
  Look(std::int64_t wait = 0) : wait_ms(wait) {}  // implicit: mostly it is no more than that

  std::int64_t wait_ms;
  /// State and phase ("" where there is none) that the caller knows. Where they are others by now
  /// there is nothing to wait for, so no change is missed between two looks.
  std::optional<std::pair<State, std::string>> seen;
  /// The caller hands the id to somebody who will come back for the job: an ask counts as told.
  bool told = false;
};

struct QueueStatus {
  int running = 0;
  int ask = 0;    ///< waiting, asks and chat turns
  int batch = 0;  ///< waiting batch jobs
  int limit = 0;
  bool store_ok = true;
  std::string store_reason;
  std::string store_note;  ///< what to know of a database that works: it was damaged, say
  std::int64_t free_bytes = 0;
  /// For so long the queue has been in one piece of work: a disk that hangs, or another program
  /// that holds the database.
  std::int64_t stuck_ms = 0;
  bool turns_full = false;  ///< another chat turn would be refused
};

class JobQueue {
 public:
  /// Opens or creates the database, moves every row of a dead instance on (a batch job and an ask
  /// whose id was told: queued again; another ask: interrupted), starts the queue thread. The
  /// caller holds the instance lock. The generator and the clock must outlive the queue.
  static Result<std::unique_ptr<JobQueue>> open(Options options, Generator& generator,
                                                const Clock& clock);
  virtual ~JobQueue() = default;

  /// Checks the prompt against the window (when the generator can be asked), then commits the row.
  /// With mode resume or answer_now the new job begins with its parent's text and tokens; a parent
  /// that runs is first ended as cancelled.
  virtual CallId submit(JobSpec spec, std::function<void(Result<Submitted>)> done) = 0;

  /// The envelope. With wait_ms > 0 on a job that is not terminal: when its state or phase
  /// changes, or at the bound with what is then true. An ask whose wait ran out counts as told.
  virtual CallId get(std::string id, Look look, std::function<void(Result<json::object>)> done) = 0;

  virtual CallId list(ListFilter filter, std::function<void(Result<ListPage>)> done) = 0;

  /// `limit` < 0: the whole part. The answer of a job that did not complete is not_completed.
  /// Reading an answer to its end marks the result as read, for retention.
  virtual CallId result(std::string id, Part part, std::int64_t offset, std::int64_t limit,
                        std::function<void(Result<ResultPage>)> done) = 0;

  /// Idempotent: the final envelope, once the job has ended.
  virtual CallId cancel(std::string id, std::function<void(Result<json::object>)> done) = 0;
  virtual CallId remove(std::string id, std::function<void(Result<void>)> done) = 0;
  virtual CallId pin(std::string id, bool pinned,
                     std::function<void(Result<json::object>)> done) = 0;

  /// Expires up to 200 results, newest first; called again until it names none. A dry run names up
  /// to 1,000.
  virtual CallId prune(Prune prune, std::function<void(Result<std::vector<std::string>>)> done) = 0;

  /// Events after `after` (0: all) until `end`. The error callback comes instead, for an unknown
  /// id. Give up with forget().
  virtual CallId events(std::string id, std::int64_t after, std::function<void(JobEvent)> event,
                        std::function<void(Error)> failed) = 0;

  /// Gives up a pending submit, get, cancel or event stream.
  virtual void forget(CallId call) = 0;

  /// A chat turn: waits for its place in the ask lane, then runs; no row. A full lane ends it at
  /// once as failed(queue_full).
  virtual CallId start_turn(GenerationRequest request, std::shared_ptr<OutputSink> sink) = 0;
  /// Its client went away.
  virtual void cancel_turn(CallId turn) = 0;

  virtual QueueStatus status() const = 0;

  /// Takes over what may change while it runs: the bounds of the queue, how many run, ageing,
  /// attempts and retention.
  virtual void reconfigure(const Options& options) { (void)options; }

  /// Clean stop: no new work; running batch jobs go back to queued with no attempt counted, asks
  /// become interrupted, turns end cancelled, everything is on disk. Blocks until then.
  virtual void stop() = 0;
};

}  // namespace ponder::jobs
