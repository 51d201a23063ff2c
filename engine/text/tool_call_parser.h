#pragma once
// What stands between <tool_call> and </tool_call>, parsed. Two forms: Qwen's XML
//   <function=NAME> <parameter=KEY> VALUE </parameter> ... </function>
// and the JSON of older models, {"name": NAME, "arguments": {...}}. Pure; linear in the text.
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/json.h"
#include "engine/generator/chat_request.h"

namespace ponder::text {

/// The body of a call as it comes, with what is known of it, so that no text is read twice.
class CallBody {
 public:
  void append(std::string_view text) { text_ += text; }
  void clear() { *this = CallBody(); }
  const std::string& text() const { return text_; }

  /// Whether a </tool_call> here ends the call: not while it would lie inside a value, that is,
  /// after a <parameter=...> whose </parameter> has not just come.
  bool may_end_here();

 private:
  std::string text_;
  std::size_t start_ = 0;     // of the first character that is no space
  std::size_t searched_ = 0;  // <parameter= does not begin before this
  bool has_parameter_ = false;
};

/// The call, without its id; nothing if the body is in neither form. A value loses the one line
/// break that the form puts at each of its ends; `</parameter>` inside a value counts only where
/// the form goes on after it.
std::optional<ToolCall> parse_tool_call(std::string_view body, const json::array& tools);

}  // namespace ponder::text
