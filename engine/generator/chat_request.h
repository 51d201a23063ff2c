#pragma once
// A conversation as the doors hand it on, after parsing and checking. Plain values.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"

namespace ponder {

struct ToolCall {
  std::string id;
  std::string name;
  json::object arguments;
};

struct Message {
  std::string role;  ///< system, developer, user, assistant or tool
  std::string content;
  std::optional<std::string> reasoning_content = {};  ///< assistant only
  std::vector<ToolCall> tool_calls = {};              ///< assistant only
  std::string tool_call_id = {};                      ///< tool only
};

/// How much the model thinks: one of the four words, or a thinking budget in tokens.
struct Effort {
  enum class Word { none, low, medium, xhigh } word = Word::medium;
  std::optional<std::int64_t> budget = {};  ///< set: an integer effort; then word is medium
  std::string given = {};  ///< the caller's word where that is an alias; no part of the value

  friend bool operator==(const Effort& a, const Effort& b) {
    return a.word == b.word && a.budget == b.budget;
  }
};
/// Not with none, nor with a budget of 0.
bool thinks(const Effort& effort);
/// "none" "low" "medium" "xhigh", or the number.
std::string to_string(const Effort& effort);
/// The four words, the aliases and whole numbers 0..1048576 (as text or a JSON number). Anything
/// else is bad_request and lists the words.
/// What the words of other tools mean here.
struct EffortAliases {
  Effort::Word high = Effort::Word::medium;
  Effort::Word max = Effort::Word::xhigh;
  Effort::Word minimal = Effort::Word::low;
};
/// For the whole process; called once, before the first parse_effort() of any other thread.
void set_effort_aliases(const EffortAliases& aliases);
Result<Effort> parse_effort(const json::value& value);
Result<Effort> parse_effort(std::string_view text);
inline Result<Effort> parse_effort(const char* text) {  // a literal fits both of the above
  return parse_effort(std::string_view(text));
}

struct ChatRequest {
  std::vector<Message> messages;
  json::array tools = {};  ///< as the client sent them, {"type":"function","function":{...}}
  std::optional<Effort> effort = {};     ///< unset: the door's default
  json::object template_arguments = {};  ///< other chat_template_kwargs, for the template only
};

/// Sampling fields; unset ones take the model family's defaults (DESIGN "Engine").
struct SamplingParams {
  std::optional<double> temperature = {};
  std::optional<double> top_p = {};
  std::optional<int> top_k = {};
  std::optional<double> min_p = {};
  std::optional<double> presence_penalty = {};
  std::optional<double> frequency_penalty = {};
  std::optional<double> repetition_penalty = {};
  std::optional<std::uint64_t> seed = {};
  std::vector<std::string> stop = {};
  /// Added to the logits of these ids before anything else; -100 and 100 forbid and force.
  std::vector<std::pair<std::int32_t, float>> logit_bias = {};
  /// Log-probabilities of each token and of this many alternatives (0..20); unset: none.
  std::optional<int> top_logprobs = {};
};

/// Token budgets as the caller gave them.
struct Budgets {
  std::optional<std::int64_t> max_reasoning_tokens = {};
  std::optional<std::int64_t> max_answer_tokens = {};
  std::optional<std::int64_t> max_tokens = {};  ///< thinking and answer together (chat APIs)
  /// The first two are defaults, not wishes: they are lowered to what fits instead of refused.
  bool defaulted = false;
};

/// The fields that chat completions and jobs share, read from one JSON body: messages, tools,
/// reasoning_effort (wins over chat_template_kwargs.reasoning_effort / enable_thinking),
/// chat_template_kwargs. Content may be a string, null, or an array of text parts; a part that is
/// not text is bad_request and names it. Unknown fields are ignored. Bounds: 4,096 messages,
/// 512 tools.
Result<ChatRequest> parse_chat_request(const json::object& body);
Result<SamplingParams> parse_sampling(const json::object& body);
/// max_tokens / max_completion_tokens, max_reasoning_tokens, max_answer_tokens.
Result<Budgets> parse_budgets(const json::object& body);

/// To and from JSON, for the worker protocol and the database: decode(encode(x)) == x.
json::object encode(const ChatRequest& request);
json::object encode(const SamplingParams& params);
json::object encode(const Budgets& budgets);
Result<ChatRequest> decode_chat_request(const json::object& object);
Result<SamplingParams> decode_sampling(const json::object& object);
Result<Budgets> decode_budgets(const json::object& object);

}  // namespace ponder
