// Rows in, rows out. Long file: each statement has its binding here and nowhere else.
#include "jobs/store/job_store.h"

#include <fmt/core.h>

#include <array>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/sentence.h"
#include "jobs/store/migrate.h"
#include "jobs/store/open_database.h"
#include "jobs/store/seal.h"
#include "jobs/store/sqlite.h"
#include "jobs/store/statements.h"

namespace ponder::jobs {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kScrubMs = 20;
constexpr int kVacuumPages = 256;  // as in the statement

tl::unexpected<Error> damaged(std::string_view id, std::string_view what) {
  Error error{ErrorCode::storage, fmt::format("the stored text of this job is damaged: {}", what),
              "submit it again; check the disk"};
  error.job_id = std::string(id);
  return fail(std::move(error));
}

/// The row of a job is not what was written: see is_damage().
tl::unexpected<Error> damaged_row() {
  Error error{ErrorCode::storage, "the job database is damaged: a row of a job",
              "`ponder restart` saves what can be read of it; check the disk"};
  error.details["damaged"] = 1;
  return fail(std::move(error));
}

std::string pack_tokens(const std::vector<std::int32_t>& tokens) {
  std::string out;
  out.reserve(tokens.size() * 4);
  for (const std::int32_t token : tokens)
    for (int shift = 0; shift < 32; shift += 8)
      out += static_cast<char>(static_cast<std::uint32_t>(token) >> shift);
  return out;
}

void unpack_tokens(std::string_view bytes, std::vector<std::int32_t>& into) {
  for (std::size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    std::uint32_t token = 0;
    for (std::size_t i = 0; i < 4; ++i)
      token |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
    into.push_back(static_cast<std::int32_t>(token));
  }
}

Result<JobRow> read_row(const Cursor& c) {
  JobRow row;
  int i = 0;
  row.seq = c.integer_at(i++);
  row.id = c.text_at(i++);
  row.lane = c.text_at(i++) == "ask" ? Lane::ask : Lane::batch;
  const auto state = state_from(c.text_at(i++));
  const auto reason = reason_from(c.text_at(i++));
  row.workspace = c.text_at(i++);
  row.label = c.text_at(i++);
  row.idempotency_key = c.text_at(i++);
  row.body_sha256 = c.text_at(i++);
  row.parent_id = c.text_at(i++);
  row.effort_requested = c.text_at(i++);
  row.deadline_ms = c.integer_at(i++);
  row.told = c.integer_at(i++) != 0;
  row.cancel_requested = c.integer_at(i++) != 0;
  row.pinned = c.integer_at(i++) != 0;
  row.read_ms = c.integer_at(i++);
  row.deaths = c.integer_at(i++);
  row.attempt = c.integer_at(i++);
  row.claims = c.integer_at(i++);
  row.instance = c.text_at(i++);
  row.created_ms = c.integer_at(i++);
  row.started_ms = c.integer_at(i++);
  row.ended_ms = c.integer_at(i++);
  row.run_ms = c.integer_at(i++);
  const std::string facts = c.text_at(i++);
  row.note = c.text_at(i++);
  row.error_code = c.text_at(i++);
  row.error_message = c.text_at(i++);
  row.error_hint = c.text_at(i++);
  row.reasoning_chars = c.integer_at(i++);
  row.answer_chars = c.integer_at(i++);
  row.chunk_count = c.integer_at(i++);
  row.text_bytes = c.integer_at(i++);
  row.text_sha256 = c.text_at(i++);
  row.summary = c.text_at(i++);
  const bool holds = c.integer_at(i++) != 0;
  auto parsed = parse_json_object(facts);
  if (!holds || !state || !reason || !parsed) return damaged_row();
  row.state = *state;
  row.reason = *reason;
  row.facts = std::move(*parsed);
  return row;
}

Result<std::optional<JobRow>> read_one(Cursor& c) {
  TRY(const bool found, c.step());
  if (!found) return std::optional<JobRow>();
  TRY(JobRow row, read_row(c));
  return std::optional<JobRow>(std::move(row));
}

Result<std::vector<JobRow>> read_all(Cursor& c) {
  std::vector<JobRow> rows;
  for (;;) {
    TRY(const bool found, c.step());
    if (!found) return rows;
    TRY(JobRow row, read_row(c));
    rows.push_back(std::move(row));
  }
}

}  // namespace

Result<void> insert_change(Cursor& row, std::int64_t job, const StateChange& change) {
  return row.integer(1, job)
      .integer(2, change.seq)
      .integer(3, change.position)
      .integer(4, change.text_bytes)
      .integer(5, change.cut ? 1 : 0)
      .text(6, to_string(change.state))
      .text(7, to_string(change.reason))
      .integer(8, change.attempt)
      .integer(9, change.at_ms)
      .text(10, change.note)
      .run();
}

struct JobStore::Impl {
  fs::path file;
  StoreLimits limits;
  std::string instance;    ///< whose running rows are worked on; empty before recover()
  std::string note;        ///< of the last opening
  std::string start_note;  ///< of the first; read by other threads
  bool unchecked = false;  ///< the check at start was cut short: scrub() goes on
  std::int64_t scrubbed = 0;
  std::optional<std::int64_t> repaired_ms;
  std::optional<Error> closed;  ///< why there is no database: it could not be opened again
  std::optional<Database> db;
  std::array<Statement, static_cast<std::size_t>(Sql::count_)> statements;  // end before db

  Result<void> open(const OpenRequest& request) {
    TRY(OpenedDatabase opened, open_database(file, request));
    db.emplace(std::move(opened.db));
    note = opened.note;
    unchecked = !opened.checked;
    scrubbed = 0;
    for (std::size_t i = 0; i < kStatements.size(); ++i) {
      TRY(statements[i], db->prepare(kStatements[i].second));
    }
    return {};
  }

  /// Without a restart: what can be read of a damaged database becomes the database. Once a minute.
  bool repair(const std::string& damage) {
    const std::int64_t now = system_clock().steady_ms();
    if (repaired_ms && now - *repaired_ms < limits.repair_pause_ms) return false;
    repaired_ms = now;
    for (Statement& statement : statements)
      statement = Statement();
    db.reset();  // first: the files are read by others than SQLite now
    const Result<void> opened = open({damage, instance});
    closed.reset();
    if (opened) return true;
    log_error(fmt::format("the job database cannot be opened again: {}",
                          in_one_sentence(opened.error())));
    for (Statement& statement : statements)
      statement = Statement();
    db.reset();
    closed = opened.error();
    return false;
  }

  /// Runs `work`; where the database turns out to be damaged, once more on what was saved of it.
  template <class Work>
  auto guarded(const Work& work) -> decltype(work()) {
    if (closed && !repair({})) return fail(*closed);
    auto done = work();
    if (done || !is_damage(done.error()) || !repair(done.error().message)) {
      if (!done && closed) return fail(*closed);
      return done;
    }
    return work();
  }
  /// The same, of a transaction.
  Result<void> write(Durability durability, const std::function<Result<void>()>& work) {
    return guarded([&] { return db->transaction(durability, work); });
  }

  /// After a statement that writes one row of `job`: renews its seal. False: it wrote none. A row
  /// that it left alone because it is damaged is an error.
  Result<bool> sealed(std::int64_t seq) {
    if (db->changes() == 1) {
      TRY_VOID(use(Sql::seal).integer(1, seq).run());
      return true;
    }
    Cursor c = use(Sql::holds);
    c.integer(1, seq);
    TRY(const bool found, c.step());
    if (found && c.integer_at(0) == 0) return damaged_row();
    return false;
  }

  /// False: the fence does not hold.
  Result<bool> note_progress(const Fence& fence, const Progress& progress) {
    const std::string facts = to_json(progress.facts);
    TRY_VOID(use(Sql::progress)
                 .integer(1, fence.seq)
                 .integer(2, fence.claim)
                 .text(3, fence.instance)
                 .integer(4, progress.run_ms)
                 .text(5, facts)
                 .run());
    return sealed(fence.seq);
  }

  /// Whether the log may grow: see StoreLimits.
  Result<void> room_in_log() {
    if (!db || db->log_bytes() < limits.log_bytes) return {};
    db->checkpoint(true);
    if (db->log_bytes() < limits.log_bytes) return {};
    return fail(ErrorCode::storage,
                fmt::format("the log of the job database has grown to {} MiB: something else reads "
                            "ponder.db and does not end",
                            db->log_bytes() >> 20),
                "close whatever has ponder.db open (a backup, an sqlite3 shell)");
  }

  /// The part of the check that was too long for the start: the texts, in slices. True: there is
  /// more. A structure that does not hold is found by reading through it.
  bool scrub() {
    if (!unchecked) return false;
    const std::int64_t until = system_clock().steady_ms() + kScrubMs;
    while (system_clock().steady_ms() < until) {
      auto next = guarded([&]() -> Result<std::optional<JobRow>> {
        Cursor c = use(Sql::after);
        c.integer(1, scrubbed);
        TRY(std::optional<JobRow> row, read_one(c));
        if (row) {
          const auto text = read_chunks(row->seq, row->id, true);
          if (!text) return fail(text.error());
          if (text->damaged)
            log_error(fmt::format("the stored text of job {} is damaged", row->id));
        }
        return row;
      });
      unchecked = next && *next;
      if (!unchecked) {
        log_info("the check of the job database has come to its end");
        return false;
      }
      scrubbed = (*next)->seq;
    }
    return true;
  }

  Cursor use(Sql sql) { return Cursor(statements[static_cast<std::size_t>(sql)]); }

  /// Adds a row to the history: its number and position follow from the last one.
  Result<void> add_change(std::int64_t job, std::int64_t gap, StateChange& change) {
    change.seq = 1;
    change.position = 1;
    {
      Cursor last = use(Sql::last_change);
      last.integer(1, job);
      TRY(const bool found, last.step());
      if (found) {
        change.seq = last.integer_at(0) + 1;
        const std::int64_t text = std::max<std::int64_t>(0, change.text_bytes - last.integer_at(2));
        change.position = last.integer_at(1) + text + 1 + gap;
      }
    }
    Cursor row = use(Sql::insert_change);
    return insert_change(row, job, change);
  }

  Result<void> add_chunks(std::int64_t job, const Progress& progress) {
    std::int64_t seq = progress.next_chunk;
    for (const Chunk& chunk : progress.chunks) {
      const std::string tokens = pack_tokens(chunk.tokens);
      const std::int64_t channel = chunk.channel == Channel::reasoning ? 0 : 1;
      const auto count = static_cast<std::int64_t>(chunk.tokens.size());
      TRY_VOID(
          use(Sql::insert_chunk)
              .integer(1, job)
              .integer(2, seq)
              .integer(3, progress.attempt)
              .integer(4, channel)
              .blob(5, chunk.text)
              .integer(6, count)
              .blob(7, tokens)
              .integer(8, chunk_crc(job, seq, progress.attempt, channel, chunk.text, count, tokens))
              .run());
      ++seq;
    }
    return {};
  }

  /// The chunks of a job in order, held against their checksums. With `tolerant`, stops quietly
  /// at the first damaged one. `chunks`: where to leave them one by one as well.
  Result<StoredText> read_chunks(std::int64_t job, std::string_view id, bool tolerant,
                                 std::vector<Chunk>* chunks = nullptr) {
    StoredText out;
    Cursor c = use(Sql::chunks);
    c.integer(1, job);
    for (;;) {
      TRY(const bool found, c.step());
      if (!found) return out;
      const std::string text = c.text_at(3);
      const std::string tokens = c.text_at(5);
      const bool good =
          c.integer_at(0) == out.chunk_count &&
          c.integer_at(6) == chunk_crc(job, c.integer_at(0), c.integer_at(1), c.integer_at(2), text,
                                       c.integer_at(4), tokens);
      if (!good) {
        if (!tolerant) return damaged(id, fmt::format("part {} of it", out.chunk_count));
        out.damaged = true;
        return out;
      }
      const bool reasoning = c.integer_at(2) == 0;
      out.text.append(reasoning ? Channel::reasoning : Channel::answer, text);
      (reasoning ? out.reasoning_tokens : out.answer_tokens) += c.integer_at(4);
      unpack_tokens(tokens, out.tokens);
      ++out.chunk_count;
      if (!tokens.empty())
        out.of_tokens = {out.text.size(), out.chunk_count, out.reasoning_tokens, out.answer_tokens};
      if (!chunks) continue;
      chunks->push_back({reasoning ? Channel::reasoning : Channel::answer, text, {}});
      unpack_tokens(tokens, chunks->back().tokens);
    }
  }

  /// The state it is in then.
  Result<State> move_orphan(const JobRow& row, std::int64_t now_ms) {
    TRY(StoredText stored, read_chunks(row.seq, row.id, true));
    const bool kept = row.lane == Lane::batch || row.told;
    StateChange change;
    change.state = row.cancel_requested ? State::cancelled
                   : kept               ? State::queued
                                        : State::interrupted;
    change.text_bytes = stored.text.size();
    change.attempt = row.attempt;
    change.at_ms = now_ms;
    change.note = "the daemon that ran it died";
    if (stored.damaged) {
      TRY_VOID(
          use(Sql::delete_chunks_from).integer(1, row.seq).integer(2, stored.chunk_count).run());
      change.note += "; damaged text after this point was given up";
    }
    TRY(const bool left,
        write_leave({row.seq, row.id, row.claims, row.instance}, row.run_ms, row.facts, stored.text,
                    stored.chunk_count, Reason::none, false, {}, change));
    CHECK(left);
    TRY_VOID(add_change(row.seq, kCrashGap, change));
    return change.state;
  }

  /// False: the fence does not hold.
  Result<bool> write_leave(const Fence& fence, std::int64_t run_ms, const json::object& facts,
                           const JobText& text, std::int64_t chunk_count, Reason reason, bool death,
                           const std::optional<Error>& error, const StateChange& change) {
    const std::string facts_text = to_json(facts);
    if (change.state == State::queued) {
      TRY_VOID(use(Sql::requeue)
                   .integer(1, fence.seq)
                   .integer(2, fence.claim)
                   .text(3, fence.instance)
                   .integer(4, death ? 1 : 0)
                   .integer(5, run_ms)
                   .text(6, facts_text)
                   .text(7, change.note)
                   .integer(8, text.chars(Channel::reasoning))
                   .integer(9, text.chars(Channel::answer))
                   .run());
      return sealed(fence.seq);
    }
    const std::string sha256 = text.sha256();
    TRY_VOID(use(Sql::end_running)
                 .integer(1, fence.seq)
                 .integer(2, fence.claim)
                 .text(3, fence.instance)
                 .text(4, to_string(change.state))
                 .text(5, to_string(reason))
                 .integer(6, death ? 1 : 0)
                 .integer(7, change.at_ms)
                 .integer(8, run_ms)
                 .text(9, facts_text)
                 .text(10, change.note)
                 .text(11, error ? to_string(error->code) : "")
                 .text(12, error ? error->message : std::string_view())
                 .text(13, error ? error->hint : std::string_view())
                 .integer(14, text.chars(Channel::reasoning))
                 .integer(15, text.chars(Channel::answer))
                 .integer(16, chunk_count)
                 .integer(17, text.size())
                 .blob(18, sha256)
                 .run());
    return sealed(fence.seq);
  }

  Result<std::vector<JobRow>> page(Sql sql, std::int64_t first, int limit) {
    return guarded([&] {
      Cursor c = use(sql);
      c.integer(1, first).integer(2, limit);
      return read_all(c);
    });
  }
};

JobStore::JobStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
JobStore::~JobStore() = default;

Result<std::unique_ptr<JobStore>> JobStore::open(const std::filesystem::path& file,
                                                 const StoreLimits& limits) {
  auto impl = std::make_unique<Impl>();
  impl->file = file;
  impl->limits = limits;
  TRY_VOID(impl->open({}));
  impl->start_note = impl->note;
  return std::unique_ptr<JobStore>(new JobStore(std::move(impl)));
}

std::string JobStore::start_note() const {
  return impl_->start_note;
}

std::vector<std::pair<std::string_view, std::string_view>> JobStore::statements() {
  return {kStatements.begin(), kStatements.end()};
}

Result<void> JobStore::insert(JobRow& row, std::string_view request, std::vector<Chunk> text) {
  const Progress begin{std::move(text), 0, 0, 0};
  TRY_VOID(impl_->room_in_log());
  return impl_->write(Durability::full, [&]() -> Result<void> {
    {
      const std::string facts = to_json(row.facts);
      Cursor c = impl_->use(Sql::insert_job);
      c.text(1, row.id)
          .text(2, to_string(row.lane))
          .text(3, row.workspace)
          .text(4, row.label)
          .text_or_null(5, row.idempotency_key)
          .blob(6, row.body_sha256)
          .text_or_null(7, row.parent_id)
          .text(8, row.effort_requested)
          .integer(10, row.pinned ? 1 : 0)
          .integer(11, row.created_ms)
          .text(12, facts)
          .text(13, row.note)
          .integer(14, row.reasoning_chars)
          .integer(15, row.answer_chars);
      if (row.deadline_ms > 0) c.integer(9, row.deadline_ms);
      TRY(const bool found, c.step());
      CHECK(found);
      row.seq = c.integer_at(0);
    }
    TRY_VOID(impl_->use(Sql::insert_request).integer(1, row.seq).text(2, request).run());
    TRY_VOID(impl_->use(Sql::request_seal).integer(1, row.seq).text(2, request).run());
    TRY_VOID(impl_->use(Sql::seal).integer(1, row.seq).run());
    TRY_VOID(impl_->add_chunks(row.seq, begin));
    StateChange change;
    change.at_ms = row.created_ms;
    return impl_->add_change(row.seq, 0, change);
  });
}

Result<std::optional<JobRow>> JobStore::claim(std::string_view id, std::string_view instance,
                                              std::int64_t now_ms, StateChange& change) {
  std::optional<JobRow> row;
  const Result<void> done = impl_->write(Durability::normal, [&]() -> Result<void> {
    std::int64_t seq = 0;
    {
      Cursor c = impl_->use(Sql::claim);
      c.text(1, id).text(2, instance).integer(3, now_ms);
      TRY(const bool claimed, c.step());
      if (claimed) seq = c.integer_at(0);
      TRY_VOID(c.run());  // ends the UPDATE before the next statement
    }
    if (seq != 0) TRY_VOID(impl_->use(Sql::seal).integer(1, seq).run());
    Cursor found = impl_->use(Sql::find);
    found.text(1, id);
    TRY(row, read_one(found));  // an error where it was left alone because it is damaged
    if (seq == 0) row.reset();
    if (!row) return {};
    change.state = State::running;
    change.attempt = row->attempt;
    change.at_ms = now_ms;
    return impl_->add_change(row->seq, 0, change);
  });
  if (!done) return fail(done.error());
  return row;
}

Result<bool> JobStore::append(const Fence& fence, const Progress& progress, bool synced) {
  bool held = true;
  const Durability durability = synced ? Durability::full : Durability::normal;
  TRY_VOID(impl_->room_in_log());
  const Result<void> done = impl_->write(durability, [&]() -> Result<void> {
    TRY(held, impl_->note_progress(fence, progress));
    return held ? impl_->add_chunks(fence.seq, progress) : Result<void>();
  });
  if (!done) return fail(done.error());
  return held;
}

Result<bool> JobStore::cut(const Fence& fence, const Progress& kept, std::string_view note,
                           std::int64_t now_ms, StateChange& change) {
  bool held = true;
  const Result<void> done = impl_->write(Durability::normal, [&]() -> Result<void> {
    TRY(held, impl_->note_progress(fence, kept));
    if (!held) return {};
    TRY_VOID(impl_->use(Sql::delete_chunks_from)
                 .integer(1, fence.seq)
                 .integer(2, kept.next_chunk)
                 .run());
    TRY_VOID(impl_->add_chunks(fence.seq, kept));
    change.state = State::running;
    change.cut = true;
    change.attempt = kept.attempt;
    change.at_ms = now_ms;
    change.note = std::string(note);
    // Positions told so far may stand for text that is given up: the cut comes after them all.
    const std::int64_t keep_bytes = change.text_bytes;
    TRY_VOID(impl_->add_change(fence.seq, kCrashGap, change));
    return impl_->use(Sql::clamp_changes).integer(1, fence.seq).integer(2, keep_bytes).run();
  });
  if (!done) return fail(done.error());
  return held;
}

Result<bool> JobStore::leave(const Fence& fence, const Progress& progress, const JobText& text,
                             const Leave& leave, StateChange& change) {
  bool held = true;
  change.state = leave.state;
  change.reason = leave.reason;
  change.text_bytes = text.size();
  change.attempt = progress.attempt;
  change.at_ms = leave.at_ms;
  change.note = leave.note;
  const Result<void> done = impl_->write(Durability::full, [&]() -> Result<void> {
    TRY(held, impl_->note_progress(fence, progress));
    if (!held) return {};
    TRY_VOID(impl_->add_chunks(fence.seq, progress));
    const auto chunks = progress.next_chunk + static_cast<std::int64_t>(progress.chunks.size());
    TRY(const bool left, impl_->write_leave(fence, progress.run_ms, progress.facts, text, chunks,
                                            leave.reason, leave.death, leave.error, change));
    CHECK(left);
    return impl_->add_change(fence.seq, 0, change);
  });
  if (!done) return fail(done.error());
  return held;
}

Result<bool> JobStore::end_queued(const JobRow& row, const Leave& leave, StateChange& change) {
  bool held = true;
  TRY(StoredText stored, impl_->guarded([&] { return impl_->read_chunks(row.seq, row.id, true); }));
  change.state = leave.state;
  change.reason = leave.reason;
  change.text_bytes = stored.text.size();
  change.attempt = row.attempt;
  change.at_ms = leave.at_ms;
  change.note = leave.note;
  const Result<void> done = impl_->write(Durability::full, [&]() -> Result<void> {
    const std::string sha256 = stored.text.sha256();
    TRY_VOID(impl_->use(Sql::end_queued)
                 .integer(1, row.seq)
                 .text(2, to_string(leave.state))
                 .text(3, to_string(leave.reason))
                 .integer(4, leave.at_ms)
                 .text(5, leave.note)
                 .text(6, leave.error ? to_string(leave.error->code) : "")
                 .text(7, leave.error ? leave.error->message : std::string_view())
                 .text(8, leave.error ? leave.error->hint : std::string_view())
                 .integer(9, stored.chunk_count)
                 .integer(10, stored.text.size())
                 .blob(11, sha256)
                 .run());
    TRY(held, impl_->sealed(row.seq));
    return held ? impl_->add_change(row.seq, 0, change) : Result<void>();
  });
  if (!done) return fail(done.error());
  return held;
}

Result<void> JobStore::request_cancel(std::int64_t seq) {
  return impl_->write(Durability::full, [&]() -> Result<void> {
    TRY_VOID(impl_->use(Sql::request_cancel).integer(1, seq).run());
    TRY(const bool written, impl_->sealed(seq));
    (void)written;
    return {};
  });
}
Result<void> JobStore::mark_told(std::int64_t seq) {
  return impl_->write(Durability::full, [&]() -> Result<void> {
    TRY_VOID(impl_->use(Sql::mark_told).integer(1, seq).run());
    TRY(const bool written, impl_->sealed(seq));
    (void)written;
    return {};
  });
}
Result<void> JobStore::mark_read(std::int64_t seq, std::int64_t now_ms) {
  return impl_->write(Durability::normal, [&]() -> Result<void> {
    TRY_VOID(impl_->use(Sql::mark_read).integer(1, seq).integer(2, now_ms).run());
    TRY(const bool written, impl_->sealed(seq));
    (void)written;
    return {};
  });
}
Result<void> JobStore::set_pinned(std::int64_t seq, bool pinned) {
  return impl_->write(Durability::full, [&]() -> Result<void> {
    TRY_VOID(impl_->use(Sql::set_pinned).integer(1, seq).integer(2, pinned ? 1 : 0).run());
    TRY(const bool written, impl_->sealed(seq));
    (void)written;
    return {};
  });
}

Result<std::optional<JobRow>> JobStore::find(std::string_view id) {
  return impl_->guarded([&] {
    Cursor c = impl_->use(Sql::find);
    c.text(1, id);
    return read_one(c);
  });
}
Result<std::optional<JobRow>> JobStore::find_key(std::string_view key) {
  return impl_->guarded([&] {
    Cursor c = impl_->use(Sql::find_key);
    c.text(1, key);
    return read_one(c);
  });
}
Result<std::optional<JobRow>> JobStore::find_twin(std::string_view workspace,
                                                  std::string_view sha256) {
  return impl_->guarded([&] {
    Cursor c = impl_->use(Sql::find_twin);
    c.text(1, workspace).blob(2, sha256);
    return read_one(c);
  });
}

Result<std::vector<JobRow>> JobStore::list(const ListFilter& filter) {
  const std::string before = filter.before.empty() ? "~" : filter.before;  // after every id
  const std::string_view state = filter.state ? to_string(*filter.state) : std::string_view();
  return impl_->guarded([&] {
    Cursor c = impl_->use(!filter.workspace.empty() ? Sql::list_workspace
                          : filter.state            ? Sql::list_state
                                                    : Sql::list);
    c.text(1, before).integer(2, filter.limit).text(3, filter.label);
    if (!filter.workspace.empty()) {
      c.text(4, filter.workspace).text_or_null(5, state);
    } else if (filter.state) {
      c.text(4, state);
    }
    return read_all(c);
  });
}

Result<std::vector<JobRow>> JobStore::live() {
  return impl_->guarded([&] {
    Cursor c = impl_->use(Sql::live);
    return read_all(c);
  });
}

Result<std::string> JobStore::request(std::int64_t seq) {
  return impl_->guarded([&]() -> Result<std::string> {
    Cursor c = impl_->use(Sql::request);
    c.integer(1, seq);
    TRY(const bool found, c.step());
    if (!found)
      return fail(ErrorCode::storage, "the request of this job is missing",
                  "submit it again; check the disk");
    if (c.integer_at(1) == 0)
      return fail(ErrorCode::storage, "the stored request of this job is damaged",
                  "submit it again; check the disk");
    return c.text_at(0);
  });
}

Result<std::vector<StateChange>> JobStore::changes(std::int64_t seq) {
  return impl_->guarded([&]() -> Result<std::vector<StateChange>> {
    std::vector<StateChange> out;
    Cursor c = impl_->use(Sql::changes);
    c.integer(1, seq);
    for (;;) {
      TRY(const bool found, c.step());
      if (!found) return out;
      if (c.integer_at(9) == 0)
        return fail(ErrorCode::storage, "the stored history of this job is damaged",
                    "its text can still be read: ponder result");
      StateChange change;
      change.seq = c.integer_at(0);
      change.position = c.integer_at(1);
      change.text_bytes = c.integer_at(2);
      change.cut = c.integer_at(3) != 0;
      change.state = state_from(c.text_at(4)).value_or(State::queued);
      change.reason = reason_from(c.text_at(5)).value_or(Reason::none);
      change.attempt = c.integer_at(6);
      change.at_ms = c.integer_at(7);
      change.note = c.text_at(8);
      out.push_back(std::move(change));
    }
  });
}

Result<StoredText> JobStore::text(const JobRow& row) {
  TRY(StoredText stored,
      impl_->guarded([&] { return impl_->read_chunks(row.seq, row.id, false); }));
  if (!is_terminal(row.state)) return stored;
  if (stored.chunk_count != row.chunk_count) return damaged(row.id, "parts of it are missing");
  if (stored.text.size() != row.text_bytes || stored.text.sha256() != row.text_sha256)
    return damaged(row.id, "it is not what was written");
  return stored;
}

Result<std::vector<Chunk>> JobStore::chunks(const JobRow& row) {
  std::vector<Chunk> out;
  const auto read = impl_->guarded([&] {
    out.clear();
    return impl_->read_chunks(row.seq, row.id, false, &out);
  });
  if (!read) return fail(read.error());
  return out;
}

Result<StoredText> JobStore::load_undamaged(std::int64_t seq) {
  return impl_->guarded([&] { return impl_->read_chunks(seq, {}, true); });
}

Result<std::string> JobStore::last_id() {
  return impl_->guarded([&]() -> Result<std::string> {
    Cursor c = impl_->use(Sql::last_id);
    TRY(const bool found, c.step());
    return found ? c.text_at(0) : std::string();
  });
}

Result<std::vector<JobStore::Past>> JobStore::history(int limit) {
  return impl_->guarded([&]() -> Result<std::vector<Past>> {
    std::vector<Past> out;
    Cursor c = impl_->use(Sql::history);
    c.integer(1, limit);
    for (;;) {
      TRY(const bool found, c.step());
      if (!found) return out;
      out.push_back(
          {c.text_at(0) == "ask" ? Lane::ask : Lane::batch, c.text_at(1), c.integer_at(2)});
    }
  });
}

Result<JobStore::Recovered> JobStore::recover(std::string_view instance, std::int64_t now_ms) {
  Recovered recovered;
  impl_->instance = std::string(instance);
  const Result<void> done = impl_->write(Durability::full, [&]() -> Result<void> {
    recovered = {};
    std::vector<JobRow> orphans;
    {
      Cursor c = impl_->use(Sql::orphans);
      c.text(1, instance);
      TRY(orphans, read_all(c));
    }
    for (const JobRow& row : orphans) {
      TRY(const State state, impl_->move_orphan(row, now_ms));
      ++recovered.moved;
      if (is_terminal(state)) recovered.ended.emplace_back(row.id, state);
    }
    return {};
  });
  if (!done) return fail(done.error());
  return recovered;
}

Result<std::vector<JobRow>> JobStore::read_beyond(std::int64_t keep, int limit) {
  return impl_->page(Sql::read_beyond, keep, limit);
}
Result<std::vector<JobRow>> JobStore::unread_beyond(std::int64_t keep, int limit) {
  return impl_->page(Sql::unread_beyond, keep, limit);
}
Result<std::vector<JobRow>> JobStore::unread_before(std::int64_t ended_ms, int limit) {
  return impl_->page(Sql::unread_before, ended_ms, limit);
}

Result<void> JobStore::expire(const std::vector<std::pair<std::int64_t, std::string>>& summaries) {
  return impl_->write(Durability::normal, [&]() -> Result<void> {
    for (const auto& [seq, summary] : summaries) {
      TRY_VOID(impl_->use(Sql::expire).integer(1, seq).text(2, summary).run());
      TRY(const bool expired, impl_->sealed(seq));
      if (!expired) continue;
      for (const Sql sql : {Sql::delete_chunks, Sql::delete_request, Sql::delete_changes}) {
        TRY_VOID(impl_->use(sql).integer(1, seq).run());
      }
    }
    return {};
  });
}

Result<std::int64_t> JobStore::drop_tombstones(std::int64_t keep, int limit) {
  std::int64_t dropped = 0;
  const Result<void> done = impl_->write(Durability::normal, [&]() -> Result<void> {
    TRY_VOID(impl_->use(Sql::tombstones).integer(1, keep).integer(2, limit).run());
    dropped = impl_->db->changes();
    return {};
  });
  if (!done) return fail(done.error());
  return dropped;
}

Result<void> JobStore::remove(std::int64_t seq) {
  return impl_->write(Durability::full, [&]() -> Result<void> {
    return impl_->use(Sql::remove).integer(1, seq).run();
  });
}

void JobStore::vacuum_some() {
  if (!impl_->db) return;
  // In a transaction, so that a sync that is refused is noticed.
  const Result<void> done = impl_->db->transaction(Durability::normal, [&]() -> Result<void> {
    Cursor c = impl_->use(Sql::vacuum);
    for (;;) {
      TRY(const bool more, c.step());  // one row a page
      if (!more) return {};
    }
  });
  if (!done) log_warn(fmt::format("free pages are not given back: {}", done.error().message));
}

bool JobStore::maintain(bool idle) {
  if (!impl_->db) return false;
  impl_->db->checkpoint(false);
  if (!idle) return false;
  const auto free_pages = impl_->db->pragma_integer("PRAGMA freelist_count");
  if (free_pages && *free_pages > 0) vacuum_some();
  const bool more = impl_->scrub() || (free_pages && *free_pages > kVacuumPages);
  if (!more) impl_->db->checkpoint(true);
  return more;
}

Result<void> JobStore::probe() {
  // A transaction that changes nothing would write nothing: user_version is written as it is.
  TRY_VOID(impl_->room_in_log());
  return impl_->write(Durability::full, [&]() -> Result<void> {
    TRY_VOID(impl_->use(Sql::probe).run());
    return impl_->db->execute(fmt::format("PRAGMA user_version = {}", newest_schema()).c_str());
  });
}

bool JobStore::sync_failed() const {
  return impl_->db && impl_->db->sync_failed();
}
void JobStore::checkpoint() {
  if (impl_->db) impl_->db->checkpoint(true);
}

}  // namespace ponder::jobs
