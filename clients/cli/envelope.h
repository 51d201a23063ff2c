#pragma once
// Reading the daemon's JSON leniently (a field that is missing or of another type counts as null),
// and saying it in words for people. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"

namespace ponder::cli {

/// The string at `path` ("a.b" goes into objects), or "".
std::string text_at(const json::object& object, std::string_view path);
std::optional<double> number_at(const json::object& object, std::string_view path);
bool true_at(const json::object& object, std::string_view path);
/// The object at `path`, or an empty one.
json::object object_at(const json::object& object, std::string_view path);
/// The objects in the array at `path`.
std::vector<json::object> objects_at(const json::object& object, std::string_view path);
/// The strings in the array at `path`, joined with ", ".
std::string words_at(const json::object& object, std::string_view path);

/// "incomplete (deadline)", "queued #3", "running (thinking)".
std::string state_in_words(const json::object& envelope);
/// Milliseconds since the epoch of an RFC 3339 time in UTC, or nullopt.
std::optional<std::int64_t> read_time(std::string_view text);
/// "now", "40s", "12m", "3h", "5d".
std::string duration_in_words(double seconds);
/// "1.5 GiB".
std::string bytes_in_words(double bytes);

/// Jobs as a table with a head, columns padded; `now_ms` is the wall clock. Control characters and
/// newlines in labels are escaped.
std::string job_table(const std::vector<json::object>& jobs, std::int64_t now_ms);
/// One screen about one job.
std::string job_screen(const json::object& envelope, std::int64_t now_ms);

}  // namespace ponder::cli
