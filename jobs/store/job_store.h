#pragma once
// The only one who writes SQL. All statements are prepared once, in open(). Used by the queue
// thread only (open() may run before that thread starts). Every error is `storage`, or `loading`
// where another process holds the database; what failed left nothing behind.
//
// A database that turns out to be damaged is put aside in the middle of a call, what can be read of
// it becomes the database (rebuild.h), and the call is answered from that: at most once a minute.
// Fences and numbers of rows stay as they are; a job that lost something has ended as
// failed(storage).
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "jobs/job.h"
#include "jobs/job_queue.h"
#include "jobs/job_text.h"

namespace ponder::jobs {

/// A row of the table `job`. Times are wall milliseconds; 0 is "not yet".
struct JobRow {
  std::int64_t seq = 0;
  std::string id;
  Lane lane = Lane::batch;
  State state = State::queued;
  Reason reason = Reason::none;
  std::string workspace;
  std::string label;
  std::string idempotency_key;
  std::string body_sha256;
  std::string parent_id;
  std::string effort_requested;
  std::int64_t deadline_ms = 0;  ///< of running time; 0: none
  bool told = false;
  bool cancel_requested = false;
  bool pinned = false;
  std::int64_t read_ms = 0;
  std::int64_t deaths = 0;
  std::int64_t attempt = 0;
  std::int64_t claims = 0;
  std::string instance;
  std::int64_t created_ms = 0;
  std::int64_t started_ms = 0;
  std::int64_t ended_ms = 0;
  std::int64_t run_ms = 0;
  json::object facts;  ///< measured fields of the envelope
  std::string note;
  std::string error_code;
  std::string error_message;
  std::string error_hint;
  std::int64_t reasoning_chars = 0;
  std::int64_t answer_chars = 0;
  std::int64_t chunk_count = 0;
  std::int64_t text_bytes = 0;
  std::string text_sha256;
  std::string summary;
};

/// One entry of a job's history; `seq` counts from 1.
struct StateChange {
  std::int64_t seq = 0;
  std::int64_t position = 0;
  std::int64_t text_bytes = 0;  ///< text before it
  bool cut = false;             ///< text after `text_bytes` was given up here
  State state = State::queued;
  Reason reason = Reason::none;
  std::int64_t attempt = 0;
  std::int64_t at_ms = 0;
  std::string note;
};

class Cursor;  // jobs/store/sqlite.h
/// Runs Sql::insert_change, or a statement with the same parameters.
Result<void> insert_change(Cursor& row, std::int64_t job, const StateChange& change);

/// Text on its way to the disk.
struct Chunk {
  Channel channel = Channel::answer;
  std::string text;
  std::vector<std::int32_t> tokens;
};

/// The beginning of the stored text whose tokens the generator was given: it does not come again.
struct Resumed {
  std::int64_t bytes = 0;
  std::int64_t chunks = 0;
  std::int64_t reasoning_tokens = 0;
  std::int64_t answer_tokens = 0;

  std::int64_t tokens() const { return reasoning_tokens + answer_tokens; }
};

/// What is stored of a job's text, verified.
struct StoredText {
  JobText text;
  std::vector<std::int32_t> tokens;  ///< that made it, in order
  /// What they made. Text behind it was held back until the output ended, and a run that goes on
  /// after the tokens tells it again.
  Resumed of_tokens;
  std::int64_t chunk_count = 0;
  std::int64_t reasoning_tokens = 0;
  std::int64_t answer_tokens = 0;
  bool damaged = false;  ///< only from load_undamaged(): something after `text` was given up
};

/// Who may write to a running row.
struct Fence {
  std::int64_t seq = 0;
  std::string id;
  std::int64_t claim = 0;
  std::string instance;
};

/// What changes on a running row at any of its writes.
struct Progress {
  std::vector<Chunk> chunks;    ///< appended
  std::int64_t next_chunk = 0;  ///< number of the first of them
  std::int64_t attempt = 0;
  std::int64_t run_ms = 0;
  json::object facts = {};
};

/// How a running job leaves that state.
struct Leave {
  State state = State::queued;  ///< queued: goes back; else terminal
  Reason reason = Reason::none;
  bool death = false;  ///< it brought the engine down: counted
  std::string note;
  std::optional<Error> error;
  std::int64_t at_ms = 0;
};

struct StoreLimits {
  /// Another process that reads on and on keeps the log from shrinking. Beyond this, jobs and
  /// streamed text are refused and only ends are written, until it shrinks.
  /// One request and the ends that follow still fit into 64 MiB.
  std::int64_t log_bytes = std::int64_t{48} << 20;
  std::int64_t repair_pause_ms = 60'000;  ///< a disk that damages it again and again is let be
};

class JobStore {
 public:
  /// Opens, checks, mends and migrates the database.
  static Result<std::unique_ptr<JobStore>> open(const std::filesystem::path& file,
                                                const StoreLimits& limits = {});
  ~JobStore();

  /// What people should know of how the database was found; empty: nothing. Any thread.
  std::string start_note() const;

  /// Commits a new queued row, its request, the text it begins with and its first state change
  /// (FULL). `row.seq` is set.
  Result<void> insert(JobRow& row, std::string_view request, std::vector<Chunk> text = {});
  /// queued -> running, one statement; nullopt if it is not queued any more.
  Result<std::optional<JobRow>> claim(std::string_view id, std::string_view instance,
                                      std::int64_t now_ms, StateChange& change);
  /// Appends text; `synced` (FULL): it and all before it is safe from a power cut. False: the fence
  /// does not hold.
  Result<bool> append(const Fence& fence, const Progress& progress, bool synced = false);
  /// From chunk `kept.next_chunk` on the stored text gives way to the chunks of `kept`; the history
  /// says so (NORMAL).
  Result<bool> cut(const Fence& fence, const Progress& kept, std::string_view note,
                   std::int64_t now_ms, StateChange& change);
  /// Appends what is left, then leaves `running` (FULL). `text` is the whole text with it.
  Result<bool> leave(const Fence& fence, const Progress& progress, const JobText& text,
                     const Leave& leave, StateChange& change);
  /// queued -> cancelled or failed (FULL). False: not queued any more.
  Result<bool> end_queued(const JobRow& row, const Leave& leave, StateChange& change);

  /// The durable wish to cancel a running job (FULL).
  Result<void> request_cancel(std::int64_t seq);
  Result<void> mark_told(std::int64_t seq);
  Result<void> mark_read(std::int64_t seq, std::int64_t now_ms);
  Result<void> set_pinned(std::int64_t seq, bool pinned);

  Result<std::optional<JobRow>> find(std::string_view id);
  Result<std::optional<JobRow>> find_key(std::string_view key);
  Result<std::optional<JobRow>> find_twin(std::string_view workspace, std::string_view sha256);
  Result<std::vector<JobRow>> list(const ListFilter& filter);
  Result<std::vector<JobRow>> live();
  Result<std::string> request(std::int64_t seq);
  Result<std::vector<StateChange>> changes(std::int64_t seq);
  /// The text, held against its checksums and (of an ended job) counts and hash. Damage is
  /// `storage`, never wrong text.
  Result<StoredText> text(const JobRow& row);
  /// The chunks of the same, with their tokens.
  Result<std::vector<Chunk>> chunks(const JobRow& row);
  /// The undamaged beginning, of a row that is not terminal.
  Result<StoredText> load_undamaged(std::int64_t seq);
  /// Lane, effort and running time of completed jobs, newest first.
  struct Past {
    Lane lane;
    std::string effort;
    std::int64_t run_ms;
  };
  Result<std::vector<Past>> history(int limit);
  /// The greatest id; empty where there are no jobs.
  Result<std::string> last_id();

  struct Recovered {
    std::int64_t moved = 0;
    std::vector<std::pair<std::string, State>> ended;  ///< id and state of those that ended by it
  };
  /// Rows that `running` under another instance are moved on, all in one transaction (FULL):
  /// to cancelled where that was wished, to queued (batch, told asks), else to interrupted.
  Result<Recovered> recover(std::string_view instance, std::int64_t now_ms);

  /// Retention: up to `limit` rows that may go.
  Result<std::vector<JobRow>> read_beyond(std::int64_t keep, int limit);
  Result<std::vector<JobRow>> unread_beyond(std::int64_t keep, int limit);
  Result<std::vector<JobRow>> unread_before(std::int64_t ended_ms, int limit);
  /// terminal -> expired with its one line; texts, request and history go.
  Result<void> expire(const std::vector<std::pair<std::int64_t, std::string>>& summaries);
  /// Deletes the oldest expired rows beyond `keep`.
  Result<std::int64_t> drop_tombstones(std::int64_t keep, int limit);
  Result<void> remove(std::int64_t seq);
  /// Gives back up to 256 free pages to the file system.
  void vacuum_some();

  /// Once a minute, and again soon while it says true: writes the log into the database file; when
  /// nothing else is to be done also empties it, gives free pages back and goes on with a check
  /// that was too long for the start.
  bool maintain(bool idle);

  /// A small write: whether the database takes writes (again).
  Result<void> probe();
  bool sync_failed() const;
  void checkpoint();

  /// Every prepared statement, for tests that explain them: name and SQL.
  static std::vector<std::pair<std::string_view, std::string_view>> statements();

 private:
  struct Impl;
  explicit JobStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// How far positions jump when a dead instance's job is moved on: more than it can have told of
/// text that never reached the disk, so that no position ever has two meanings.
inline constexpr std::int64_t kCrashGap = std::int64_t{1} << 24;

}  // namespace ponder::jobs
