#pragma once
// Small readers that the resources share. Pure.
#include <string>
#include <string_view>

#include "daemon/api/api.h"

namespace ponder::daemon {

/// A decimal query parameter; absent gives `fallback`, anything else than a number in [min, max]
/// is bad_request with the parameter's name.
Result<std::int64_t> int_parameter(const RequestHead& head, std::string_view name,
                                   std::int64_t fallback, std::int64_t min, std::int64_t max);
/// The same for fractions.
Result<double> number_parameter(const RequestHead& head, std::string_view name, double fallback,
                                double min, double max);
/// Absent gives an empty text. bad_request over `max_bytes` or if it is not UTF-8.
Result<std::string> text_parameter(const RequestHead& head, std::string_view name,
                                   std::size_t max_bytes);

/// The text, or null where there is none.
json::value text_or_null(std::string_view text);

}  // namespace ponder::daemon
