// A damaged database and its damaged log: a daemon that starts on them serves no text but the one
// that was stored, says so where a job is lost, and works on.
#include "engine/base/check.h"
#include "engine/base/ids.h"
#include "engine/base/log.h"
#include "jobs/store/job_store.h"
#include "jobs/store/rebuild.h"
#include "jobs/submission.h"
#include "tests/fuzz/stored_jobs.h"

using namespace ponder;
using jobs::JobStore;

namespace {

/// `damage`: it was said; `unknowable`: nothing but the log itself knows how long it was.
void judge(JobStore& store, const std::map<std::string, std::string>& texts, bool live, bool damage,
           bool unknowable) {
  for (const auto& [id, text] : texts) {
    const bool told = damage || (unknowable && fuzz::StoredJobs::get().in_log(id));
    const auto row = store.find(id);
    CHECK_MSG(row.has_value(), row.error().message);
    CHECK_MSG(*row || told, "a job is gone without a word");
    if (!*row) continue;
    if (!live && (*row)->state != jobs::State::completed)
      CHECK_MSG((*row)->reason == jobs::Reason::storage || told, "another state");
    if (const auto body = store.request((*row)->seq); body && !(*row)->ended_ms) {
      const auto request = jobs::decode_request(*body);
      CHECK_MSG(request && request->generation.chat.messages.at(0).content == "of " + id,
                "another request");
    }
    const auto read = store.text(**row);
    if (!read) {
      CHECK(read.error().code == ErrorCode::storage);
      continue;
    }
    const std::string answer = read->text.of(Channel::answer);
    if (!live && (*row)->state == jobs::State::completed)
      CHECK_MSG(answer == text, "a wrong text");
    else
      CHECK_MSG(text.starts_with(answer), "no beginning of the text");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  log_set_level(LogLevel::off);
  const fuzz::StoredJobs& stored = fuzz::StoredJobs::get();
  fuzz::Choices choose(std::string_view(reinterpret_cast<const char*>(data), size));
  const fuzz::Damaged files = stored.damaged(choose);
  const auto file = fuzz::empty_directory() / "ponder.db";
  fuzz::write_file(file, files.database);
  if (!files.log.empty()) fuzz::write_file(file.string() + "-wal", files.log);
  if (!files.index.empty()) fuzz::write_file(file.string() + "-shm", files.index);

  const auto store = JobStore::open(file);
  CHECK_MSG(store.has_value(), store.error().message);
  const bool told = !jobs::damage_note(file).empty() || !(*store)->start_note().empty();
  const bool unknowable = files.log.empty() || files.index.empty();
  judge(**store, stored.ended(), false, told, unknowable);
  judge(**store, stored.live(), true, told, unknowable);
  jobs::JobRow row;
  row.id = new_job_id(9000);
  row.workspace = "/w";
  row.body_sha256 = jobs::sha256_of(row.id);
  row.effort_requested = "xhigh";
  row.created_ms = 9000;
  CHECK_MSG((*store)->insert(row, "{}").has_value(), "no new job is accepted");
  const auto found = (*store)->find(row.id);
  CHECK(found && *found && (*found)->state == jobs::State::queued);
  return 0;
}
