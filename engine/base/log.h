#pragma once
// One log for a process, on stderr. Thread-safe. Never log prompts, answers or keys.
// Compose with fmt: log_info(fmt::format("...", x)).
#include <string_view>

namespace ponder {
enum class LogLevel { debug, info, warn, error, off };
/// Names the process in each line and sets the least level. Call once, before threads.
void log_open(std::string_view process, LogLevel least = LogLevel::info);
/// Another least level, at any time.
void log_set_level(LogLevel least);
void log_write(LogLevel level, std::string_view message);
inline void log_debug(std::string_view m) { log_write(LogLevel::debug, m); }
inline void log_info(std::string_view m) { log_write(LogLevel::info, m); }
inline void log_warn(std::string_view m) { log_write(LogLevel::warn, m); }
inline void log_error(std::string_view m) { log_write(LogLevel::error, m); }
}  // namespace ponder
