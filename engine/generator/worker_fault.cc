#include "engine/generator/worker_fault.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>

#include "engine/base/check.h"
#include "engine/generator/protocol.h"

namespace ponder {
namespace {

namespace fs = std::filesystem;

// Nobody's doing costs no attempt (worker_killed, or out_of_memory, which the queue tries once more
// alone). A device that is gone may need minutes; who kills from outside is obeyed but not waited
// for; a crash loop must not take a core.
constexpr std::array<FaultRule, 8> kRules{{
    // fault, finish, first pause, longest, gives up, words
    {WorkerFault::ended, Finish::stream_lost, 0.1, 5, true, ""},
    {WorkerFault::crashed, Finish::worker_died, 0.1, 5, true, ""},
    {WorkerFault::garbled, Finish::worker_died, 0.1, 5, true, ""},
    {WorkerFault::out_of_memory, Finish::failed, 0.1, 300, false, "ran out of memory"},
    {WorkerFault::device_lost, Finish::worker_killed, 1, 300, false, "lost its device"},
    {WorkerFault::killed, Finish::worker_killed, 0.1, 1, true, "was killed from outside"},
    {WorkerFault::stalled, Finish::stalled, 0.1, 5, true, ""},
    {WorkerFault::unusable, Finish::worker_died, 0.1, 5, true, ""},
}};

bool sent_from_outside(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

/// The number after `key` in a file of "key number" lines, or 0.
std::uint64_t number_of(const fs::path& file, std::string_view key) {
  std::ifstream in(file);
  std::string word;
  std::uint64_t value = 0;
  while (in >> word >> value)
    if (word == key) return value;
  return 0;
}

/// Where the kernel counts OOM kills of the group that /proc/PID/cgroup names. In a container the
/// named path may not be there; then its root stands for it.
fs::path counter_of(const fs::path& root, std::int64_t pid) {
  std::ifstream in(root / fmt::format("proc/{}/cgroup", pid));
  const fs::path mount = root / "sys/fs/cgroup";
  fs::path found;
  std::error_code ec;
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string kinds = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(std::min(second + 2, line.size()));
    const bool unified = kinds == ",,", memory = kinds.find(",memory,") != std::string::npos;
    if (!unified && !memory) continue;
    const fs::path base = unified ? mount : mount / "memory";
    const char* name = unified ? "memory.events" : "memory.oom_control";
    for (const fs::path& file : {base / path / name, base / name}) {
      if (!fs::exists(file, ec)) continue;
      if (found.empty() || memory) found = file;  // a mixed hierarchy counts in the old one
      break;
    }
  }
  return found;
}

}  // namespace

const FaultRule& rule_of(WorkerFault fault) {
  for (const FaultRule& rule : kRules)
    if (rule.fault == fault) return rule;
  CHECK_MSG(false, "a fault without a rule");
  return kRules.front();
}

WorkerFault fault_of(const ProcessEnd& end, bool oom_killer_came) {
  if (!end.known) return WorkerFault::crashed;
  if (end.forced) return WorkerFault::ended;  // it had closed its socket
  if (end.exited) {
    switch (end.code) {
      case 0:
        return WorkerFault::ended;
      case protocol::kExitDeviceLost:
        return WorkerFault::device_lost;
      case protocol::kExitOutOfMemory:
        return WorkerFault::out_of_memory;
      case protocol::kExitModelUnusable:
        return WorkerFault::unusable;
      default:
        return WorkerFault::crashed;
    }
  }
  if (end.signal == SIGKILL && oom_killer_came) return WorkerFault::out_of_memory;
  return sent_from_outside(end.signal) ? WorkerFault::killed : WorkerFault::crashed;
}

double pause_after(const FaultRule& rule, int streak, double scale) {
  const int doublings = streak - (rule.fault == WorkerFault::device_lost ? 1 : 2);
  if (doublings < 0) return 0;
  const double pause = rule.first_pause_s * static_cast<double>(1 << std::min(doublings, 20));
  return std::min(pause, rule.longest_pause_s) * scale;
}

void OomWatch::begin(std::int64_t pid) {
  pid_ = pid;
  file_ = counter_of(root_, pid);
  before_ = last_ = count();
}

void OomWatch::look() {
  if (fs::path file = counter_of(root_, pid_); !file.empty() && file != file_) return begin(pid_);
  before_ = last_;
  last_ = count();
}

bool OomWatch::came() const {
  return count() > before_;
}

std::uint64_t OomWatch::count() const {
  return file_.empty() ? 0 : number_of(file_, "oom_kill");
}

}  // namespace ponder
