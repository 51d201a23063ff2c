#include "tests/fault/simulator/ledger.h"

#include <fmt/core.h>
#include <sqlite3.h>

#include <algorithm>
#include <cstdlib>

#include "jobs/store/seal.h"
#include "jobs/store/statements.h"

namespace ponder::simulator {

using jobs::Lane;
using jobs::Reason;
using jobs::State;

// --- the rows as another program reads them -----------------------------------------------------

Audit::Audit(const std::string& file) {
  const int code = sqlite3_open_v2(file.c_str(), &db_, SQLITE_OPEN_READWRITE, nullptr);
  if (code != SQLITE_OK) std::abort();
  const auto prepare = [&](const char* sql, sqlite3_stmt** to) {
    if (sqlite3_prepare_v2(db_, sql, -1, to, nullptr) != SQLITE_OK) std::abort();
  };
  prepare(
      "SELECT seq, id, label, lane, state, reason, told, cancel_requested, pinned, "
      "read_ms IS NOT NULL, deaths, claims, coalesce(deadline_ms, 0), run_ms, "
      "coalesce(parent_id, ''), coalesce(ended_ms, 0), CASE WHEN ended_ms IS NULL THEN '' ELSE "
      "coalesce(idempotency_key, '') || hex(body_sha256) || '/' || attempt || '/' || created_ms || "
      "'/' || coalesce(started_ms, 0) || '/' || ended_ms || '/' || run_ms || '/' || "
      "reasoning_chars || '/' || answer_chars || '/' || chunk_count || '/' || text_bytes || '/' || "
      "hex(text_sha256) END FROM job ORDER BY seq",
      &rows_);
  prepare("SELECT channel, text FROM chunk WHERE job = ?1 ORDER BY seq", &texts_);
}

Audit::~Audit() {
  sqlite3_finalize(rows_);
  sqlite3_finalize(texts_);
  sqlite3_close(db_);
}

std::vector<Row> Audit::rows() const {
  std::vector<Row> rows;
  const auto text = [this](int column) {
    const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(rows_, column));
    return std::string(bytes ? bytes : "");
  };
  int code = SQLITE_OK;
  while ((code = sqlite3_step(rows_)) == SQLITE_ROW) {
    Row row;
    row.seq = sqlite3_column_int64(rows_, 0);
    row.id = text(1);
    row.label = text(2);
    row.lane = text(3) == "ask" ? Lane::ask : Lane::batch;
    row.state = jobs::state_from(text(4)).value();
    row.reason = jobs::reason_from(text(5)).value();
    row.told = sqlite3_column_int(rows_, 6) != 0;
    row.cancel_requested = sqlite3_column_int(rows_, 7) != 0;
    row.pinned = sqlite3_column_int(rows_, 8) != 0;
    row.read = sqlite3_column_int(rows_, 9) != 0;
    row.deaths = sqlite3_column_int64(rows_, 10);
    row.claims = sqlite3_column_int64(rows_, 11);
    row.deadline_ms = sqlite3_column_int64(rows_, 12);
    row.run_ms = sqlite3_column_int64(rows_, 13);
    row.parent_id = text(14);
    row.ended_wall_ms = sqlite3_column_int64(rows_, 15);
    row.rest = text(16);
    rows.push_back(std::move(row));
  }
  sqlite3_reset(rows_);
  if (code != SQLITE_DONE) std::abort();
  return rows;
}

StoredTexts Audit::texts(std::int64_t seq) const {
  StoredTexts out;
  sqlite3_bind_int64(texts_, 1, seq);
  while (sqlite3_step(texts_) == SQLITE_ROW) {
    const auto* bytes = static_cast<const char*>(sqlite3_column_blob(texts_, 1));
    const auto size = static_cast<std::size_t>(sqlite3_column_bytes(texts_, 1));
    if (bytes)
      (sqlite3_column_int(texts_, 0) == 0 ? out.reasoning : out.answer).append(bytes, size);
  }
  sqlite3_reset(texts_);
  return out;
}

void Audit::execute(const std::string& sql) const {
  char* message = nullptr;
  if (sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, &message) == SQLITE_OK) return;
  fmt::print(stderr, "{}: {}\n", sql, message ? message : "");
  std::abort();
}

void Audit::tamper(const std::string& sql) const {
  jobs::add_crc_function(db_);
  // Out of the way of those who say that such a thing cannot be.
  std::string drop, make;
  sqlite3_stmt* triggers = nullptr;
  sqlite3_prepare_v2(db_, "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'", -1,
                     &triggers, nullptr);
  while (sqlite3_step(triggers) == SQLITE_ROW) {
    const auto text = [&](int column) {
      return reinterpret_cast<const char*>(sqlite3_column_text(triggers, column));
    };
    drop += fmt::format("DROP TRIGGER {};", text(0));
    make += fmt::format("{};", text(1));
  }
  sqlite3_finalize(triggers);
  execute(
      "BEGIN;" + drop + sql +
      "UPDATE job SET request_crc32 = (SELECT ponder_crc32(job, body) FROM request WHERE "
      "request.job = job.seq);"
      "UPDATE job SET seal = " PONDER_SEAL
      ";"
      "UPDATE state_change SET crc32 = ponder_crc32(job, seq, position, text_bytes, cut, state, "
      "reason, attempt, at_ms, note);" +
      make + "COMMIT;");
}

std::string Audit::value(const std::string& sql) const {
  std::string out;
  sqlite3_exec(
      db_, sql.c_str(),
      [](void* to, int, char** values, char**) {
        *static_cast<std::string*>(to) = values[0] ? values[0] : "";
        return 0;
      },
      &out, nullptr);
  return out;
}

void Counts::add(const Counts& o) {
  for (const auto field :
       {&Counts::accepted, &Counts::ended, &Counts::kills, &Counts::power_cuts, &Counts::stops,
        &Counts::starts, &Counts::waits, &Counts::cancels, &Counts::jumps, &Counts::store_errors,
        &Counts::keys, &Counts::deaths, &Counts::expired, &Counts::events, &Counts::followed})
    this->*field += o.*field;
}

// --- what was told ------------------------------------------------------------------------------

void Ledger::breach(const Entry& entry, const std::string& what) {
  breach_(fmt::format("{} ({}, {}): {}", entry.row.label,
                      entry.row.lane == Lane::ask ? "ask" : "batch", to_string(entry.row.state),
                      what));
}

Ledger::Entry* Ledger::find(const std::string& id) {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

void Ledger::accepted(const std::string& id, const std::vector<Row>& rows, std::int64_t now_ms) {
  Entry& entry = entries_[id];
  entry.accepted = true;
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.id == id; });
  if (row == rows.end()) return breach_(id + " was told, and has no row");
  admit(entry, *row, now_ms);
}

void Ledger::admit(Entry& entry, const Row& row, std::int64_t now_ms) {
  if (entry.order != 0) return;
  entry.id = row.id;
  entry.order = next_order_++;
  entry.waits_since_ms = now_ms;
  entry.row = row;
  entry.row.state = State::queued;
  entry.row.claims = 0;
  if (++made_[row.label] > possible_[row.label])
    breach(entry, "there are more jobs of it than were submitted");
}

void Ledger::end_told(const std::string& id, State state) {
  Entry& entry = entries_[id];
  if (entry.end_told && *entry.end_told != state && state != State::expired)
    breach(entry, fmt::format("its end was told as {} and as {}", to_string(*entry.end_told),
                              to_string(state)));
  if (state != State::expired) entry.end_told = state;
  if (state == State::cancelled) entry.cancelled_told = true;
}

// --- what the model did -------------------------------------------------------------------------

Ledger::Entry* Ledger::run_started(const ScriptedModel::Run& run, const std::vector<Row>& rows,
                                   std::int64_t now_ms, int live_batch) {
  const auto is_new = [this](const Row& row) {
    const Entry* entry = find(row.id);
    return row.state == State::running && (!entry || row.claims > entry->row.claims);
  };
  const auto row = std::find_if(rows.begin(), rows.end(), is_new);
  if (row == rows.end()) {
    breach_("a generation was started that no row was claimed for");
    return nullptr;
  }
  if (std::count_if(rows.begin(), rows.end(), is_new) > 1)
    breach_("two rows were claimed for one generation");
  Entry* found = find(row->id);
  if (!found || found->order == 0) {
    breach_("a job was started in the step that made it, before its id was told");
    return nullptr;
  }
  Entry& entry = *found;
  if (is_terminal(entry.row.state)) breach(entry, "it had ended and was started again");
  if (entry.row.cancel_requested || entry.cancelled_told)
    breach(entry, "it was cancelled and was started again");
  if (entry.runs) breach(entry, "it was started while an attempt of it runs");
  const auto on_trial = [this](std::int64_t deaths) {
    return deaths > 0 && deaths + 1 >= options_.max_attempts;
  };
  // A place is taken until the queue has heard of the end as well.
  auto taken = std::count_if(rows.begin(), rows.end(), [](const Row& other) {
    return other.lane == Lane::batch && other.state == State::running;
  });
  if (row->lane == Lane::batch) --taken;  // its own
  const bool batch_place =
      std::max(live_batch, static_cast<int>(taken)) < options_.max_running_batch;
  const bool is_ask = row->lane == Lane::ask;
  const std::int64_t ageing_ms = static_cast<std::int64_t>(options_.ageing_s * 1000);
  bool trial_waits = false;
  for (const Row& other : rows) {
    const Entry* before = find(other.id);
    if (other.state != State::queued || !before || before->order == 0) continue;
    // One that may have killed the engine, or took too much memory, waits until it can be alone.
    const bool alone = on_trial(other.deaths) || before->ran_out_of_memory;
    trial_waits = trial_waits || alone;
    if (before->order > entry.order) continue;
    const bool aged = now_ms - before->waits_since_ms > ageing_ms;
    if (alone) {
      if (aged && taken == 0 && live_batch == 0)
        breach(entry,
               fmt::format("it was started before {}, which waits to be alone and has waited "
                           "for {} ms",
                           other.label, now_ms - before->waits_since_ms));
      continue;
    }
    if (other.lane == row->lane)
      breach(entry, fmt::format("it was started before {}, which was there first", other.label));
    if (is_ask && other.lane == Lane::batch && aged && batch_place && !trial_waits)
      breach(entry, fmt::format("an ask was started before {}, which had waited for {} ms",
                                other.label, now_ms - before->waits_since_ms));
  }
  if (entry.script && entry.script->prompt() != run.script.prompt())
    breach(entry, "its prompt changed");
  if (!run.script.could_say(run.tokens)) {
    std::string tokens;
    for (const std::int32_t token : run.tokens)
      tokens += fmt::format(" {}", token);
    breach(entry, "it goes on after tokens it never had:" + tokens);
  }
  entry.script = run.script;
  entry.row = *row;
  entry.last_end.reset();
  entry.runs = true;
  entry.began_ms = now_ms;
  return &entry;
}

void Ledger::run_told(Entry& entry, const ScriptedModel::Run& run, std::int64_t now_ms) {
  std::size_t bytes = 0;
  for (const std::int32_t token : run.tokens)
    bytes += run.script.text_of(token).size();
  entry.told.emplace_back(now_ms, bytes - run.held.size());
  while (entry.told.size() > 40)
    entry.told.pop_front();
}

void Ledger::run_ended(Entry& entry, const Ended& ended, std::int64_t now_ms) {
  entry.last_end = ended;
  entry.runs = false;
  entry.ran_ms += now_ms - entry.began_ms;
  if (ended.finish == Finish::worker_died) ++entry.deaths_seen;
  if (ended.error && ended.error->code == ErrorCode::out_of_memory) entry.ran_out_of_memory = true;
}

void Ledger::life_ended(std::int64_t now_ms) {
  for (auto& [id, entry] : entries_) {
    if (entry.runs) entry.ran_ms += now_ms - entry.began_ms;
    entry.runs = false;
    entry.waits_since_ms = now_ms;
  }
}

// --- the rows -----------------------------------------------------------------------------------

void Ledger::look(const Audit& audit, Moment moment, std::int64_t now_ms) {
  const std::vector<Row> rows = audit.rows();
  std::set<std::string> there;
  std::set<std::string> expired;
  for (const Row& row : rows) {
    there.insert(row.id);
    Entry& entry = entries_[row.id];
    admit(entry, row, now_ms);
    const bool expires = row.state == State::expired && entry.row.state != State::expired;
    look_at(entry, row, audit, moment);
    if (expires) expired.insert(row.id);
  }
  for (const std::string& id : expired)
    judge_expiry(entries_.at(id), rows, expired, now_ms);
  for (auto& [id, entry] : entries_) {
    if (there.count(id) != 0 || entry.gone) continue;
    if (entry.may_go) {
      entry.gone = true;
    } else if (entry.accepted) {
      breach(entry, "an accepted job is lost");
    } else if (entry.order != 0) {
      breach(entry, "a job that was there is lost");
    }
  }
}

void Ledger::look_at(Entry& entry, const Row& row, const Audit& audit, Moment moment) {
  const State from = entry.row.state;
  const bool power_cut = moment == Moment::after_power_cut;
  if (entry.gone) breach(entry, "it was removed and is there again");
  if (moment != Moment::step && row.state == State::running)
    breach(entry, "it says running, and nobody runs it");
  const bool unexpired = power_cut && from == State::expired && is_terminal(row.state);
  if (is_terminal(from) && !unexpired) {
    if (row.state != from && row.state != State::expired)
      breach(entry, fmt::format("its end became {}", to_string(row.state)));
    if (row.state != State::expired && row.rest != entry.final_rest)
      breach(entry, fmt::format("its last row changed from {} to {}", entry.final_rest, row.rest));
  }
  if (!power_cut && row.claims < entry.row.claims) breach(entry, "a claim is lost");
  if (row.deaths < entry.row.deaths) breach(entry, "a death of the engine is forgotten");
  if (row.deaths > entry.deaths_seen)
    breach(entry, fmt::format("{} deaths of the engine are counted, {} were seen", row.deaths,
                              entry.deaths_seen));
  if (entry.row.told && !row.told) breach(entry, "that its id was told is forgotten");
  if (entry.row.cancel_requested && !row.cancel_requested)
    breach(entry, "the wish to cancel it is forgotten");
  if (entry.end_told && *entry.end_told != row.state && row.state != State::expired)
    breach(entry, fmt::format("its end was told as {}, and it is {}", to_string(*entry.end_told),
                              to_string(row.state)));
  if (entry.pin_told && row.state != State::expired && row.pinned != *entry.pin_told)
    breach(entry, "its pin is not what was answered");
  if (entry.must_be_told && !row.told && !is_terminal(row.state))
    breach(entry, "its id was told, and its row does not know");
  const bool ends = is_terminal(row.state) && !is_terminal(from);
  if (ends) {
    entry.final_rest = row.rest;
    if (row.state != State::expired) judge_end(entry, row, audit, moment);
  }
  if (row.state == State::queued && from != State::queued && moment == Moment::step &&
      !entry.last_end)
    breach(entry, "it went back to the queue while its attempt ran");
  entry.row = row;
}

/// Whether the end of a job is what its last attempt came to.
void Ledger::judge_end(Entry& entry, const Row& row, const Audit& audit, Moment moment) {
  // Nothing was said of an end that came from outside.
  const Finish finish = entry.last_end ? entry.last_end->finish : Finish::cancelled;
  const std::string shown = fmt::format("{} {}", to_string(row.state), to_string(row.reason));
  bool right = false;
  switch (row.state) {
    case State::completed:
      right = finish == Finish::end_token;
      break;
    case State::incomplete:
      right =
          (row.reason == Reason::output_limit && finish == Finish::output_limit) ||
          (row.reason == Reason::reasoning_exhausted && finish == Finish::reasoning_exhausted) ||
          (row.reason == Reason::repetition && finish == Finish::repetition) ||
          (row.reason == Reason::stream_lost && finish == Finish::stream_lost) ||
          (row.reason == Reason::stalled && finish == Finish::stalled) ||
          row.reason == Reason::deadline;
      break;
    case State::failed:
      right = (row.reason == Reason::poison && row.deaths == options_.max_attempts) ||
              (finish == Finish::failed && row.reason != Reason::poison);
      break;
    case State::cancelled:
      right = entry.cancel_asked;
      break;
    case State::interrupted:
      right = row.lane == Lane::ask && !row.told && moment != Moment::step;
      break;
    default:
      break;
  }
  if (!right)
    breach(entry, fmt::format("it ended {}, its last attempt with {}", shown,
                              entry.last_end ? to_string(finish) : "nothing"));
  if (row.reason == Reason::deadline &&
      (row.deadline_ms == 0 || entry.ran_ms + 1 < row.deadline_ms))
    breach(entry, fmt::format("its deadline of {} ms was reached after {} ms", row.deadline_ms,
                              entry.ran_ms));
  const StoredTexts texts = audit.texts(row.seq);
  const bool whole = row.state == State::completed;
  if (entry.script ? !entry.script->begins(texts.reasoning, texts.answer, whole)
                   : whole || texts.bytes() > 0) {
    // One that never ran may have the text of the job that it goes on from.
    if (entry.script || row.parent_id.empty())
      breach(entry,
             fmt::format("its text is not the model's: {}|{}", texts.reasoning, texts.answer));
  }
}

/// Whether a result may have expired: only what newer results push out, or what is old enough. New
/// is what ended later by the wall clock's word.
void Ledger::judge_expiry(const Entry& entry, const std::vector<Row>& rows,
                          const std::set<std::string>& expired, std::int64_t now_ms) {
  if (entry.may_expire) return;
  if (entry.row.pinned) return breach(entry, "it is pinned and has expired");
  std::int64_t newer = 0;
  for (const Row& row : rows) {
    const bool kept = is_terminal(row.state) && !row.pinned &&
                      (row.state != State::expired || expired.count(row.id) != 0);
    if (row.id != entry.id && kept && row.read == entry.row.read &&
        row.ended_wall_ms >= entry.row.ended_wall_ms)
      ++newer;
  }
  const bool pushed_out = newer >= (entry.row.read ? options_.keep_read : options_.keep_unread);
  constexpr std::int64_t kDayMs = 86'400'000;
  const std::int64_t age_ms = now_ms + believed_offset_ms_ - entry.row.ended_wall_ms;
  const bool old = !entry.row.read && age_ms >= options_.keep_unread_days * kDayMs;
  if (!pushed_out && !old)
    breach(entry, fmt::format("it expired early: {} newer {} results are kept, its age is {} s",
                              newer, entry.row.read ? "read" : "unread", age_ms / 1000));
}

void Ledger::check_lag(const Audit& audit, std::int64_t killed_ms) {
  for (const auto& [id, entry] : entries_) {
    if (entry.row.state != State::running || !entry.runs) continue;
    std::size_t due = 0;
    for (const auto& [at_ms, bytes] : entry.told)
      if (at_ms >= entry.began_ms && at_ms + options_.flush_ms + 1 < killed_ms)
        due = std::max(due, bytes);
    const std::size_t stored = audit.texts(entry.row.seq).bytes();
    if (stored < due)
      breach(entry, fmt::format("{} bytes were told before the last {} ms, {} are stored", due,
                                options_.flush_ms, stored));
  }
}

void Ledger::settle(const Audit& audit) {
  std::int64_t read = 0, unread = 0;
  for (const Row& row : audit.rows()) {
    Entry& entry = entries_.at(row.id);
    if (!is_terminal(row.state)) breach(entry, "it never ended");
    if (row.state == State::expired || row.pinned) continue;
    ++(row.read ? read : unread);
  }
  if (read > options_.keep_read || unread > options_.keep_unread)
    breach_(fmt::format("{} read and {} unread results are kept, {} and {} may be", read, unread,
                        options_.keep_read, options_.keep_unread));
  const std::string sound = audit.value("PRAGMA integrity_check");
  if (sound != "ok") breach_("integrity_check: " + sound);
}

}  // namespace ponder::simulator
