#include "engine/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace ponder {
namespace {
std::shared_ptr<spdlog::logger>& logger() {
  static std::shared_ptr<spdlog::logger> instance = std::make_shared<spdlog::logger>(
      "ponder", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  return instance;
}
constexpr const char* kPattern = "%Y-%m-%dT%H:%M:%S.%eZ %n[%P] %l: %v";

void configure(const std::shared_ptr<spdlog::logger>& to, spdlog::level::level_enum level) {
  to->set_pattern(kPattern, spdlog::pattern_time_type::utc);
  to->set_level(level);
  to->flush_on(spdlog::level::info);
}
spdlog::level::level_enum level_of(LogLevel l) {
  switch (l) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warn: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
    case LogLevel::off: return spdlog::level::off;
  }
  return spdlog::level::info;
}
}  // namespace

void log_open(std::string_view process, LogLevel least) {
  logger() = std::make_shared<spdlog::logger>(std::string(process),
                                              std::make_shared<spdlog::sinks::stderr_sink_mt>());
  configure(logger(), level_of(least));
}

void log_set_level(LogLevel least) {
  logger()->set_level(level_of(least));
}

void log_write(LogLevel level, std::string_view message) {
  logger()->log(level_of(level), spdlog::string_view_t(message.data(), message.size()));
}
}  // namespace ponder
