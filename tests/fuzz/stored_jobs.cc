#include "tests/fuzz/stored_jobs.h"

#include <unistd.h>

#include <fstream>

#include "engine/base/check.h"
#include "engine/base/ids.h"
#include "jobs/store/job_store.h"
#include "jobs/submission.h"

namespace ponder::fuzz {
namespace fs = std::filesystem;
namespace {

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Memory, where the machine has such a place: thousands of databases are written and synced.
fs::path base_directory() {
  std::error_code ec;
  return fs::is_directory("/dev/shm", ec) && ::access("/dev/shm", W_OK) == 0
             ? fs::path("/dev/shm")
             : fs::temp_directory_path();
}

struct Directory {
  fs::path path =
      base_directory() / ("ponder-fuzz-" + std::to_string(::getpid()) + "-" + random_hex(4));
  ~Directory() {
    std::error_code ec;
    fs::remove_all(path, ec);
  }
};

jobs::Progress chunk(std::string text, std::int64_t number) {
  jobs::Progress progress;
  progress.chunks.push_back({Channel::answer, std::move(text), {1, 2}});
  progress.next_chunk = number;
  progress.attempt = 1;
  return progress;
}

}  // namespace

const fs::path& empty_directory() {
  static const Directory directory;
  std::error_code ec;
  fs::remove_all(directory.path, ec);
  CHECK(fs::create_directory(directory.path, ec));
  return directory.path;
}

void write_file(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
}

const StoredJobs& StoredJobs::get() {
  static const StoredJobs jobs;
  return jobs;
}

StoredJobs::StoredJobs() {
  const fs::path file = empty_directory() / "ponder.db";
  for (int life = 0; life < 2;
       ++life) {  // the first life's jobs are in the file, the rest in the log
    auto store = jobs::JobStore::open(file).value();
    for (int number = 0; number < 6; ++number) {
      jobs::JobRow row;
      row.id = new_job_id(1000 + life * 10 + number);
      if (life == 1 && number == 0) first_in_log_ = row.id;
      row.workspace = "/w";
      row.body_sha256 = jobs::sha256_of(row.id);
      row.effort_requested = "xhigh";
      row.created_ms = 1000;
      jobs::StoredRequest request;
      request.generation.chat.messages.push_back({.role = "user", .content = "of " + row.id});
      CHECK(store->insert(row, jobs::encode_request(request)).has_value());
      if (number == 5) {
        live_[row.id] = "";
        continue;
      }
      jobs::StateChange change;
      const auto claimed = store->claim(row.id, "me", 2000, change).value();
      CHECK(claimed.has_value());
      const jobs::Fence fence{claimed->seq, claimed->id, claimed->claims, claimed->instance};
      const std::string body(1500, static_cast<char>('a' + number));
      CHECK(*store->append(fence, chunk(body, 0)));
      if (number == 4) {
        live_[row.id] = body;
        continue;
      }
      jobs::JobText text;
      text.append(Channel::answer, body);
      text.append(Channel::answer, "end");
      jobs::Leave leave;
      leave.state = jobs::State::completed;
      leave.at_ms = 3000;
      CHECK(*store->leave(fence, chunk("end", 1), text, leave, change));
      ended_[row.id] = text.of(Channel::answer);
    }
    if (life == 0) continue;
    whole_.database = bytes_of(file);
    whole_.log = bytes_of(file.string() + "-wal");
    whole_.index = bytes_of(file.string() + "-shm");
  }
  CHECK(whole_.log.size() > 10 * 4120 && whole_.database.size() > 10 * 4096);
}

Damaged StoredJobs::damaged(Choices& choose) const {
  Damaged out = whole_;
  const std::size_t kept = choose.below(3);
  if (kept != 0) out.index.clear();  // the machine went down and not just the process
  if (kept == 2) out.log.clear();
  for (int i = 0; i < 8 && !choose.empty(); ++i) {
    std::string& bytes = choose.below(3) == 0 ? out.database : out.log;
    const std::size_t at = choose.byte() << 16 | choose.byte() << 8 | choose.byte();
    if (bytes.empty()) continue;
    const std::size_t place = at % bytes.size();
    const std::size_t length = std::min(bytes.size() - place, std::size_t{choose.byte()} + 1);
    switch (choose.below(4)) {
      case 0:
        bytes[place] = static_cast<char>(bytes[place] ^ (1 << choose.below(8)));
        break;
      case 1: {
        const std::string_view text = choose.text(std::min<std::size_t>(length, 16));
        bytes.replace(place, std::min(text.size(), bytes.size() - place), text);
        break;
      }
      case 2:
        bytes.replace(place, length, length, static_cast<char>(choose.byte()));
        break;
      default:
        bytes.resize(place);
    }
  }
  return out;
}

}  // namespace ponder::fuzz
