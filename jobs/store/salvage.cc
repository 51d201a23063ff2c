#include "jobs/store/salvage.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>

#include "engine/base/check.h"
#include "engine/base/ids.h"
#include "engine/base/json.h"
#include "engine/base/log.h"
#include "engine/base/utf8.h"
#include "jobs/job.h"
#include "jobs/job_text.h"
#include "jobs/store/job_store.h"
#include "jobs/store/seal.h"
#include "jobs/store/statements.h"

namespace ponder::jobs {
namespace {

constexpr const char* kLost = "lost: storage damage";
constexpr const char* kLostHint =
    "submit it again; what is left of the damaged database lies beside it";
constexpr std::int64_t kMaxGap = 1'000'000;  // numbers of rows that are tried one by one

/// Columns of PONDER_JOB_COLUMNS by their place.
enum Column { kSeq, kId, kLane, kState, kReason, kWorkspace, kLabel, kFacts = 24, kSha = 33 };

class Salvage {
 public:
  Salvage(Database& from, Database& into, std::int64_t now_ms, std::string_view instance,
          SalvageCounts& counts)
      : from_(from), into_(into), now_ms_(now_ms), instance_(instance), counts_(counts) {}

  Result<void> prepare() {
    TRY(const std::int64_t sealed,
        from_.pragma_integer("SELECT count(*) FROM pragma_table_info('job') WHERE name = 'seal'"));
    sealed_ = sealed != 0;
    const char* tail = sealed_ ? ", request_crc32, " PONDER_HOLDS " FROM job WHERE seq = ?1"
                               : ", NULL, 1 FROM job WHERE seq = ?1";
    TRY(read_job_, from_.prepare(std::string("SELECT " PONDER_JOB_COLUMNS) + tail));
    TRY(read_chunks_, from_.prepare("SELECT job, seq, attempt, channel, text, token_count, tokens, "
                                    "crc32 FROM chunk WHERE job = ?1 ORDER BY seq"));
    TRY(read_request_,
        from_.prepare("SELECT job, body, ponder_crc32(job, body) FROM request WHERE job = ?1"));
    TRY(read_changes_,
        from_.prepare(std::string("SELECT job, seq, position, text_bytes, cut, state, reason, "
                                  "attempt, at_ms, note, ") +
                      (sealed_ ? "crc32 IS " PONDER_CHANGE_SEAL("text_bytes") : "1") +
                      " FROM state_change WHERE job = ?1 ORDER BY seq"));
    std::string marks;
    for (int i = 1; i <= kColumns + 1; ++i)
      marks += fmt::format("{}?{}", i == 1 ? "" : ", ", i);
    TRY(add_job_, into_.prepare("INSERT INTO job (" PONDER_JOB_COLUMNS ", request_crc32) VALUES (" +
                                marks + ")"));
    TRY(add_lost_,
        into_.prepare("INSERT INTO job (seq, id, lane, state, reason, workspace, label, "
                      "body_sha256, effort_requested, created_ms, ended_ms, error_code, "
                      "chunk_count, text_bytes, text_sha256) VALUES (?1, ?2, ?3, 'failed', "
                      "'storage', ?4, ?5, zeroblob(32), 'medium', ?6, ?7, 'storage', 0, 0, ?8)"));
    TRY(add_chunk_, into_.prepare("INSERT INTO chunk (job, seq, attempt, channel, text, "
                                  "token_count, tokens, crc32) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, "
                                  "?8)"));
    TRY(add_request_, into_.prepare("INSERT INTO request (job, body) VALUES (?1, ?2)"));
    TRY(add_change_,
        into_.prepare("INSERT INTO state_change (job, seq, position, text_bytes, cut, state, "
                      "reason, attempt, at_ms, note, crc32) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, "
                      "?8, ?9, ?10, ponder_crc32(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10))"));
    // Without its key: whoever sends the request again gets a new job.
    TRY(fail_, into_.prepare("UPDATE job SET state = 'failed', reason = 'storage', "
                             "instance = NULL, ended_ms = coalesce(ended_ms, ?8), "
                             "error_code = 'storage', error_message = ?9, error_hint = ?10, "
                             "summary = '', idempotency_key = NULL, reasoning_chars = ?2, "
                             "answer_chars = ?3, chunk_count = ?4, text_bytes = ?5, "
                             "text_sha256 = ?6, note = ?7 WHERE seq = ?1"));
    TRY(set_text_, into_.prepare("UPDATE job SET reasoning_chars = ?2, answer_chars = ?3, "
                                 "chunk_count = iif(ended_ms IS NULL, NULL, ?4), "
                                 "text_bytes = iif(ended_ms IS NULL, NULL, ?5), "
                                 "text_sha256 = iif(ended_ms IS NULL, NULL, ?6), "
                                 "note = ?7 WHERE seq = ?1"));
    TRY(seal_, into_.prepare("UPDATE job SET seal = " PONDER_SEAL " WHERE seq = ?1"));
    TRY(drop_, into_.prepare("DELETE FROM job WHERE seq = ?1"));
    return {};
  }

  /// Every number of a row that any table or index knows.
  std::set<std::int64_t> numbers() {
    std::set<std::int64_t> all;
    bool whole = true;
    const auto add = [&](const char* sql, bool ids = false) {
      auto statement = from_.prepare(sql);
      if (!statement) {
        whole = false;
        return;
      }
      Cursor c(*statement);
      for (;;) {
        const auto row = c.step();
        if (!row) whole = false;
        if (!row || !*row) return;
        all.insert(c.integer_at(0));
        if (ids) index_ids_.emplace(c.integer_at(0), c.text_at(1));
      }
    };
    add("SELECT seq, id FROM job INDEXED BY sqlite_autoindex_job_1 ORDER BY id", true);
    add("SELECT seq, id FROM job INDEXED BY sqlite_autoindex_job_1 ORDER BY id DESC", true);
    add("SELECT seq FROM job NOT INDEXED ORDER BY seq");
    add("SELECT seq FROM job NOT INDEXED ORDER BY seq DESC");
    add("SELECT seq FROM job INDEXED BY job_ended ORDER BY state, ended_ms");
    for (const char* table : {"request", "state_change", "chunk"}) {
      add(fmt::format("SELECT DISTINCT job FROM {} ORDER BY job", table).c_str());
      add(fmt::format("SELECT DISTINCT job FROM {} ORDER BY job DESC", table).c_str());
    }
    if (!whole && !all.empty() && *all.rbegin() - *all.begin() <= kMaxGap)
      for (std::int64_t seq = *all.begin(); seq < *all.rbegin(); ++seq)
        all.insert(seq);
    return all;
  }

  Result<void> take(std::int64_t seq) {
    read_text(seq);
    read_history(seq);
    std::optional<Salvaged> found;
    std::string id;
    {
      Cursor row(read_job_);
      row.integer(1, seq);
      const auto there = row.step();
      if (there && *there) {
        id = row.text_at(kId);
        TRY(found, take_row(row, id));
        if (found) return keep(id, std::move(*found));
      }
      if (there && !*there && chunks_.empty() && history_.empty() && index_ids_.count(seq) == 0)
        return {};  // there never was such a row, or it was deleted
    }
    // The row cannot be trusted. The index has the id once more.
    if (const auto known = index_ids_.find(seq); known != index_ids_.end()) id = known->second;
    if (!is_job_id(id)) {
      ++counts_.unknown;
      return {};
    }
    if (counts_.jobs.count(id) != 0) return {};  // a better view had it
    TRY(const bool added, add_lost(seq, id));
    if (!added) return {};
    return keep(id, {Salvaged::Fate::lost, seq, "its row"});
  }

 private:
  static constexpr int kColumns = 35;

  Result<void> keep(const std::string& id, Salvaged found) {
    counts_.jobs.insert_or_assign(id, std::move(found));
    return {};
  }

  /// The chunks up to the first that does not hold.
  void read_text(std::int64_t seq) {
    chunks_.clear();
    text_ = {};
    Cursor c(read_chunks_);
    c.integer(1, seq);
    chunks_damaged_ = true;
    for (;;) {
      const auto row = c.step();
      if (!row) return;
      if (!*row) break;
      StoredChunk chunk{c.integer_at(2), c.integer_at(3), c.integer_at(5),
                        c.integer_at(7), c.text_at(4),    c.text_at(6)};
      const auto number = static_cast<std::int64_t>(chunks_.size());
      if (c.integer_at(1) != number ||
          chunk.crc != chunk_crc(seq, number, chunk.attempt, chunk.channel, chunk.text,
                                 chunk.token_count, chunk.tokens))
        return;
      text_.append(chunk.channel == 0 ? Channel::reasoning : Channel::answer, chunk.text);
      chunks_.push_back(std::move(chunk));
    }
    chunks_damaged_ = false;
  }

  void read_history(std::int64_t seq) {
    history_.clear();
    history_damaged_ = true;
    Cursor c(read_changes_);
    c.integer(1, seq);
    for (;;) {
      const auto row = c.step();
      if (!row) return;
      if (!*row) break;
      const auto state = state_from(c.text_at(5));
      const auto reason = reason_from(c.text_at(6));
      if (c.integer_at(10) == 0 || !state || !reason ||
          c.integer_at(1) != static_cast<std::int64_t>(history_.size()) + 1)
        return;
      StateChange change;
      change.seq = c.integer_at(1);
      change.position = c.integer_at(2);
      change.text_bytes = c.integer_at(3);
      change.cut = c.integer_at(4) != 0;
      change.state = *state;
      change.reason = *reason;
      change.attempt = c.integer_at(7);
      change.at_ms = c.integer_at(8);
      change.note = c.text_at(9);
      history_.push_back(std::move(change));
    }
    history_damaged_ = history_.empty();
  }

  /// Copies the job whose row this is. nullopt: the row is not what was written.
  Result<std::optional<Salvaged>> take_row(Cursor& row, const std::string& id) {
    const std::optional<Salvaged> none;
    const std::int64_t seq = row.integer_at(kSeq);
    const auto state = state_from(row.text_at(kState));
    if (row.integer_at(kColumns + 1) == 0 || !state || !is_job_id(id) ||
        !is_valid_utf8(row.text_at(kWorkspace)) || !is_valid_utf8(row.text_at(kLabel)) ||
        !parse_json_object(row.text_at(kFacts)))
      return none;
    const bool live = !is_terminal(*state);
    Salvaged out{Salvaged::Fate::whole, seq, {}};
    const bool expired = *state == State::expired;
    const bool has_request = expired || read_request(row);
    const bool has_text =
        expired ||
        (!chunks_damaged_ &&
         (live ||
          (static_cast<std::int64_t>(chunks_.size()) == row.integer_at(kSha - 2) &&
           text_.size() == row.integer_at(kSha - 1) && text_.sha256() == row.text_at(kSha))));
    const bool worked_on = *state == State::running && row.text_at(kInstance) == instance_;
    // A text that ended as it should and is not there is no success any more. Another ending stays
    // what it is, with what is left of its text.
    const bool fails = (live && (!has_request || (worked_on && !has_text))) ||
                       (*state == State::completed && !has_text);
    if (!has_request) out.what = "its request";
    if (!has_text) out.what = "text after " + std::to_string(text_.size()) + " bytes";
    if (!has_text || (live && !has_request))
      out.fate = fails || !live ? Salvaged::Fate::lost : Salvaged::Fate::cut;
    const auto before = counts_.jobs.find(id);
    if (before != counts_.jobs.end()) {
      if (before->second.fate >= out.fate) return std::optional<Salvaged>(before->second);
      TRY_VOID(Cursor(drop_).integer(1, before->second.seq).run());
    }
    {
      Cursor add(add_job_);
      for (int i = 0; i <= kColumns; ++i)
        add.copy(i + 1, row, i);
      if (const auto added = add.run(); !added) {
        if (is_damage(added.error()) || !is_constraint(added.error())) return fail(added.error());
        return none;  // the schema's rules do not hold for it
      }
    }
    if (fails)
      TRY_VOID(lose(seq, out.what));
    else if (!has_text)
      TRY_VOID(cut_text(seq, out.what));
    if (has_request && !expired && !request_.empty())
      TRY_VOID(Cursor(add_request_).integer(1, seq).text(2, request_).run());
    if (!expired)
      TRY_VOID(add_parts(
          seq, fails ? State::failed : *state,
          fails ? Reason::storage : reason_from(row.text_at(kReason)).value_or(Reason::none)));
    TRY_VOID(Cursor(seal_).integer(1, seq).run());
    return std::optional<Salvaged>(std::move(out));
  }

  /// The row is in, and says from now on that it lost something, and what is left of its text.
  Result<void> lose(std::int64_t seq, const std::string& what) {
    const std::string message = kLost;
    const std::string hint = kLostHint;
    return with_text(fail_, seq, what,
                     [&](Cursor& c) { c.integer(8, now_ms_).text(9, message).text(10, hint); });
  }
  Result<void> cut_text(std::int64_t seq, const std::string& what) {
    return with_text(set_text_, seq, what, [](Cursor&) {});
  }
  template <class Bind>
  Result<void> with_text(Statement& statement, std::int64_t seq, const std::string& what,
                         const Bind& bind) {
    const std::string sha256 = text_.sha256();
    const std::string note = fmt::format("{} ({})", kLost, what);
    Cursor c(statement);
    c.integer(1, seq)
        .integer(2, text_.chars(Channel::reasoning))
        .integer(3, text_.chars(Channel::answer))
        .integer(4, static_cast<std::int64_t>(chunks_.size()))
        .integer(5, text_.size())
        .blob(6, sha256)
        .text(7, note);
    bind(c);
    return c.run();
  }

  bool read_request(const Cursor& row) {
    request_.clear();
    Cursor c(read_request_);
    c.integer(1, row.integer_at(kSeq));
    const auto found = c.step();
    if (!found || !*found) return false;
    if (sealed_ && (row.is_null(kColumns) || c.integer_at(2) != row.integer_at(kColumns)))
      return false;
    request_ = c.text_at(1);
    return is_valid_utf8(request_);
  }

  /// Text and history. What is missed of the history is one jump to where the job stands.
  Result<void> add_parts(std::int64_t seq, State state, Reason reason) {
    std::int64_t number = 0;
    for (const StoredChunk& chunk : chunks_)
      TRY_VOID(Cursor(add_chunk_)
                   .integer(1, seq)
                   .integer(2, number++)
                   .integer(3, chunk.attempt)
                   .integer(4, chunk.channel)
                   .blob(5, chunk.text)
                   .integer(6, chunk.token_count)
                   .blob(7, chunk.tokens)
                   .integer(8, chunk.crc)
                   .run());
    const bool jumps = history_damaged_ || history_.back().state != state ||
                       history_.back().reason != reason ||
                       history_.back().text_bytes > text_.size();
    for (StateChange& change : history_)
      change.text_bytes = std::min(change.text_bytes, text_.size());
    if (jumps) {
      StateChange change;
      change.seq = static_cast<std::int64_t>(history_.size()) + 1;
      const std::int64_t told = history_.empty() ? 0 : history_.back().position;
      change.position = told + kCrashGap + text_.size() + 1;
      change.text_bytes = text_.size();
      change.state = state;
      change.reason = reason;
      change.attempt = history_.empty() ? 0 : history_.back().attempt;
      change.at_ms = now_ms_;
      change.note = "the job database was damaged";
      history_.push_back(std::move(change));
    }
    for (const StateChange& change : history_) {
      Cursor row(add_change_);
      TRY_VOID(insert_change(row, seq, change));
    }
    return {};
  }

  /// A job of which only the id is sure. False: it cannot be added.
  Result<bool> add_lost(std::int64_t seq, const std::string& id) {
    std::string lane = "batch", workspace, label;
    std::int64_t created_ms = 0;
    {
      Cursor row(read_job_);
      row.integer(1, seq);
      const auto there = row.step();
      if (there && *there) {  // who asked, as far as it can be read: it is listed there
        if (row.text_at(kLane) == "ask") lane = "ask";
        if (is_valid_utf8(row.text_at(kWorkspace))) workspace = row.text_at(kWorkspace);
        if (is_valid_utf8(row.text_at(kLabel))) label = row.text_at(kLabel);
        created_ms = row.integer_at(kCreated);
      }
    }
    if (created_ms <= 0 || created_ms > now_ms_) created_ms = now_ms_;
    const std::string sha256 = JobText().sha256();
    const auto added = Cursor(add_lost_)
                           .integer(1, seq)
                           .text(2, id)
                           .text(3, lane)
                           .text(4, workspace)
                           .text(5, label)
                           .integer(6, created_ms)
                           .integer(7, now_ms_)
                           .blob(8, sha256)
                           .run();
    if (!added) {
      if (!is_constraint(added.error())) return fail(added.error());
      return false;
    }
    TRY_VOID(lose(seq, "its row"));
    TRY_VOID(add_parts(seq, State::failed, Reason::storage));
    TRY_VOID(Cursor(seal_).integer(1, seq).run());
    return true;
  }

  static constexpr int kInstance = 19;
  static constexpr int kCreated = 20;
  struct StoredChunk {
    std::int64_t attempt, channel, token_count, crc;
    std::string text, tokens;
  };

  Database& from_;
  Database& into_;
  const std::int64_t now_ms_;
  const std::string_view instance_;
  SalvageCounts& counts_;
  bool sealed_ = true;
  Statement read_job_, read_chunks_, read_request_, read_changes_;
  Statement add_job_, add_lost_, add_chunk_, add_request_, add_change_, fail_, set_text_, seal_,
      drop_;
  std::map<std::int64_t, std::string> index_ids_;
  // Of the job at hand.
  std::vector<StoredChunk> chunks_;
  JobText text_;
  std::vector<StateChange> history_;
  std::string request_;
  bool chunks_damaged_ = false;
  bool history_damaged_ = false;
};
}  // namespace

Result<void> salvage(Database& from, Database& into, std::int64_t now_ms, std::string_view instance,
                     SalvageCounts& counts) {
  Salvage work(from, into, now_ms, instance, counts);
  if (const Result<void> ready = work.prepare(); !ready) {
    log_error(
        fmt::format("nothing of the damaged database can be read: {}", ready.error().message));
    return {};
  }
  const std::set<std::int64_t> numbers = work.numbers();
  auto next = numbers.begin();
  while (next != numbers.end()) {
    const Result<void> taken = into.transaction(Durability::normal, [&]() -> Result<void> {
      for (int i = 0; i < 50 && next != numbers.end(); ++i, ++next)
        TRY_VOID(work.take(*next));
      return {};
    });
    if (!taken) return taken;
  }
  return {};
}

Result<std::vector<std::string>> take_triggers(Database& db) {
  std::vector<std::string> triggers, names;
  {
    TRY(Statement all, db.prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"));
    Cursor c(all);
    for (;;) {
      TRY(const bool row, c.step());
      if (!row) break;
      names.push_back(c.text_at(0));
      triggers.push_back(c.text_at(1));
    }
  }
  for (const std::string& name : names)
    TRY_VOID(db.execute(("DROP TRIGGER " + name).c_str()));
  return triggers;
}

Result<void> put_triggers(Database& db, const std::vector<std::string>& triggers) {
  for (const std::string& trigger : triggers)
    TRY_VOID(db.execute(trigger.c_str()));
  return {};
}

}  // namespace ponder::jobs
