// Stands in for ponderd where clients start and stop it: takes the instance lock, goes into the
// background, answers /health until SIGTERM. Tests copy it beside a copy of `ponder`, since
// clients look for ponderd in the directory of their own executable.
//
// In its home: each start appends a line to `starts` (with its arguments and open descriptors);
// a file `fail` makes it refuse with that file's text ("-": without a word), a file `fail_late`
// does so when its socket has been open for a while, and a file `health` is what /health answers.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

#include "engine/base/places.h"
#include "tests/unit/client/program_run.h"
#include "tests/unit/client/scripted_server.h"

namespace {
using namespace ponder;
using namespace ponder::client_test;

std::string open_descriptors() {
  std::string out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone && target.string().find("/proc/") == std::string::npos)
      out += " " + entry.path().filename().string() + "=" + target.string();
  }
  return out;
}

void append_line(const std::string& file, const std::string& line) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  (void)!::write(fd, (line + "\n").data(), line.size() + 1);
  ::close(fd);
}

[[noreturn]] void serve(const Places& places, int lock, int report) {
  const std::string pid = fmt::format("{}\n", ::getpid());
  (void)!::ftruncate(lock, 0);
  (void)!::pwrite(lock, pid.data(), pid.size(), 0);
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &stop, nullptr);
  {
    json::object health{{"state", "ready"},
                        {"engine", json::object{{"pid", nullptr}}},
                        {"queue", json::object{{"running", 1}, {"ask", 0}, {"batch", 2}}},
                        {"version", PONDER_VERSION}};
    if (auto other = parse_json_object(read_file((places.state_dir / "health").string())))
      health = *other;
    ScriptedServer server(places.socket.string(), [&](const SeenRequest& request, Peer& peer) {
      if (request.what() == "GET /health")
        peer.answer(200, health);
      else
        peer.answer(200, json::object{{"jobs", json::array()}, {"next_before", nullptr}});
    });
    if (const std::string why = read_file((places.state_dir / "fail_late").string());
        !why.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // so that a client sees it
      std::fprintf(stderr, "ponderd: %s\n", why.c_str());
      ::_exit(1);
    }
    (void)!::write(report, "+", 1);
    ::close(report);
    int number = 0;
    ::sigwait(&stop, &number);
  }
  append_line((places.state_dir / "stops").string(), "stopped");
  ::_exit(0);
}
}  // namespace

int main(int argc, char** argv) {
  std::string home, words;
  bool detach = false;
  bool checks = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    words += word + " ";
    if (word == "--detach") detach = true;
    if (word == "--home" && i + 1 < argc) home = argv[i + 1];
    if (word == "--check-config") checks = true;
    if (word == "--version") {
      std::puts("ponderd " PONDER_VERSION " (stand-in)");
      return 0;
    }
  }
  const auto places = find_places(home);
  if (checks && places) {
    const std::string wrong = read_file((places->state_dir / "bad_config").string());
    std::fputs(wrong.c_str(), stderr);
    return wrong.empty() ? 0 : 1;
  }
  if (!places || !make_private_dir(places->state_dir)) return 1;
  append_line((places->state_dir / "starts").string(), words + "|" + open_descriptors());
  if (const std::string why = read_file((places->state_dir / "fail").string()); !why.empty()) {
    if (why != "-") std::fprintf(stderr, "ponderd: %s\n", why.c_str());
    return 1;
  }
  const int lock = ::open(places->lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    append_line((places->state_dir / "refused").string(), words);
    std::fprintf(stderr, "ponderd: another ponderd serves %s\n", places->state_dir.c_str());
    return 1;
  }
  int ends[2];
  if (::pipe(ends) != 0) return 1;
  if (!detach) serve(*places, lock, ends[1]);
  if (::fork() == 0) {
    ::setsid();
    ::close(ends[0]);
    serve(*places, lock, ends[1]);
  }
  ::close(ends[1]);
  char said = 0;
  return ::read(ends[0], &said, 1) == 1 && said == '+' ? 0 : 1;
}
