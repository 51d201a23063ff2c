#include "jobs/store/offline_check.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <map>
#include <set>
#include <vector>

#include "engine/base/filesystem_kind.h"
#include "jobs/job_text.h"
#include "jobs/store/database_file.h"
#include "jobs/store/log_check.h"
#include "jobs/store/migrate.h"
#include "jobs/store/rebuild.h"
#include "jobs/store/seal.h"
#include "jobs/store/sqlite.h"
#include "jobs/store/statements.h"

namespace ponder::jobs {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kNamedMax = 1000;
constexpr std::int64_t kCheckMs = 3'600'000;
constexpr std::int64_t kLogNoteBytes = 32 << 20;
constexpr const char* kMendHint = "`ponder start` puts it aside and saves what can be read of it";

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

class OfflineCheck {
 public:
  explicit OfflineCheck(const fs::path& file) : file_(file) {}

  json::object run() {
    report_["ok"] = true;
    report_["database"] = file_.string();
    report_["bytes"] = file_bytes(file_);
    report_["log_bytes"] = file_bytes(log_of(file_));
    for (const char* key : {"database_version", "jobs", "texts_checked"})
      report_[key] = nullptr;
    report_["damaged"] = json::array();
    if (look_at_place() && look_at_files()) look_inside();
    report_["checks"] = std::move(checks_);
    return std::move(report_);
  }

 private:
  void say(const char* name, const char* state, std::string message, std::string hint = {}) {
    if (state == std::string_view("fail")) report_["ok"] = false;
    checks_.push_back(
        json::object{{"name", name},
                     {"state", state},
                     {"message", message},
                     {"hint", hint.empty() ? json::value(nullptr) : json::value(hint)}});
  }

  bool look_at_place() {
    const FilesystemKind kind = filesystem_kind_of(file_.parent_path());
    const std::string place = file_.parent_path().string();
    if (!kind.locks_hold)
      say("file system", "fail",
          fmt::format("{} is on {}, where a database's locks do not hold", place, kind.name),
          "choose a --home on a local disk");
    else if (kind.in_memory)
      say("file system", "note",
          fmt::format("{} is on {}, gone after a restart", place, kind.name));
    else
      say("file system", "ok", place);
    struct statvfs s {};
    if (::statvfs(file_.parent_path().c_str(), &s) == 0)
      say("disk", "ok",
          mebibytes(static_cast<std::int64_t>(s.f_bavail) * static_cast<std::int64_t>(s.f_frsize)) +
              " free");
    return true;
  }

  bool look_at_files() {
    std::error_code ec;
    if (!fs::exists(fs::symlink_status(file_, ec))) {
      if (file_bytes(log_of(file_)) > 0)
        say("database", "fail", file_.string() + " is missing beside its log", kMendHint);
      else
        say("database", "ok", file_.string() + " is made at the first start");
      return false;
    }
    for (const fs::path& path : {file_.parent_path(), file_, log_of(file_), log_index_of(file_)}) {
      struct stat s {};
      if (::lstat(path.c_str(), &s) != 0) continue;
      const bool directory = path == file_.parent_path();
      if (!directory && !S_ISREG(s.st_mode))
        say("permissions", "fail", path.string() + " is not a plain file", "move it away");
      else if (s.st_uid != ::geteuid())
        say("permissions", "fail", path.string() + " belongs to another user");
      else if ((s.st_mode & 077) != 0)
        say("permissions", "fail",
            fmt::format("{} is open to other users (mode {:o})", path.string(), s.st_mode & 0777),
            fmt::format("chmod {} {}", directory ? "700" : "600", path.string()));
    }
    const auto log = check_log(log_of(file_), log_index_of(file_));
    const std::int64_t bytes = file_bytes(log_of(file_));
    if (!log)
      say("log", "fail", log.error().message);
    else if (log->verdict == LogState::Verdict::damaged)
      say("log", "fail",
          fmt::format("it does not hold at frame {}; {} whole commits lie behind it",
                      log->frames + 1, log->lost_commits),
          kMendHint);
    else if (log->verdict == LogState::Verdict::cut)
      say("log", "note", "its end is missing: jobs that were accepted last may not be known");
    else if (log->verdict == LogState::Verdict::torn)
      say("log", "note", "its last write is not whole, as a crash leaves it");
    else
      say("log", bytes > kLogNoteBytes ? "note" : "ok", mebibytes(bytes));
    if (const std::string note = damage_note(file_); !note.empty()) say("damage", "note", note);
    return true;
  }

  void look_inside() {
    Result<Database> db = Database::open(file_, Access::read_only);
    const Result<void> done = db ? inside(*db) : fail(db.error());
    if (!done)
      say("database", "fail", done.error().message,
          is_damage(done.error()) ? kMendHint : done.error().hint);
  }

  Result<void> inside(Database& db) {
    TRY(const std::int64_t version, schema_version(db, file_));
    report_["database_version"] = version;
    if (version == 0) {
      say("database", "ok", "nothing is in it yet");
      return {};
    }
    std::vector<std::string> findings;
    TRY_VOID(db.check(kCheckMs, &findings));
    if (findings.empty())
      say("structure", "ok",
          fmt::format("whole; version {}, {}", version, mebibytes(file_bytes(file_))));
    for (const std::string& finding : findings)
      say("structure", "fail", finding, kMendHint);
    return texts(db, version >= 3);
  }

  Result<void> texts(Database& db, bool sealed) {
    TRY(Statement jobs,
        db.prepare(std::string("SELECT seq, id, state, chunk_count, text_bytes, text_sha256, ") +
                   (sealed ? PONDER_HOLDS ", request_crc32 IS (SELECT ponder_crc32(r.job, r.body) "
                                          "FROM request r WHERE r.job = job.seq)"
                           : "1, 1") +
                   " FROM job ORDER BY seq"));
    TRY(Statement chunks, db.prepare("SELECT seq, attempt, channel, text, token_count, tokens, "
                                     "crc32 FROM chunk WHERE job = ?1 ORDER BY seq"));
    std::map<std::string, std::int64_t> counts;
    std::int64_t checked = 0;
    Cursor job(jobs);
    for (;;) {
      TRY(const bool row, job.step());
      if (!row) break;
      const std::string state = job.text_at(2);
      ++counts[state];
      if (job.integer_at(6) == 0) {
        add_damaged(job.text_at(1), "its row");
        continue;
      }
      if (state == "expired") continue;
      if (job.integer_at(7) == 0) add_damaged(job.text_at(1), "its request");
      JobText text;
      std::int64_t number = 0;
      Cursor c(chunks);
      c.integer(1, job.integer_at(0));
      bool whole = true;
      for (;;) {
        TRY(const bool chunk, c.step());
        if (!chunk) break;
        whole = whole && c.integer_at(0) == number &&
                c.integer_at(6) == chunk_crc(job.integer_at(0), number, c.integer_at(1),
                                             c.integer_at(2), c.text_at(3), c.integer_at(4),
                                             c.text_at(5));
        ++number;
        if (whole)
          text.append(c.integer_at(2) == 0 ? Channel::reasoning : Channel::answer, c.text_at(3));
      }
      ++checked;
      const bool ended = state != "queued" && state != "running";
      if (whole && ended)
        whole = number == job.integer_at(3) && text.size() == job.integer_at(4) &&
                text.sha256() == job.text_at(5);
      if (!whole) add_damaged(job.text_at(1), "its text");
    }
    json::object by_state;
    std::string words;
    for (const auto& [state, count] : counts) {
      by_state[state] = count;
      words += fmt::format("{}{} {}", words.empty() ? "" : ", ", count, state);
    }
    report_["jobs"] = std::move(by_state);
    report_["texts_checked"] = checked;
    say("jobs", "ok", words.empty() ? "none" : words);
    const std::size_t damaged = damaged_ids_.size();
    if (damaged == 0) {
      say("texts", "ok", fmt::format("{} read and held against their checksums", checked));
    } else {
      std::string named;
      for (const std::string& id : damaged_ids_) {
        if (named.size() > 100) break;
        named += (named.empty() ? "" : ", ") + id;
      }
      say("texts", "fail", fmt::format("{} of {} jobs are damaged: {}", damaged, checked, named),
          "such a text is never shown; submit these jobs again, and check the disk");
    }
    return {};
  }

  void add_damaged(const std::string& id, const char* what) {
    damaged_ids_.insert(id);
    json::array& damaged = report_["damaged"].as_array();
    if (damaged.size() < kNamedMax) damaged.push_back(json::object{{"job_id", id}, {"what", what}});
  }

  const fs::path file_;
  json::object report_;
  json::array checks_;
  std::set<std::string> damaged_ids_;
};
}  // namespace

json::object check_database_offline(const fs::path& file) {
  return OfflineCheck(file).run();
}

}  // namespace ponder::jobs
