// ponder doctor: looks at everything that must be right, says what to do about what is not, changes
// nothing and starts nothing. With --two-turn it times the reuse of a long prompt instead, with
// --offline it reads the whole database (doctor_offline.cc).
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>

#include "clients/cli/commands.h"
#include "clients/cli/doctor_checks.h"
#include "clients/cli/envelope.h"
#include "clients/cli/health_document.h"
#include "clients/cli/host_notes.h"
#include "clients/cli/run_program.h"
#include "clients/cli/two_turn.h"
#include "clients/cpp/instance_lock.h"
#include "engine/base/filesystem_kind.h"

namespace ponder::cli {
namespace {
namespace fs = std::filesystem;
constexpr double kFreeBytesLow = 1u << 30;
constexpr double kFreeBytesLeast = 64u << 20;

Check check_private(const std::string& name, const fs::path& path, bool directory) {
  struct stat s {};
  if (::lstat(path.c_str(), &s) != 0) {
    if (errno == ENOENT) return {name, "ok", path.string() + " is made at the first start", ""};
    return {name, "fail", fmt::format("{}: {}", path.string(), std::strerror(errno)), ""};
  }
  if (directory ? !S_ISDIR(s.st_mode) && !S_ISLNK(s.st_mode) : S_ISDIR(s.st_mode))
    return {name, "fail", path.string() + " is of the wrong kind", "move it away"};
  if (s.st_uid != ::geteuid())
    return {name, "fail", path.string() + " belongs to another user", "choose another --home"};
  if (!S_ISLNK(s.st_mode) && (s.st_mode & 077) != 0)
    return {name, "fail", path.string() + " is open to other users",
            fmt::format("chmod {} {}", directory ? "700" : "600", path.string())};
  return {name, "ok", path.string(), ""};
}

/// The nearest directory that exists: what is missing below it is made at the first start.
fs::path nearest_existing(fs::path path) {
  std::error_code ec;
  while (!fs::exists(path, ec) && path.has_relative_path())
    path = path.parent_path();
  return path;
}

Check check_writable(const Places& places) {
  const fs::path there = nearest_existing(places.state_dir);
  if (::access(there.c_str(), W_OK | X_OK) == 0) return {"writable", "ok", there.string(), ""};
  return {"writable", "fail",
          fmt::format("{} cannot be written: {}", there.string(), std::strerror(errno)),
          "choose another --home, or mend its permissions"};
}

/// What is wrong with the database's first bytes. Only looked at while no daemon holds the lock: a
/// live database belongs to SQLite alone, whose POSIX locks do not survive a stray close.
std::optional<Check> check_database_magic(const Places& places) {
  constexpr std::string_view kMagic{"SQLite format 3\0", 16};
  if (client::read_instance_lock(places.lock).held) return std::nullopt;
  std::ifstream in(places.database, std::ios::binary);
  if (!in) return std::nullopt;  // absent, or reported by its permissions
  std::string start(kMagic.size(), '\0');
  in.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(in.gcount()));
  if (start.empty() || start == kMagic) return std::nullopt;
  return Check{"database", "fail", places.database.string() + " is not a SQLite database",
               "`ponder start` puts it aside and saves what can be read of it"};
}

/// Locks do not hold on every file system; ponderd refuses those, and this says it before.
Check check_filesystem(const Places& places) {
  const fs::path there = nearest_existing(places.state_dir);
  const FilesystemKind kind = filesystem_kind_of(there);
  if (!kind.locks_hold)
    return {
        "file system", "fail",
        fmt::format("{} is on {}, where a database's locks do not hold", there.string(), kind.name),
        "choose a --home on a local disk, for example ~/.local/state/ponder inside Linux"};
  if (kind.in_memory)
    return {"file system", "note",
            fmt::format("{} is on {}: jobs there are gone when the machine restarts",
                        there.string(), kind.name),
            ""};
  return {"file system", "ok", there.string(), ""};
}

/// Reports of databases that were damaged, as long as they lie there.
void check_damage(Checks& checks, const Places& places) {
  std::error_code ec;
  const std::string prefix = places.database.filename().string() + ".damaged-";
  for (const auto& entry : fs::directory_iterator(places.state_dir, ec)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(".txt")) continue;
    std::ifstream in(entry.path());
    std::string line;
    std::getline(in, line);
    checks.push_back({"damage", "note", line, "read " + entry.path().string()});
  }
}

/// The configuration as ponderd reads it.
Check check_config(const Places& places) {
  std::error_code ec;
  const std::string name = fs::exists(places.config_file, ec)
                               ? places.config_file.string()
                               : "defaults (no " + places.config_file.string() + ")";
  std::vector<std::string> words{"--check-config"};
  if (places.explicit_home) words.insert(words.end(), {"--home", places.state_dir.string()});
  const fs::path program = executable_dir() / "ponderd";
  if (::access(program.c_str(), X_OK) != 0) return {"config", "ok", name, ""};
  const ProgramReport report = run_briefly(program, words);
  if (report.exit_code == 0) return {"config", "ok", name, ""};
  if (report.exit_code < 0) return {"config", "note", name + " was not checked", ""};
  std::string said = report.said.substr(0, report.said.find_last_not_of(" \n") + 1);
  const std::size_t hint = said.find("\n  ");
  return {"config", "fail", name + ": " + said.substr(0, hint),
          hint == std::string::npos ? "" : said.substr(hint + 3)};
}

void check_places(Checks& checks, const Places& places) {
  checks.push_back(check_private("state", places.state_dir, true));
  checks.push_back(check_writable(places));
  checks.push_back(check_filesystem(places));
  checks.push_back(check_private("database", places.database, false));
  if (auto wrong = check_database_magic(places)) checks.back() = std::move(*wrong);
  check_damage(checks, places);
  checks.push_back(check_private("api key", places.key_file, false));
  checks.push_back(check_config(places));
  if (places.socket.string().size() >= sizeof(sockaddr_un{}.sun_path))
    checks.push_back(
        {"socket", "note",
         fmt::format("{} is longer than a socket address; other programs may not reach it",
                     places.socket.string()),
         "choose a shorter --home"});
}

void check_disk(Checks& checks, const Places& places) {
  const fs::path there = nearest_existing(places.state_dir);
  struct statvfs s {};
  if (::statvfs(there.c_str(), &s) != 0) {
    checks.push_back(
        {"disk", "fail", fmt::format("{}: {}", there.string(), std::strerror(errno)), ""});
    return;
  }
  const double free = static_cast<double>(s.f_bavail) * static_cast<double>(s.f_frsize);
  const char* state = free < kFreeBytesLeast ? "fail" : free < kFreeBytesLow ? "note" : "ok";
  checks.push_back({"disk", state, bytes_in_words(free) + " free for jobs",
                    free < kFreeBytesLow ? "make room, or choose another --home" : ""});
}

void check_programs(Checks& checks) {
  for (const char* name : {"ponderd", "ponder-engine", "ponder-mcp"}) {
    const fs::path program = executable_dir() / name;
    if (::access(program.c_str(), X_OK) != 0) {
      checks.push_back(
          {name, "fail", program.string() + " is not there", "install it beside ponder"});
      continue;
    }
    const std::string line = version_line_of(program);
    if (line.empty())
      checks.push_back({name, "note", program.string() + " does not tell its version", ""});
    else if (line.find(PONDER_VERSION) == std::string::npos)
      checks.push_back({name, "note", fmt::format("{}, while ponder is " PONDER_VERSION, line),
                        "install all programs from one build"});
    else
      checks.push_back({name, "ok", line, ""});
  }
}

/// The model file that is served (empty: none that lies here); without a running daemon that could
/// tell, the one that it would find by itself.
void check_model_file(Checks& checks, const Places& places,
                      const std::optional<std::string>& served) {
  std::error_code ec;
  if (served && served->empty()) return;
  if (served) {
    const bool there = fs::is_regular_file(*served, ec);
    checks.push_back({"model", there ? "ok" : "fail",
                      *served + (there ? "" : " is not there any more"),
                      there ? "" : "put it back, or start the daemon with another --model"});
    return;
  }
  for (const auto& entry : fs::directory_iterator(places.models_dir, ec)) {
    if (entry.path().extension() != ".gguf") continue;
    const bool readable = ::access(entry.path().c_str(), R_OK) == 0;
    checks.push_back({"model", readable ? "ok" : "fail",
                      entry.path().string() + (readable ? "" : " cannot be read"), ""});
    return;
  }
  const fs::path bundled = bundled_model();
  if (!bundled.empty())
    checks.push_back({"model", "note", bundled.string() + ", the demo model: not for real work",
                      "put a GGUF file into " + places.models_dir.string()});
  else
    checks.push_back({"model", "fail", "no model file was found",
                      "put a GGUF file into " + places.models_dir.string() + ", or give --model"});
}

/// The daemon's and the engine's checks; the path of the model that is served, nullopt if no daemon
/// runs.
std::optional<std::string> check_daemon(Checks& checks, Context& context,
                                        client::DaemonClient& daemon, const Places& places) {
  const auto health = get_health(daemon, &context.interrupt());
  if (!health) {
    const client::LockHolder holder = client::read_instance_lock(places.lock);
    const bool remote = !daemon.options().url.empty();
    if (holder.held && !remote)
      checks.push_back({"daemon", "fail",
                        fmt::format("process {} holds the lock, but does not answer: {}",
                                    holder.pid, health.error().message),
                        "ponder stop --now && ponder start"});
    else
      checks.push_back(
          {"daemon", remote ? "fail" : "note", health.error().message, health.error().hint});
    return std::nullopt;
  }
  const std::string version = text_at(*health, "version");
  const bool same = version.empty() || version == PONDER_VERSION;
  checks.push_back({"daemon", same ? "ok" : "note",
                    "runs" + (version.empty() ? "" : ", version " + version),
                    same ? "" : "`ponder stop && ponder start` runs the version of this program"});
  const std::string state = text_at(*health, "state");
  const std::string degraded = words_at(*health, "degraded");
  const bool ready = state == "ready" || state == "busy";
  const bool broken = state == "failed" || state == "down";
  std::string words = fmt::format("{}", fmt::join(health_lines(*health), "; "));
  if (const std::string last = text_at(*health, "engine.last_error");
      !last.empty() && words.find(last) == std::string::npos)
    words += "; last error: " + last;
  checks.push_back({"engine",
                    ready && degraded.empty() ? "ok"
                    : broken                  ? "fail"
                                              : "note",
                    words,
                    broken
                        ? fmt::format("put a usable GGUF file into {}, or set model in {}, then: "
                                      "ponder stop && ponder start",
                                      places.models_dir.string(), places.config_file.string())
                        : ""});
  return daemon.options().url.empty() ? text_at(*health, "model.path") : std::string();
}

bool mentions_ponder(const fs::path& file) {
  std::ifstream in(file);
  std::string text(1 << 20, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text.find("ponder-mcp") != std::string::npos;
}

/// What would bring the daemon back after a stop or a crash.
void check_restarters(Checks& checks, const Places& places) {
  const char* home_value = std::getenv("HOME");
  const fs::path home = home_value ? home_value : "/";
  std::string found;
  const auto add = [&found](const std::string& what) {
    found += (found.empty() ? "" : ", ") + what;
  };
  std::error_code ec;
  for (const fs::path& unit :
       {home / ".config/systemd/user/ponder.service", fs::path("/etc/systemd/user/ponder.service"),
        fs::path("/etc/systemd/system/ponder.service")})
    if (fs::exists(unit, ec)) add("the service " + unit.string());
  for (const char* file : {".claude.json", ".codex/config.toml", ".config/opencode/opencode.json",
                           ".cursor/mcp.json", ".qwen/settings.json"})
    if (mentions_ponder(home / file)) add("an agent (" + (home / file).string() + ")");
  const std::string stopped = client::stopped_sentence(places);
  if (!stopped.empty())
    checks.push_back(
        {"restart", found.find("service") == std::string::npos ? "ok" : "note",
         stopped + "; no client starts it" + (found.empty() ? "" : "; there is " + found), ""});
  else
    checks.push_back({"restart", "ok",
                      "any client starts the daemon when it is needed" +
                          (found.empty() ? "" : "; there is " + found),
                      "`ponder stop` keeps it stopped"});
}

int two_turn(Context& context) {
  auto daemon = context.daemon(Start::never);
  if (!daemon) return context.failed(daemon.error());
  const auto report = run_two_turn(*daemon, &context.interrupt());
  if (!report) return context.failed(report.error());
  const bool ok = report->reason.empty();
  if (context.json())
    context.document({{"ok", ok},
                      {"prompt_tokens", report->prompt_tokens},
                      {"cold_s", report->cold_s},
                      {"second_prompt_tokens", report->second_tokens},
                      {"cached_tokens", report->cached_tokens},
                      {"warm_s", report->warm_s},
                      {"ratio", report->ratio()},
                      {"reason", ok ? json::value(nullptr) : json::value(report->reason)}});
  else
    context.out(fmt::format(
        "first turn    {} tokens, first token after {:.3f} s\n"
        "second turn   {} tokens, {} of them found again, first token after "
        "{:.3f} s\n"
        "{:<4}          {:.1f} times cheaper{}\n",
        report->prompt_tokens, report->cold_s, report->second_tokens, report->cached_tokens,
        report->warm_s, ok ? "ok" : "fail", report->ratio(), ok ? "" : ": " + report->reason));
  return ok ? kDone : kFailed;
}

int doctor(Context& context) {
  auto daemon = context.daemon(Start::never);
  if (!daemon) return context.failed(daemon.error());
  const Places& places = daemon->options().places;
  Checks checks;
  check_places(checks, places);
  check_disk(checks, places);
  check_programs(checks);
  const std::optional<std::string> served = check_daemon(checks, context, *daemon, places);
  check_model_file(checks, places, served);
  check_restarters(checks, places);
  if (daemon->options().url.empty())
    for (HostNote& note : host_notes(host_files()))
      checks.push_back({note.name, "note", std::move(note.message), std::move(note.hint)});
  return show_checks(context, checks) ? kDone : kFailed;
}
}  // namespace

Action declare_doctor(Arguments& arguments) {
  auto wants_two_turn = std::make_shared<bool>(false);
  auto offline = std::make_shared<bool>(false);
  arguments.flag("--two-turn", *wants_two_turn,
                 "time a long prompt and then its next turn, on the running daemon");
  arguments.flag("--offline", *offline,
                 "read the whole database while the daemon is stopped, and change nothing");
  return [wants_two_turn, offline](Context& context) {
    if (*offline) return check_offline(context);
    return *wants_two_turn ? two_turn(context) : doctor(context);
  };
}

}  // namespace ponder::cli
