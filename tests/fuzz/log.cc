// The write-ahead log as bytes before SQLite opens it: any bytes, and damaged logs of real jobs,
// with and without the index that knows how much was committed.
#include "engine/base/check.h"
#include "jobs/store/log_check.h"
#include "tests/fuzz/stored_jobs.h"

using namespace ponder;
using jobs::LogState;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::StoredJobs& stored = fuzz::StoredJobs::get();
  fuzz::Choices choose(std::string_view(reinterpret_cast<const char*>(data), size));
  fuzz::Damaged files;
  if (choose.yes()) {
    files = stored.damaged(choose);
  } else {
    files.log = choose.text(size);
    if (choose.yes()) files.index = stored.whole().index;
  }
  const auto& directory = fuzz::empty_directory();
  const auto log = directory / "ponder.db-wal", index = directory / "ponder.db-shm";
  fuzz::write_file(log, files.log);
  if (!files.index.empty()) fuzz::write_file(index, files.index);
  const auto state = jobs::check_log(log, index);
  CHECK_MSG(state.has_value(), "the disk holds");
  constexpr std::size_t kHeader = 32, kFrame = 24 + 4096;
  const auto most = static_cast<std::int64_t>(
      files.log.size() < kHeader ? 0 : (files.log.size() - kHeader) / kFrame);
  CHECK(state->frames >= 0 && state->frames + state->lost_frames <= most);
  CHECK(state->lost_commits >= 0 && state->lost_commits <= state->lost_frames);
  CHECK((state->verdict == LogState::Verdict::damaged) == (state->lost_commits > 0));
  if (files.log == stored.whole().log && files.index == stored.whole().index)
    CHECK_MSG(state->verdict == LogState::Verdict::whole, "a whole log is damaged");
  if (state->verdict != LogState::Verdict::damaged) return 0;
  CHECK(jobs::mend_log(log).has_value());
  const auto mended = jobs::check_log(log, directory / "none");
  CHECK_MSG(mended && mended->frames >= state->frames + state->lost_frames,
            "what was told to be saved is not");
  return 0;
}
