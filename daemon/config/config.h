#pragma once
// Everything that can be set about the daemon, as one tree built before any thread starts and
// passed down by const reference. Defaults < ponder.toml < environment < flags. The keys are the
// rows of keys.cc; docs/config.md lists them.
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "daemon/http/server.h"
#include "engine/base/error.h"
#include "engine/generator/chat_request.h"
#include "jobs/job_queue.h"

namespace ponder::daemon {

struct EngineSettings {
  std::string model;           ///< a GGUF file; empty: the bundled one
  std::int64_t ctx = 0;        ///< 0: the model's, within what the device holds
  std::string engine = "cpu";  ///< cpu, or stub for the scripted one
  int threads = 0;             ///< 0: the machine's cores
  std::string kv = "f16";
  std::int64_t device_state_mib = -1;  ///< memory for saved states; -1: a share of what is free
  std::int64_t host_state_mib = -1;    ///< for their copies in host memory; the same
  std::int64_t context_mib = -1;       ///< of all running generations together; 0: no bound
  std::string speculation = "adaptive";
  std::int64_t worker_memory_mib = -1;  ///< of the engine's process; 0: no limit, -1: its need
  double stall_s = 60;
  /// Thinking budgets where the model's template has no word for effort.
  std::int64_t effort_low_tokens = 2048, effort_medium_tokens = 8192, effort_xhigh_tokens = 131072;
  /// What the effort words of other tools mean: none, low, medium or xhigh.
  std::string effort_high = "medium", effort_max = "xhigh", effort_minimal = "low";
};

struct NetworkSettings {
  int port = 7663;  ///< on 127.0.0.1; 0: no TCP
  std::vector<std::string> listen = {};
  std::vector<std::string> allowed_hosts = {};
  std::vector<std::string> allowed_origins = {};
};

struct Config {
  EngineSettings engine = {};
  NetworkSettings network = {};
  ServerLimits http = {};
  jobs::Options jobs = {};
  std::string after_crash = "resume";     ///< resume, or restart
  std::vector<std::string> on_done = {};  ///< program and arguments; empty: none
  std::string log_level = "info";
  double watchdog_s = 30;  ///< 0: no watchdog
  /// Where each value that is not the default came from: key -> "ponder.toml", "PONDER_PORT",
  /// "--port".
  std::map<std::string, std::string> origin = {};
};

/// The text of the flags that were given, by key ("port" -> "0"); lists may have several.
using FlagValues = std::map<std::string, std::vector<std::string>>;
/// Looks up an environment variable; null if it is not set.
using Environment = std::function<const char*(const char*)>;

inline constexpr const char* kUsage = "usage";
/// Merges and checks everything. `file` may not exist, unless `file_required`. On failure the
/// error's message lists every problem, one a line, and its details hold kUsage if a flag, or
/// the file that one names, is at fault.
Result<Config> load_config(const std::filesystem::path& file, bool file_required,
                           const Environment& environment, const FlagValues& flags);

EffortAliases effort_aliases(const Config& config);

/// The tree as a ponder.toml, each line with a comment that says where its value came from.
std::string print_config(const Config& config);

struct ListenAddress {
  std::string address;  ///< an IP literal without brackets
  std::uint16_t port = 0;
  bool loopback = false;
};
/// "127.0.0.1:8000", "[::1]:8000".
Result<ListenAddress> parse_listen_address(const std::string& text);

}  // namespace ponder::daemon
