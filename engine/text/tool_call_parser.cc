#include "engine/text/tool_call_parser.h"

#include <algorithm>

#include "engine/text/tool_arguments.h"

namespace ponder::text {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kParameterEnd = "</parameter>";
constexpr std::size_t kMaxName = 256;

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}
bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}
std::string_view without_leading_space(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text;
}
std::string_view without_trailing_space(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1);  // npos + 1 is 0
}

/// Reads `TAGname>` at the front of `rest` and moves past it.
std::optional<std::string_view> take_name(std::string_view& rest, std::string_view tag) {
  if (!starts_with(rest, tag)) return std::nullopt;
  const std::string_view window = rest.substr(tag.size(), kMaxName + 1);
  const std::size_t end = window.find_first_of(">\n");
  if (end == std::string_view::npos || window[end] != '>') return std::nullopt;
  const std::string_view name =
      without_trailing_space(without_leading_space(window.substr(0, end)));
  if (name.empty()) return std::nullopt;
  rest.remove_prefix(tag.size() + end + 1);
  return name;
}

/// Reads a value up to the </parameter> that ends it and moves past that.
std::optional<std::string_view> take_value(std::string_view& rest) {
  for (std::size_t from = 0;;) {
    const std::size_t close = rest.find(kParameterEnd, from);
    if (close == std::string_view::npos) return std::nullopt;
    from = close + kParameterEnd.size();
    const std::string_view after = without_leading_space(rest.substr(from));
    if (!after.empty() && !starts_with(after, kParameter) && !starts_with(after, kFunctionEnd)) {
      from = rest.size() - after.size();  // the space was looked at once; that is enough
      continue;
    }
    std::string_view value = rest.substr(0, close);
    if (starts_with(value, "\n")) value.remove_prefix(1);
    if (ends_with(value, "\n")) value.remove_suffix(1);
    rest = after;
    return value;
  }
}

std::optional<ToolCall> parse_xml(std::string_view rest, const json::array& tools) {
  const auto name = take_name(rest, kFunction);
  if (!name) return std::nullopt;
  ToolCall call;
  call.name = *name;
  const json::object* parameters = find_parameters(tools, *name);
  for (rest = without_leading_space(rest); starts_with(rest, kParameter);) {
    const auto key = take_name(rest, kParameter);
    if (!key) return std::nullopt;
    const auto value = take_value(rest);
    if (!value) return std::nullopt;
    call.arguments[*key] = typed_argument(parameters, *key, *value);
  }
  if (starts_with(rest, kFunctionEnd))
    rest = without_leading_space(rest.substr(kFunctionEnd.size()));
  if (!rest.empty()) return std::nullopt;
  return call;
}

std::optional<ToolCall> parse_json_form(std::string_view body) {
  auto object = parse_json_object(body);
  if (!object) return std::nullopt;
  const json::value* name = object->if_contains("name");
  if (!name || !name->is_string() || name->get_string().empty()) return std::nullopt;
  ToolCall call;
  call.name = std::string(std::string_view(name->get_string()));
  json::value* arguments = object->if_contains("arguments");
  if (!arguments) arguments = object->if_contains("parameters");
  if (arguments && arguments->is_string()) {
    auto inner = parse_json_object(arguments->get_string());
    if (!inner) return std::nullopt;
    call.arguments = std::move(*inner);
  } else if (arguments && arguments->is_object()) {
    call.arguments = std::move(arguments->get_object());
  } else if (arguments && !arguments->is_null()) {
    return std::nullopt;
  }
  return call;
}

}  // namespace

bool CallBody::may_end_here() {
  start_ = std::min(text_.find_first_not_of(kSpace, start_), text_.size());
  const std::string_view inner = std::string_view(text_).substr(start_);
  if (!starts_with(inner, kFunction)) return true;  // JSON, or nothing that could go on
  const std::string_view end = without_trailing_space(inner);
  if (ends_with(end, kFunctionEnd) || ends_with(end, kParameterEnd)) return true;
  if (!has_parameter_) {
    has_parameter_ = text_.find(kParameter, searched_) != std::string::npos;
    searched_ = text_.size() - std::min(text_.size(), kParameter.size());
  }
  return !has_parameter_;
}

std::optional<ToolCall> parse_tool_call(std::string_view body, const json::array& tools) {
  const std::string_view inner = without_leading_space(without_trailing_space(body));
  return starts_with(inner, "{") ? parse_json_form(inner) : parse_xml(inner, tools);
}

}  // namespace ponder::text
