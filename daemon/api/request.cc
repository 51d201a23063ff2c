#include "daemon/api/request.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

#include "engine/base/utf8.h"

namespace ponder::daemon {
namespace {
tl::unexpected<Error> bad_parameter(std::string_view name, std::string message) {
  Error error{ErrorCode::bad_request, std::move(message)};
  error.param = std::string(name);
  return fail(std::move(error));
}
}  // namespace

Result<std::int64_t> int_parameter(const RequestHead& head, std::string_view name,
                                   std::int64_t fallback, std::int64_t min, std::int64_t max) {
  const std::string* text = head.parameter(name);
  if (!text) return fallback;
  std::int64_t n = 0;
  const char* end = text->data() + text->size();
  const auto [stopped, problem] = std::from_chars(text->data(), end, n);
  if (text->empty() || problem != std::errc() || stopped != end || n < min || n > max)
    return bad_parameter(
        name, fmt::format("\"{}\" must be a whole number from {} to {}", name, min, max));
  return n;
}

Result<double> number_parameter(const RequestHead& head, std::string_view name, double fallback,
                                double min, double max) {
  const std::string* text = head.parameter(name);
  if (!text) return fallback;
  double d = 0;
  const char* end = text->data() + text->size();
  const auto [stopped, problem] = std::from_chars(text->data(), end, d, std::chars_format::fixed);
  if (text->empty() || problem != std::errc() || stopped != end || !std::isfinite(d) || d < min ||
      d > max)
    return bad_parameter(name,
                         fmt::format("\"{}\" must be a number from {} to {}", name, min, max));
  return d;
}

Result<std::string> text_parameter(const RequestHead& head, std::string_view name,
                                   std::size_t max_bytes) {
  const std::string* text = head.parameter(name);
  if (!text) return std::string();
  if (text->size() > max_bytes || !is_valid_utf8(*text) || text->find('\0') != text->npos)
    return bad_parameter(
        name, fmt::format("\"{}\" must be UTF-8 text of at most {} bytes", name, max_bytes));
  return *text;
}

json::value text_or_null(std::string_view text) {
  if (text.empty()) return nullptr;
  return json::value(text);
}

}  // namespace ponder::daemon
