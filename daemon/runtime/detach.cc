#include "daemon/runtime/detach.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

namespace ponder::daemon {
namespace {

constexpr char kServing = '+';
constexpr char kFailed = '-';

void send_all(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // the parent has gone; nobody is left to tell
    at += static_cast<std::size_t>(n);
  }
}

UniqueFd open_log(const std::filesystem::path& file) {
  UniqueFd log(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (log && ::fchmod(log.get(), 0600) != 0) log.reset();
  return log;
}

[[noreturn]] void parent_waits(int fd, pid_t child, const std::filesystem::path& log_file) {
  std::string report;
  char buffer[1024];
  while (true) {  // to its end: the child closes it once it has said all
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    report.append(buffer, static_cast<std::size_t>(n));
  }
  if (!report.empty() && report.front() == kServing) {
    if (report.size() > 1) std::fprintf(stderr, "ponderd: warning: %s\n", report.c_str() + 1);
    ::_exit(0);
  }
  if (!report.empty()) {
    std::fprintf(stderr, "ponderd: %s\n", report.c_str() + 1);
  } else {
    int status = 0;
    ::waitpid(child, &status, 0);
    std::fprintf(stderr, "ponderd: it ended before it served; see %s\n", log_file.c_str());
  }
  ::_exit(1);
}

/// All descriptors above stderr but `keep`: a starter's pipes must not live as long as we do.
void close_inherited(int keep) {
  std::vector<int> open;
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ec)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    if (fd > 2 && fd != keep) open.push_back(fd);
  }
  for (const int fd : open)
    ::close(fd);  // the directory's own is already closed: harmless
}
}  // namespace

bool reopen_log(const std::filesystem::path& file) {
  const UniqueFd log = open_log(file);
  return log && ::dup2(log.get(), 1) >= 0 && ::dup2(log.get(), 2) >= 0;
}

void StartReport::serving(const std::string& warning) {
  if (!pipe_) return;
  send_all(pipe_.get(), kServing + warning);
  pipe_.reset();
}

void StartReport::failed(const std::string& message) {
  if (!pipe_) return;
  send_all(pipe_.get(), kFailed + message);
  pipe_.reset();
}

Result<StartReport> detach(const std::filesystem::path& log_file) {
  const auto failure = [](const char* what) {
    return fail(ErrorCode::storage, fmt::format("{}: {}", what, std::strerror(errno)),
                "mend that, or start ponderd without --detach");
  };
  UniqueFd log = open_log(log_file);
  if (!log) return failure("cannot open the log");
  UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  int ends[2];
  if (!null || ::pipe2(ends, O_CLOEXEC) != 0) return failure("cannot detach");
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return failure("cannot fork");
  if (child > 0) {
    write_end.reset();
    parent_waits(read_end.get(), child, log_file);
  }
  ::setsid();
  if (::chdir("/") != 0 || ::dup2(null.get(), 0) < 0 || ::dup2(log.get(), 1) < 0 ||
      ::dup2(log.get(), 2) < 0)
    ::_exit(1);
  log.reset();
  null.reset();
  read_end.reset();
  close_inherited(write_end.get());
  return StartReport(std::move(write_end));
}

}  // namespace ponder::daemon
