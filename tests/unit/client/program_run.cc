#include "tests/unit/client/program_run.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/base/check.h"

namespace ponder::client_test {
namespace {
constexpr auto kBound = std::chrono::seconds(20);

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words)
    out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

/// stdin as an unnamed file, so that any amount of it can be given without a thread.
int input_file(const std::optional<std::string>& input) {
  if (!input) return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  char name[] = "/tmp/ponder-test-input-XXXXXX";
  const int fd = ::mkostemp(name, O_CLOEXEC);
  CHECK(fd >= 0);
  ::unlink(name);
  CHECK(::write(fd, input->data(), input->size()) == static_cast<ssize_t>(input->size()));
  ::lseek(fd, 0, SEEK_SET);
  return fd;
}
}  // namespace

TempDir::TempDir() {
  char name[] = "/tmp/ponder-client-test-XXXXXX";
  CHECK(::mkdtemp(name) != nullptr);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

json::object Ended::document() const {
  auto parsed = parse_json_object(out);
  CHECK_MSG(parsed, "not one JSON document: " + out + err);
  return *parsed;
}

Running::Running(const RunOptions& options) {
  int out[2], err[2];
  if (options.terminal) {
    const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    CHECK(master >= 0 && ::grantpt(master) == 0 && ::unlockpt(master) == 0);
    out[0] = master;
    out[1] = ::open(::ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    CHECK(out[1] >= 0);
    err[0] = -1;
    err[1] = out[1];
  } else {
    CHECK(::pipe2(out, O_CLOEXEC) == 0 && ::pipe2(err, O_CLOEXEC) == 0);
  }
  const int in = input_file(options.input);
  std::vector<std::string> words{options.program};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "TERM=xterm"};
  for (const auto& [name, value] : options.environment)
    environment.push_back(name + "=" + value);
  const auto argv = pointers(words);
  const auto envp = pointers(environment);
  pid_ = ::fork();
  CHECK(pid_ >= 0);
  if (pid_ == 0) {
    ::dup2(in, 0);
    ::dup2(out[1], 1);
    ::dup2(err[1], 2);
    ::signal(SIGINT, SIG_DFL);
    ::signal(SIGPIPE, SIG_DFL);
    if (!options.directory.empty() && ::chdir(options.directory.c_str()) != 0) ::_exit(126);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  ::close(in);
  ::close(out[1]);
  if (!options.terminal) ::close(err[1]);
  out_ = out[0];
  err_ = err[0];
}

Running::~Running() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (out_ >= 0) ::close(out_);
  if (err_ >= 0) ::close(err_);
}

void Running::signal(int number) const {
  ::kill(pid_, number);
}

Ended Running::wait() {
  Ended ended;
  const auto until = std::chrono::steady_clock::now() + kBound;
  pollfd fds[2] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
  std::string* into[2] = {&ended.out, &ended.err};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    if (left.count() <= 0 || ::poll(fds, 2, static_cast<int>(left.count())) <= 0) {
      ::kill(pid_, SIGKILL);
      ended.err += "\n(killed by the test: it did not end)";
      break;
    }
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      char buffer[1 << 16];
      const ssize_t n = ::read(fds[i].fd, buffer, sizeof buffer);
      if (n > 0)
        into[i]->append(buffer, static_cast<std::size_t>(n));
      else
        fds[i].fd = -1;  // a pseudo terminal ends with EIO
    }
  }
  int status = 0;
  CHECK(::waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

Ended run(const RunOptions& options) {
  return Running(options).wait();
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace ponder::client_test
