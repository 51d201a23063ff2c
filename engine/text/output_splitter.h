#pragma once
// What the model writes, token by token, split into thinking, answer and tool calls (the Qwen XML
// form, arguments typed by the tool's JSON schema). One state machine per output stream; the same
// events however the text falls into tokens (neighbouring SplitTexts of one channel are one text).
// Not thread-safe.
//
// Thinking loses the white space around it, the answer the line breaks between </think> and its
// first line; a second <think> at the start is dropped; <tool_call> closes thinking that is still
// open. White space before a tag, and what may be the beginning of one, is held back. Control
// tokens other than these tags have no text.
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "engine/base/json.h"
#include "engine/generator/generator.h"
#include "engine/text/tokenizer.h"

namespace ponder::text {

struct SplitText {
  Channel channel;
  std::string text;
};
using SplitEvent = std::variant<SplitText, ToolCall>;

struct SplitterOptions {
  bool starts_thinking = true;  ///< the prompt ended in <think>\n
  json::array tools = {};       ///< for the types of arguments
  bool reads_calls = true;      ///< false: <tool_call> is text like any other
  /// Goes into the ids of calls; give each turn of a conversation another one, so that no two
  /// calls of it share an id.
  std::uint64_t call_id_seed = 0;
};

enum class Phase { thinking, answering, tool_call };

class OutputSplitter {
 public:
  OutputSplitter(const Tokenizer& tokenizer, SplitterOptions options);
  ~OutputSplitter();

  /// One token of output; the events it completes are appended to `out`. A token is counted to
  /// the phase it was read in.
  void push(TokenId id, std::vector<SplitEvent>& out);
  /// The output is over: text held back comes out; an unfinished call comes out as answer text.
  void finish(std::vector<SplitEvent>& out);

  Phase phase() const;
  bool thinking_closed() const;
  bool call_unfinished() const;  ///< ended inside <tool_call>: not a whole answer
  std::int64_t reasoning_tokens() const;
  std::int64_t answer_tokens() const;  ///< tool calls included

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ponder::text
