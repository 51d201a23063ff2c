// ponderd: builds its objects in order, waits for a signal, tears them down in reverse.
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/api/api.h"
#include "daemon/api/error_map.h"
#include "daemon/runtime/api_key.h"
#include "daemon/runtime/build_info.h"
#include "daemon/runtime/detach.h"
#include "daemon/runtime/done_command.h"
#include "daemon/runtime/instance_lock.h"
#include "daemon/runtime/model_file.h"
#include "daemon/runtime/network.h"
#include "daemon/runtime/no_model.h"
#include "daemon/runtime/options.h"
#include "daemon/runtime/reload.h"
#include "daemon/runtime/restart.h"
#include "daemon/runtime/signals.h"
#include "daemon/runtime/started_with.h"
#include "daemon/runtime/watchdog.h"
#include "engine/base/log.h"
#include "engine/base/sentence.h"
#include "engine/generator/worker_generator.h"
#include "jobs/store/offline_check.h"

namespace {
using namespace std::chrono_literals;
using namespace ponder;
using namespace ponder::daemon;

constexpr auto kDrain = 2s;
constexpr unsigned kHardStopSeconds = 30;
constexpr unsigned kStuckLogSeconds = 5;  // what holds the loop up may be the log
/// How long a detached start waits to see whether the engine refuses the model. A broken file or a
/// window that does not fit is known in well under it; a big model that loads is not waited for.
constexpr auto kVerdictWait = 1s;

LogLevel log_level(const Config& config) {
  const std::string& word = config.log_level;
  return word == "debug"   ? LogLevel::debug
         : word == "warn"  ? LogLevel::warn
         : word == "error" ? LogLevel::error
                           : LogLevel::info;
}

/// Core dumps would hold prompts and keys; 1,024 connections need more descriptors than the
/// usual soft limit gives.
void set_process_limits() {
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 4096) {
    files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
}

Result<void> make_directories(const Places& places) {
  TRY_VOID(make_private_dir(places.state_dir));
  TRY_VOID(make_private_dir(places.logs_dir));
  return make_private_dir(places.models_dir);
}

bool is_stub(const Config& config) {
  return config.engine.engine == "stub";
}

/// The model file as it is now, or why there is none.
using FindModel = std::function<Result<std::filesystem::path>()>;

std::unique_ptr<Generator> make_generator(const Config& config,
                                          const Result<std::filesystem::path>& model,
                                          const FindModel& find) {
  const EngineSettings& settings = config.engine;
  WorkerOptions options;
  options.stub = settings.engine == "stub";
  if (options.stub) {
    log_warn("the scripted stub answers, no model (engine = stub)");
  } else if (!model) {
    log_error(in_one_sentence(model.error()));
    return std::make_unique<NoModel>(
        model.error(), [config, find]() -> Result<std::unique_ptr<Generator>> {
          TRY(const std::filesystem::path there, find());
          log_info(fmt::format("the model {} is there now", there.string()));
          return make_generator(config, there, find);
        });
  } else {
    options.model_path = *model;
  }
  options.n_ctx = settings.ctx;
  options.threads = settings.threads;
  options.kv = settings.kv;
  if (settings.device_state_mib >= 0) options.device_state_mib = settings.device_state_mib;
  if (settings.host_state_mib >= 0) options.host_state_mib = settings.host_state_mib;
  if (settings.worker_memory_mib >= 0) options.memory_mib = settings.worker_memory_mib;
  options.sequences = config.jobs.max_running_batch + config.jobs.max_running_interactive;
  if (settings.context_mib >= 0) options.context_mib = settings.context_mib;
  if (settings.speculation == "off")
    options.spec = 0;
  else if (settings.speculation != "adaptive")
    options.spec = settings.speculation.front() - '0';
  options.low_tokens = settings.effort_low_tokens;
  options.medium_tokens = settings.effort_medium_tokens;
  options.xhigh_tokens = settings.effort_xhigh_tokens;
  options.stall_s = settings.stall_s;
  return std::make_unique<WorkerGenerator>(std::move(options));
}

/// Why the model cannot be used, or empty if it can or nobody knows yet.
std::string warning_at_start(const Generator& generator) {
  const auto end = std::chrono::steady_clock::now() + kVerdictWait;
  GeneratorStatus status = generator.status();
  while (status.state == GeneratorState::loading && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(10ms);
    status = generator.status();
  }
  return status.state == GeneratorState::failed ? status.reason : "";
}

/// What the process was told by its command line, for a start and for reading the settings again.
struct Started {
  Places places;
  std::vector<std::string> words;  ///< the command line, to be kept
  bool detached = false;
  Reloader::Read read_config;
};

/// Nobody can be answered any more. Jobs and texts are on the disk, so this is no worse than kill
/// -9, and whoever needs a daemon next starts one.
[[noreturn]] void end_stuck(double seconds) {
  end_at_the_latest_in(kStuckLogSeconds);
  log_error(
      fmt::format("the sockets were not served for {} s: this daemon ends, to be started anew; "
                  "its jobs go on then",
                  seconds));
  ::_exit(1);
}

/// Until a signal to stop, which is returned.
int wait_and_reload(const Started& started, Reloader& reloader) {
  for (;;) {
    const int signal = wait_for_signal();
    if (signal != SIGHUP) return signal;
    if (started.detached && !reopen_log(started.places.logs_dir / "ponderd.log"))
      log_warn("the log file cannot be opened anew");
    reloader.again();
  }
}

/// Serves until a signal comes. An error means that the start failed.
Result<void> serve(const Started& started, const Config& config,
                   const Result<std::filesystem::path>& model, const FindModel& find,
                   StartReport& report) {
  const Places& places = started.places;
  const Clock& clock = system_clock();
  set_effort_aliases(effort_aliases(config));
  TRY(const InstanceLock lock, InstanceLock::acquire(places.lock));
  ::unlink(places.stopped_marker.c_str());  // whoever starts it wants it to run
  const StartedWith started_with(places.started_with, started.words);
  TRY(const std::string api_key, load_or_make_api_key(places.key_file));

  Server server(config.http);  // outlives everything that may still hold a request
  TRY(const Network network, open_network(server, places, config));
  const Access access(AccessOptions{api_key, network.names, config.network.allowed_hosts,
                                    config.network.allowed_origins});
  const std::unique_ptr<Generator> generator = make_generator(config, model, find);
  jobs::Options queue_options = config.jobs;
  queue_options.database = places.database;
  queue_options.build = build();
  queue_options.resume_after_crash = config.after_crash == "resume";
  queue_options.is_owner = [&lock] { return lock.is_in_place(); };
  // At once and without a trace: the socket and the notes on the disk are the other daemon's.
  queue_options.on_lost = [] { ::_exit(1); };
  DoneCommand done_command(config.on_done);
  queue_options.on_end = [&done_command](const std::string& id, jobs::State state) {
    done_command.run(id, jobs::to_string(state));
  };
  std::unique_ptr<Api> api;  // outlives the queue, whose callbacks use it
  TRY(std::unique_ptr<jobs::JobQueue> queue,
      jobs::JobQueue::open(std::move(queue_options), *generator, clock));
  api = std::make_unique<Api>(ApiServices{.queue = *queue,
                                          .generator = *generator,
                                          .clock = clock,
                                          .access = access,
                                          .version = version(),
                                          .build = build(),
                                          .tcp = network.tcp,
                                          .started_wall_ms = clock.wall_ms(),
                                          .started_steady_ms = clock.steady_ms(),
                                          .json_limits = {config.http.max_body_bytes, 64},
                                          .restart_warning = restart_warning(service_places())});
  server.start([&](RequestHead& head) { return api->admit(head); },
               [&](ExchangePtr exchange, std::string body) {
                 api->handle(std::move(exchange), std::move(body));
               },
               error_response);
  auto watchdog = std::make_unique<Watchdog>(
      [&server](std::function<void()> task) { server.post(std::move(task)); },
      std::chrono::milliseconds(static_cast<std::int64_t>(config.watchdog_s * 1000)),
      [&config] { end_stuck(config.watchdog_s); });
  log_info(fmt::format("ponderd {} serves {} and TCP {}", version(), places.socket.string(),
                       to_json(network.tcp)));
  report.serving(report.has_starter() ? warning_at_start(*generator) : "");

  Reloader reloader(config, started.read_config, [&](const Config& now) {
    log_set_level(log_level(now));
    done_command.set(now.on_done);
    queue->reconfigure(now.jobs);
  });
  const int signal = wait_and_reload(started, reloader);
  log_info(fmt::format("signal {}: stopping", signal));
  end_at_the_latest_in(kHardStopSeconds);
  watchdog.reset();
  server.stop_accepting();
  queue->stop();         // everything is on disk
  generator->stop();     // every turn has ended, also in an engine that answers nothing any more
  server.drain(kDrain);  // ... and its client has been told
  server.stop();
  log_info("stopped");
  return {};
}

/// --check-database: one JSON document on stdout; 0, 74 (damaged, or it cannot be looked at) or 75
/// (a daemon has it).
int check_database(const Places& places) {
  ::umask(0077);
  json::object report;
  int code = 0;
  std::error_code ec;
  const bool there = std::filesystem::exists(places.state_dir, ec);
  const auto lock = there ? InstanceLock::acquire(places.lock)
                          : Result<InstanceLock>(fail(ErrorCode::storage, "there is no directory"));
  if (lock || !there) {
    report = jobs::check_database_offline(places.database);
    code = report["ok"] == true ? 0 : 74;
  } else {
    report["error"] = json::object{{"message", lock.error().message}, {"hint", lock.error().hint}};
    code = 75;
  }
  std::fprintf(stdout, "%s\n", to_json(report).c_str());
  return code;
}

int run(int argc, char** argv) {
  const ParsedOptions parsed =
      parse_options(argc, argv, fmt::format("ponderd {} ({})", version(), build()));
  if (parsed.exit_code) return *parsed.exit_code;
  const Options& options = parsed.options;
  StartReport report;
  const auto failed = [&](const Error& error) {
    std::fprintf(stderr, "ponderd: %s\n", error.message.c_str());
    if (!error.hint.empty()) std::fprintf(stderr, "  %s\n", error.hint.c_str());
    if (error.details.count(InstanceLock::kHeld)) {  // who asked for a daemon has one
      report.serving(error.message);
      return 0;
    }
    report.failed(error.hint.empty() ? error.message : error.message + "\n  " + error.hint);
    return error.details.count(kUsage) ? 2 : 1;
  };

  const auto places = find_places(options.home);
  if (!places) return failed(places.error());
  if (options.check_database) return check_database(*places);
  const std::filesystem::path config_file =
      options.config_file.empty() ? places->config_file.string() : options.config_file;
  std::error_code ec;
  const std::filesystem::path config_path = std::filesystem::absolute(config_file, ec);
  const auto read_config = [&] {
    return load_config(config_path, !options.config_file.empty(), ::getenv, options.flags);
  };
  const auto config = read_config();
  if (!config) return failed(config.error());
  if (options.print_config) std::fputs(print_config(*config).c_str(), stdout);
  const char* user_home = ::getenv("HOME");
  const ModelPlaces model_places{places->models_dir, config_path.parent_path(),
                                 std::filesystem::current_path(ec), user_home ? user_home : ""};
  const FindModel find = [&config, model_places] { return find_model(*config, model_places); };
  const auto model = is_stub(*config) ? Result<std::filesystem::path>() : find();
  // That no model is named is no fault of the settings; a name that leads nowhere is.
  if (options.check_config && !model && !config->engine.model.empty()) return failed(model.error());
  if (options.print_config || options.check_config) return 0;

  const std::vector<std::string> words =
      words_to_keep(argc, argv, std::filesystem::current_path(ec));
  ::umask(0077);
  set_process_limits();
  if (auto made = make_directories(*places); !made) return failed(made.error());
  if (options.detach) {
    auto detached = detach(places->logs_dir / "ponderd.log");
    if (!detached) return failed(detached.error());
    report = std::move(*detached);
  }
  install_signal_handlers();
  log_open("ponderd", log_level(*config));
  const auto served =
      serve({*places, words, options.detach, read_config}, *config, model, find, report);
  return served ? 0 : failed(served.error());
}
}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv);
}
