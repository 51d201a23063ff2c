#pragma once
// What the outside was promised about every job, and whether the rows keep to it: the slow, obvious
// reference of the queue. It knows what was asked and told, what the model did, and looks at the
// rows after every step. The first breach ends a simulation.
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "jobs/job.h"
#include "jobs/job_queue.h"
#include "tests/fault/simulator/scripted_model.h"

struct sqlite3;
struct sqlite3_stmt;

namespace ponder::simulator {

/// A row of `job` as another program reads it.
struct Row {
  std::int64_t seq = 0;
  std::string id, label;
  jobs::Lane lane = jobs::Lane::batch;
  jobs::State state = jobs::State::queued;
  jobs::Reason reason = jobs::Reason::none;
  bool told = false, cancel_requested = false, pinned = false, read = false;
  std::int64_t deaths = 0, claims = 0, deadline_ms = 0, run_ms = 0, ended_wall_ms = 0;
  std::string parent_id;
  std::string rest;  ///< what of a terminal row never changes, in one string
};
struct StoredTexts {
  std::string reasoning, answer;
  std::size_t bytes() const { return reasoning.size() + answer.size(); }
};

/// A second connection to the database of a queue, or to an image of it.
class Audit {
 public:
  explicit Audit(const std::string& file);
  ~Audit();
  Audit(const Audit&) = delete;
  Audit& operator=(const Audit&) = delete;
  std::vector<Row> rows() const;  ///< by seq
  StoredTexts texts(std::int64_t seq) const;
  void execute(const std::string& sql) const;
  std::string value(const std::string& sql) const;
  /// Changes rows as a queue with a bug would: past the triggers, and with all checksums right.
  void tamper(const std::string& sql) const;

 private:
  sqlite3* db_ = nullptr;
  sqlite3_stmt* rows_ = nullptr;
  sqlite3_stmt* texts_ = nullptr;
};

struct Counts {
  std::int64_t accepted = 0, ended = 0, kills = 0, power_cuts = 0, stops = 0, starts = 0;
  std::int64_t waits = 0, cancels = 0, jumps = 0, store_errors = 0, keys = 0, deaths = 0;
  std::int64_t expired = 0, events = 0, followed = 0;
  void add(const Counts& other);
};

/// When the rows are looked at.
enum class Moment { step, after_stop, after_kill, after_power_cut };

class Ledger {
 public:
  Ledger(const jobs::Options& options, std::function<void(std::string)> breach)
      : options_(options), breach_(std::move(breach)) {}

  struct Entry {
    std::string id;
    std::int64_t order = 0;  ///< of submission
    bool accepted = false;
    Row row;
    std::string final_rest;
    std::optional<Script> script;
    std::optional<Ended> last_end;  ///< of its last run
    bool runs = false;              ///< a generation of it is live, as far as the model knows
    std::int64_t began_ms = 0, ran_ms = 0;
    std::int64_t deaths_seen = 0;
    bool ran_out_of_memory = false;
    bool cancel_asked = false, cancelled_told = false;
    std::optional<jobs::State> end_told;
    std::optional<bool> pin_told;
    bool must_be_told = false;          ///< a wait for this ask ran out while the disk was well
    bool may_go = false, gone = false;  ///< remove() was called, has answered
    bool may_expire = false;            ///< prune() was called
    std::int64_t waits_since_ms = 0;    ///< in this life
    std::deque<std::pair<std::int64_t, std::size_t>> told;  ///< steady ms and bytes of text
  };

  // What was asked and told.
  void submit_sent(const std::string& label) { ++possible_[label]; }
  void submit_made_nothing(const std::string& label) { --possible_[label]; }
  /// The rows are those of this moment.
  void accepted(const std::string& id, const std::vector<Row>& rows, std::int64_t now_ms);
  void end_told(const std::string& id, jobs::State state);
  Entry* find(const std::string& id);
  const std::map<std::string, Entry>& entries() const { return entries_; }
  std::map<std::string, Entry>& entries() { return entries_; }

  // What the model did.
  Entry* run_started(const ScriptedModel::Run& run, const std::vector<Row>& rows,
                     std::int64_t now_ms, int live_batch);
  void run_told(Entry& entry, const ScriptedModel::Run& run, std::int64_t now_ms);
  void run_ended(Entry& entry, const Ended& ended, std::int64_t now_ms);

  /// After a step (nothing is left to do at this moment), or at the start of a new life.
  void look(const Audit& audit, Moment moment, std::int64_t now_ms);
  /// The process that ran them is gone.
  void life_ended(std::int64_t now_ms);
  /// The next one believes this clock, and no jump of it while it runs.
  void life_began(std::int64_t wall_offset_ms) { believed_offset_ms_ = wall_offset_ms; }
  /// After everything had its time: nothing is left, and every text is whole.
  void settle(const Audit& audit);
  /// Of a killed daemon: text older than the flush interval is there.
  void check_lag(const Audit& audit, std::int64_t killed_ms);

 private:
  void admit(Entry& entry, const Row& row, std::int64_t now_ms);
  void look_at(Entry& entry, const Row& row, const Audit& audit, Moment moment);
  void judge_end(Entry& entry, const Row& row, const Audit& audit, Moment moment);
  void judge_expiry(const Entry& entry, const std::vector<Row>& rows,
                    const std::set<std::string>& expired, std::int64_t now_ms);
  void breach(const Entry& entry, const std::string& what);

  const jobs::Options& options_;
  std::function<void(std::string)> breach_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, int> possible_;  ///< rows that a label may have
  std::map<std::string, int> made_;
  std::int64_t next_order_ = 1;
  std::int64_t believed_offset_ms_ = 0;  ///< wall clock less steady clock, when this life began
};

}  // namespace ponder::simulator
