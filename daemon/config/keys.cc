#include "daemon/config/keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <set>
#include <string_view>

namespace ponder::daemon {
namespace {

using std::chrono::milliseconds;

/// `field` is a generic lambda: Config& -> T&, const Config& -> const T&.
template <class Field>
Key text(std::string name, std::vector<std::string> words, std::string help, Field field) {
  std::string limits;
  for (const std::string& word : words)
    limits += (limits.empty() ? "" : ", ") + word;
  return {std::move(name),
          Key::Type::text,
          limits,
          std::move(help),
          [field, words, limits](Config& config, const json::value& value) -> Result<void> {
            if (!value.is_string()) return fail(ErrorCode::bad_request, "must be a text");
            std::string given(value.as_string());
            if (!words.empty() && std::find(words.begin(), words.end(), given) == words.end())
              return fail(ErrorCode::bad_request, fmt::format("must be one of {}", limits));
            field(config) = std::move(given);
            return {};
          },
          [field](const Config& config) { return json::value(field(config)); }};
}

template <class Field>
Key whole(std::string name, std::int64_t min, std::int64_t max, std::string help, Field field) {
  return {std::move(name),
          Key::Type::whole,
          fmt::format("{} to {}", min, max),
          std::move(help),
          [field, min, max](Config& config, const json::value& value) -> Result<void> {
            if (!value.is_int64() || value.as_int64() < min || value.as_int64() > max)
              return fail(ErrorCode::bad_request,
                          fmt::format("must be a whole number from {} to {}", min, max));
            auto& target = field(config);
            target = static_cast<std::decay_t<decltype(target)>>(value.as_int64());
            return {};
          },
          [field](const Config& config) {
            return json::value(static_cast<std::int64_t>(field(config)));
          }};
}

Result<double> read_number(const json::value& value, double min, double max) {
  double d = 0;
  if (value.is_double()) {
    d = value.as_double();
  } else if (value.is_int64()) {
    d = static_cast<double>(value.as_int64());
  } else {
    return fail(ErrorCode::bad_request, "must be a number");
  }
  if (!(d >= min && d <= max))
    return fail(ErrorCode::bad_request, fmt::format("must be a number from {} to {}", min, max));
  return d;
}

template <class Field>
Key number(std::string name, double min, double max, std::string help, Field field) {
  return {std::move(name),
          Key::Type::number,
          fmt::format("{} to {}", min, max),
          std::move(help),
          [field, min, max](Config& config, const json::value& value) -> Result<void> {
            TRY(field(config), read_number(value, min, max));
            return {};
          },
          [field](const Config& config) { return json::value(field(config)); }};
}

/// Seconds in the file, milliseconds in the tree.
template <class Field>
Key duration(std::string name, double min, double max, std::string help, Field field) {
  return {std::move(name),
          Key::Type::number,
          fmt::format("{} to {}", min, max),
          std::move(help),
          [field, min, max](Config& config, const json::value& value) -> Result<void> {
            TRY(const double seconds, read_number(value, min, max));
            field(config) = milliseconds(static_cast<std::int64_t>(seconds * 1000));
            return {};
          },
          [field](const Config& config) {
            return json::value(static_cast<double>(field(config).count()) / 1000);
          }};
}

template <class Field>
Key list(std::string name, std::string limits, std::string help,
         std::function<Result<void>(const std::string&)> check, Field field) {
  return {std::move(name),
          Key::Type::list,
          std::move(limits),
          std::move(help),
          [field, check](Config& config, const json::value& value) -> Result<void> {
            if (!value.is_array()) return fail(ErrorCode::bad_request, "must be a list of texts");
            std::vector<std::string> entries;
            for (const json::value& entry : value.as_array()) {
              if (!entry.is_string())
                return fail(ErrorCode::bad_request, "must be a list of texts");
              entries.emplace_back(entry.as_string());
              if (entries.size() > 64 || entries.back().size() > 300)
                return fail(ErrorCode::bad_request, "holds at most 64 texts of at most 300 bytes");
              TRY_VOID(check(entries.back()));
            }
            field(config) = std::move(entries);
            return {};
          },
          [field](const Config& config) {
            json::array out;
            for (const std::string& entry : field(config))
              out.emplace_back(entry);
            return json::value(std::move(out));
          }};
}

Result<void> check_listen(const std::string& entry) {
  TRY(const ListenAddress address, parse_listen_address(entry));
  (void)address;
  return {};
}
Result<void> check_host(const std::string& entry) {
  if (entry.empty() || entry.find_first_of(" /@*") != entry.npos)
    return fail(ErrorCode::bad_request, fmt::format("\"{}\" is not a host or host:port", entry));
  return {};
}
Result<void> check_argument(const std::string& entry) {
  if (entry.find('\0') != entry.npos)
    return fail(ErrorCode::bad_request, "may not hold a zero byte");
  return {};
}
Result<void> check_origin(const std::string& entry) {
  if (entry.rfind("http://", 0) != 0 && entry.rfind("https://", 0) != 0)
    return fail(ErrorCode::bad_request,
                fmt::format("\"{}\" is not an origin such as http://localhost:3000", entry));
  return {};
}

#define PONDER_FIELD(path)    \
  [](auto& config) -> auto& { \
    return config.path;       \
  }

std::vector<Key> make_keys() {
  const std::vector<std::string> efforts{"none", "low", "medium", "xhigh"};
  return {
      text("model", {}, "The GGUF file to serve. Empty: the bundled model.",
           PONDER_FIELD(engine.model)),
      whole("ctx", 0, 1 << 20, "Window in tokens. 0: the model's own, at most 32768 on a CPU.",
            PONDER_FIELD(engine.ctx)),
      text("engine", {"cpu", "stub"}, "What computes: the CPU, or the scripted stub for tests.",
           PONDER_FIELD(engine.engine)),
      whole("threads", 0, 1024, "Threads of the engine. 0: the machine's cores.",
            PONDER_FIELD(engine.threads)),
      text("kv", {"f32", "f16", "q8_0", "r4"}, "Precision of the attention cache.",
           PONDER_FIELD(engine.kv)),
      whole(
          "device_state_mib", -1, 1 << 24,
          "Memory for saved states of conversations, in MiB. 0: none. -1: a share of what is free.",
          PONDER_FIELD(engine.device_state_mib)),
      whole("host_state_mib", -1, 1 << 24,
            "Host memory for copies of such states, in MiB. 0: none. -1: a share of what is free.",
            PONDER_FIELD(engine.host_state_mib)),
      whole("context_mib", -1, 1 << 24,
            "Memory of all that runs together, in MiB; what does not fit beside it waits. 0: no "
            "bound. -1: three quarters of what is free.",
            PONDER_FIELD(engine.context_mib)),
      text("speculation", {"adaptive", "off", "1", "2", "3", "4", "5"},
           "Tokens drafted a step: as many as pay, none, or a fixed number.",
           PONDER_FIELD(engine.speculation)),
      whole("worker_memory_mib", -1, 1 << 30,
            "Most memory of the engine's process, in MiB; weights mapped from their file do not "
            "count. 0: no limit. -1: what the model needs, and a margin.",
            PONDER_FIELD(engine.worker_memory_mib)),
      number("stall_s", 0.1, 86400, "A running generation without a token for so long is given up.",
             PONDER_FIELD(engine.stall_s)),
      text("effort_high", efforts, "What the effort \"high\" of other tools means.",
           PONDER_FIELD(engine.effort_high)),
      text("effort_max", efforts, "What the effort \"max\" means.",
           PONDER_FIELD(engine.effort_max)),
      text("effort_minimal", efforts, "What the effort \"minimal\" means.",
           PONDER_FIELD(engine.effort_minimal)),
      whole("effort_low_tokens", 1, 1 << 20,
            "Thinking budget of effort low, for a model whose template has no effort words.",
            PONDER_FIELD(engine.effort_low_tokens)),
      whole("effort_medium_tokens", 1, 1 << 20, "The same of effort medium.",
            PONDER_FIELD(engine.effort_medium_tokens)),
      whole("effort_xhigh_tokens", 1, 1 << 20, "The same of effort xhigh.",
            PONDER_FIELD(engine.effort_xhigh_tokens)),

      whole("port", 0, 65535, "TCP port on 127.0.0.1. 0: no TCP.", PONDER_FIELD(network.port)),
      list("listen", "ADDR:PORT", "Further addresses to listen on.", check_listen,
           PONDER_FIELD(network.listen)),
      list("allowed_hosts", "HOST or HOST:PORT",
           "Names that the Host header may hold besides loopback.", check_host,
           PONDER_FIELD(network.allowed_hosts)),
      list("allowed_origins", "http(s)://HOST:PORT", "Web pages that may send requests.",
           check_origin, PONDER_FIELD(network.allowed_origins)),

      whole("max_body_bytes", 1024, 1 << 30, "Largest request body.",
            PONDER_FIELD(http.max_body_bytes)),
      whole("max_bodies_bytes", 1024, std::int64_t{1} << 36,
            "Largest sum of bodies being read at once.", PONDER_FIELD(http.max_body_bytes_total)),
      whole("max_output_bytes", 4096, 1 << 30,
            "Unread bytes of a stream before its reader is dropped.",
            PONDER_FIELD(http.max_output_bytes)),
      whole("max_connections", 1, 100000,
            "Open connections; an eighth of them is kept for the Unix socket.",
            PONDER_FIELD(http.max_connections)),
      duration("header_timeout_s", 0.01, 3600, "Time for a request's header.",
               PONDER_FIELD(http.header_timeout)),
      duration("body_timeout_s", 0.01, 3600,
               "Time for the rest of a request's body, or for each further 16 KiB of it.",
               PONDER_FIELD(http.body_idle_timeout)),
      duration("write_timeout_s", 0.01, 3600, "Longest time a client may take no bytes.",
               PONDER_FIELD(http.write_idle_timeout)),
      duration("keep_alive_s", 0.01, 86400, "Longest pause between two requests of a connection.",
               PONDER_FIELD(http.keep_alive_timeout)),

      whole("max_queued", 1, 1000000, "Queued jobs; beyond it a submit is refused.",
            PONDER_FIELD(jobs.max_queued)),
      whole("max_turns_waiting", 0, 100000, "Chat turns that wait for a place.",
            PONDER_FIELD(jobs.max_turns_waiting)),
      whole("max_running_batch", 1, 64, "Batch jobs that run at once.",
            PONDER_FIELD(jobs.max_running_batch)),
      whole("max_running_interactive", 1, 64, "Asks and chat turns that run at once.",
            PONDER_FIELD(jobs.max_running_interactive)),
      number("ageing_s", 0, 1e9, "A batch job that has waited so long goes before newer asks.",
             PONDER_FIELD(jobs.ageing_s)),
      whole("max_attempts", 1, 100, "Worker deaths of one job before it is given up as poison.",
            PONDER_FIELD(jobs.max_attempts)),
      text("after_crash", {"resume", "restart"},
           "A job that was cut off goes on after its stored tokens, or begins again at its prompt.",
           PONDER_FIELD(after_crash)),
      list("on_done", "program and arguments",
           "Run when a job has ended, with its id and state as two more arguments.", check_argument,
           PONDER_FIELD(on_done)),
      whole("flush_ms", 10, 60000, "Streamed text is on disk after at most so long.",
            PONDER_FIELD(jobs.flush_ms)),
      whole("keep_read", 0, 1000000, "Results kept after they were read, newest first.",
            PONDER_FIELD(jobs.keep_read)),
      whole("keep_unread", 0, 1000000, "Unread results kept.", PONDER_FIELD(jobs.keep_unread)),
      whole("keep_unread_days", 0, 36500, "Days that unread results are kept.",
            PONDER_FIELD(jobs.keep_unread_days)),

      text("log_level", {"debug", "info", "warn", "error"}, "Least level that is logged.",
           PONDER_FIELD(log_level)),
      number(
          "watchdog_s", 0, 3600,
          "A daemon whose sockets are not served for so long ends, to be started anew; 0: never.",
          PONDER_FIELD(watchdog_s)),
  };
}

#undef PONDER_FIELD

/// Nothing that runs has been promised anything about these.
const std::set<std::string_view> kLive{"max_queued",
                                       "max_turns_waiting",
                                       "max_running_batch",
                                       "max_running_interactive",
                                       "ageing_s",
                                       "max_attempts",
                                       "keep_read",
                                       "keep_unread",
                                       "log_level",
                                       "keep_unread_days",
                                       "on_done"};

/// Levenshtein's distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}
}  // namespace

EffortAliases effort_aliases(const Config& config) {
  const auto word = [](const std::string& text) { return parse_effort(text)->word; };
  return {word(config.engine.effort_high), word(config.engine.effort_max),
          word(config.engine.effort_minimal)};
}

const std::vector<Key>& keys() {
  static const std::vector<Key> table = [] {
    std::vector<Key> made = make_keys();
    for (Key& key : made)
      key.live = kLive.count(key.name) != 0;
    return made;
  }();
  return table;
}

const Key* find_key(std::string_view name) {
  for (const Key& key : keys())
    if (key.name == name) return &key;
  return nullptr;
}

const Key& nearest_key(std::string_view name) {
  name = name.substr(0, 200);
  return *std::min_element(keys().begin(), keys().end(), [&](const Key& a, const Key& b) {
    return edit_distance(a.name, name) < edit_distance(b.name, name);
  });
}

std::string_view type_word(Key::Type type) {
  switch (type) {
    case Key::Type::text:
      return "text";
    case Key::Type::whole:
      return "whole number";
    case Key::Type::number:
      return "number";
    case Key::Type::list:
      return "list of texts";
  }
  return "";
}

std::string toml_text(const json::value& value) {
  if (value.is_double()) {
    std::string out = fmt::format("{}", value.as_double());
    return out.find_first_of(".e") == out.npos ? out + ".0" : out;
  }
  if (!value.is_array()) return to_json(value);
  std::string out = "[";
  for (const json::value& entry : value.as_array())
    out += (out.size() > 1 ? ", " : "") + to_json(entry);
  return out + "]";
}

std::string markdown_table() {
  const Config defaults;
  std::string out = "| key | type | default | limits | what it is |\n|---|---|---|---|---|\n";
  for (const Key& key : keys())
    out += fmt::format("| `{}` | {} | `{}` | {} | {} |\n", key.name, type_word(key.type),
                       toml_text(key.get(defaults)), key.limits, key.help);
  return out;
}

}  // namespace ponder::daemon
