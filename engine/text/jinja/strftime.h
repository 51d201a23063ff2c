#pragma once
// A time as text, with C's conversions in the C locale, in UTC. Never asks the host's clock.
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/text/jinja/meter.h"

namespace ponder::text::jinja {

/// `seconds` since 1970, up to the year 9999. %a %A %b %B %d %e %f %H %I %j %m %M %p %S %y %Y %z %Z
/// %F %T %%, and the numeric ones with '-' for no padding.
Outcome<std::string> format_time(std::string_view format, std::int64_t seconds);

}  // namespace ponder::text::jinja
