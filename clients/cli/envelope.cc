#include "clients/cli/envelope.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "clients/cli/terminal.h"
#include "engine/base/utf8.h"

namespace ponder::cli {
namespace {

const json::value* find(const json::object& object, std::string_view path) {
  const json::object* at = &object;
  for (;;) {
    const std::size_t dot = path.find('.');
    const std::string_view key = path.substr(0, dot);
    const json::value* value = at->if_contains(json::string_view(key.data(), key.size()));
    if (!value || dot == std::string_view::npos) return value;
    if (!value->is_object()) return nullptr;
    at = &value->as_object();
    path.remove_prefix(dot + 1);
  }
}

/// One line of at most `width` code points.
std::string one_line(std::string_view text, std::int64_t width) {
  std::string line(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::replace(line.begin(), line.end(), '\t', ' ');
  line = escape_controls(line);
  if (count_code_points(line) > width) line = line.substr(0, byte_offset_of(line, width - 1)) + "…";
  return line;
}

std::string age_of(const json::object& envelope, std::int64_t now_ms) {
  const auto created = read_time(text_at(envelope, "created_at"));
  if (!created) return "-";
  const double seconds = static_cast<double>(now_ms - *created) / 1000.0;
  return seconds < 1 ? "now" : duration_in_words(seconds);
}

std::string tokens_in_words(const json::object& envelope) {
  // What nobody knows, as after a crash of the daemon, is no 0.
  const auto count = [&](std::string_view path) {
    const auto number = number_at(envelope, path);
    return number ? fmt::format("{:.0f}", *number) : std::string("-");
  };
  return fmt::format("{} prompt ({} cached), {} reasoning, {} answer", count("tokens.prompt"),
                     count("tokens.cached"), count("tokens.reasoning"), count("tokens.answer"));
}
}  // namespace

std::string text_at(const json::object& object, std::string_view path) {
  const json::value* v = find(object, path);
  if (!v || !v->is_string()) return {};
  return std::string(v->as_string().data(), v->as_string().size());
}

std::optional<double> number_at(const json::object& object, std::string_view path) {
  const json::value* v = find(object, path);
  if (v && v->is_int64()) return static_cast<double>(v->as_int64());
  if (v && v->is_uint64()) return static_cast<double>(v->as_uint64());
  if (v && v->is_double()) return v->as_double();
  return std::nullopt;
}

bool true_at(const json::object& object, std::string_view path) {
  const json::value* v = find(object, path);
  return v && v->is_bool() && v->as_bool();
}

json::object object_at(const json::object& object, std::string_view path) {
  const json::value* v = find(object, path);
  return v && v->is_object() ? v->as_object() : json::object{};
}

std::vector<json::object> objects_at(const json::object& object, std::string_view path) {
  std::vector<json::object> out;
  const json::value* v = find(object, path);
  if (!v || !v->is_array()) return out;
  for (const json::value& each : v->as_array())
    if (each.is_object()) out.push_back(each.as_object());
  return out;
}

std::string words_at(const json::object& object, std::string_view path) {
  std::string out;
  const json::value* v = find(object, path);
  if (!v || !v->is_array()) return out;
  for (const json::value& each : v->as_array()) {
    if (!each.is_string()) continue;
    if (!out.empty()) out += ", ";
    out.append(each.as_string().data(), each.as_string().size());
  }
  return out;
}

std::string state_in_words(const json::object& envelope) {
  std::string words = text_at(envelope, "state");
  const std::string reason = text_at(envelope, "reason");
  const std::string phase = text_at(envelope, "phase");
  if (!reason.empty())
    words += fmt::format(" ({})", reason);
  else if (words == "running" && !phase.empty())
    words += fmt::format(" ({})", phase);
  if (const auto position = number_at(envelope, "position"); position && words == "queued")
    words += fmt::format(" #{:.0f}", *position);
  return words;
}

std::optional<std::int64_t> read_time(std::string_view text) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0;
  double second = 0;
  const std::string copy(text);
  if (std::sscanf(copy.c_str(), "%4d-%2d-%2dT%2d:%2d:%lf", &year, &month, &day, &hour, &minute,
                  &second) != 6 ||
      month < 1 || month > 12)
    return std::nullopt;
  // Days from the civil date, years starting in March (Howard Hinnant, "chrono-compatible
  // low-level date algorithms").
  const int y = month <= 2 ? year - 1 : year;
  const std::int64_t era = (y >= 0 ? y : y - 399) / 400;
  const std::int64_t year_of_era = y - era * 400;
  const std::int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const std::int64_t day_of_era =
      year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  const std::int64_t days = era * 146'097 + day_of_era - 719'468;
  return ((days * 24 + hour) * 60 + minute) * 60'000 + static_cast<std::int64_t>(second * 1000);
}

std::string duration_in_words(double seconds) {
  if (seconds < 1) return fmt::format("{:.1f}s", std::max(seconds, 0.0));
  if (seconds < 120) return fmt::format("{:.0f}s", seconds);
  if (seconds < 2 * 3600) return fmt::format("{:.0f}m", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{:.0f}h", seconds / 3600);
  return fmt::format("{:.0f}d", seconds / 86'400);
}

std::string bytes_in_words(double bytes) {
  constexpr std::array<const char*, 5> units{"bytes", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < units.size())
    bytes /= 1024, ++unit;
  return unit == 0 ? fmt::format("{:.0f} bytes", bytes)
                   : fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string job_table(const std::vector<json::object>& jobs, std::int64_t now_ms) {
  using Row = std::array<std::string, 6>;
  std::vector<Row> rows{{"JOB", "STATE", "AGE", "RAN", "EFFORT", "LABEL"}};
  for (const json::object& job : jobs) {
    const auto ran = number_at(job, "run_s");
    rows.push_back({text_at(job, "job_id"), state_in_words(job), age_of(job, now_ms),
                    ran && *ran > 0 ? duration_in_words(*ran) : "-", text_at(job, "effort"),
                    text_at(job, "label")});
  }
  std::array<std::int64_t, 6> width{};
  for (Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = one_line(row[i], 60);
      width[i] = std::max(width[i], count_code_points(row[i]));
    }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      line.append(static_cast<std::size_t>(width[i] - count_code_points(row[i]) + 2), ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string job_screen(const json::object& job, std::int64_t now_ms) {
  std::string out;
  const auto row = [&out](std::string_view name, const std::string& value) {
    if (!value.empty()) out += fmt::format("{:<9} {}\n", name, one_line(value, 400));
  };
  const auto seconds = [&job](std::string_view path) {
    const auto s = number_at(job, path);
    return s ? fmt::format("{:.1f} s", *s) : std::string();
  };
  row("job", text_at(job, "job_id"));
  row("state", state_in_words(job));
  row("waits for", text_at(job, "waiting_for"));
  row("label", text_at(job, "label"));
  row("effort", text_at(job, "effort"));
  row("age", age_of(job, now_ms));
  row("queued", seconds("queue_s"));
  row("ran", seconds("run_s"));
  if (const auto eta = number_at(job, "eta_s.p50"))
    row("expected", fmt::format("{} to go, {} at worst", duration_in_words(*eta),
                                duration_in_words(number_at(job, "eta_s.p90").value_or(*eta))));
  row("tokens", tokens_in_words(job));
  if (const auto speed = number_at(job, "tokens_per_s"))
    row("speed", fmt::format("{:.1f} tokens/s", *speed));
  row("model", text_at(job, "model"));
  row("degraded", words_at(job, "degraded"));
  row("error", text_at(job, "error.message"));
  row("hint", text_at(job, "error.hint"));
  row("note", text_at(job, "note"));
  row("next", text_at(job, "next.shell"));
  return out;
}

}  // namespace ponder::cli
