#include "engine/generator/chat_request.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace ponder {
namespace {

constexpr std::int64_t kMaxEffortBudget = 1 << 20;
constexpr std::size_t kMaxMessages = 4096;
constexpr std::size_t kMaxTools = 512;
constexpr std::size_t kMaxToolCalls = 512;
constexpr std::size_t kMaxToolName = 256;  // a longer one is never read out of the model's text
constexpr std::size_t kMaxTemplateArguments = 64;
constexpr std::size_t kMaxStops = 16;
constexpr std::size_t kMaxStopBytes = 1024;
constexpr std::size_t kMaxBiases = 1024;
constexpr std::int64_t kMaxTopLogprobs = 20;
constexpr std::int64_t kMaxBudget = std::int64_t{1} << 40;
// Arguments are read from a string inside a body that is itself bounded; nested no deeper than
// this they still fit when the request is wrapped for the worker.
constexpr JsonLimits kArgumentLimits{8u << 20, 48};

constexpr std::array<std::pair<std::string_view, Effort::Word>, 4> kEffortWords{{
    {"none", Effort::Word::none},
    {"low", Effort::Word::low},
    {"medium", Effort::Word::medium},
    {"xhigh", Effort::Word::xhigh},
}};

EffortAliases g_aliases;  // set before the threads that read it
constexpr std::array<std::pair<std::string_view, Effort::Word EffortAliases::*>, 3> kEffortAliases{{
    {"high", &EffortAliases::high},
    {"max", &EffortAliases::max},
    {"minimal", &EffortAliases::minimal},
}};

tl::unexpected<Error> bad(std::string param, std::string message) {
  Error error{ErrorCode::bad_request, std::move(message)};
  error.param = std::move(param);
  return fail(std::move(error));
}

tl::unexpected<Error> unknown_effort(std::string_view given) {
  return bad("reasoning_effort",
             fmt::format("unknown effort \"{}\"; use none, low, medium, xhigh (also high, max, "
                         "minimal) or a whole number of thinking tokens from 0 to {}",
                         given.substr(0, 40), kMaxEffortBudget));
}

Result<Effort> effort_from_number(std::int64_t n) {
  if (n < 0 || n > kMaxEffortBudget) return unknown_effort(std::to_string(n));
  return Effort{Effort::Word::medium, n, {}};
}

bool known_role(std::string_view role) {
  return role == "system" || role == "developer" || role == "user" || role == "assistant" ||
         role == "tool";
}

/// A string, null, nothing, or an array of text parts, as one text.
Result<std::string> content_text(const json::value* content, const std::string& where) {
  if (!content || content->is_null()) return std::string();
  if (content->is_string()) return std::string(content->as_string());
  if (!content->is_array())
    return bad(where, fmt::format("{} must be a string, null or an array of text parts", where));
  std::string text;
  std::size_t i = 0;
  for (const json::value& part : content->as_array()) {
    const std::string name = fmt::format("{}[{}]", where, i++);
    const json::object* object = part.if_object();
    const json::value* type = object ? object->if_contains("type") : nullptr;
    if (!type || !type->is_string())
      return bad(name, fmt::format("{} must be an object with a \"type\"", name));
    if (type->as_string() != "text")
      return bad(name, fmt::format("{} is a part of type \"{}\"; this model reads text only", name,
                                   std::string_view(type->as_string()).substr(0, 40)));
    const json::value* value = object->if_contains("text");
    if (!value || !value->is_string()) return bad(name, fmt::format("{} has no \"text\"", name));
    text += std::string_view(value->as_string());
  }
  return text;
}

Result<ToolCall> parse_tool_call(const json::value& value, const std::string& where) {
  const json::object* outer = value.if_object();
  if (!outer) return bad(where, fmt::format("{} must be an object", where));
  const json::value* inner = outer->if_contains("function");
  const json::object* function = inner ? inner->if_object() : nullptr;
  const json::value* name = function ? function->if_contains("name") : nullptr;
  if (!name || !name->is_string() || name->as_string().empty())
    return bad(where, fmt::format("{} has no function.name", where));
  ToolCall call;
  call.name = std::string(name->as_string());
  if (const json::value* id = outer->if_contains("id"); id && id->is_string())
    call.id = std::string(id->as_string());
  const json::value* arguments = function->if_contains("arguments");
  if (!arguments || arguments->is_null()) return call;
  if (const json::object* object = arguments->if_object()) {
    call.arguments = *object;
    return call;
  }
  if (!arguments->is_string())
    return bad(where,
               fmt::format("{}.function.arguments must be a JSON string or an object", where));
  const std::string_view text = arguments->as_string();
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return call;
  Result<json::object> object = parse_json_object(text, kArgumentLimits);
  if (!object)
    return bad(where, fmt::format("{}.function.arguments is not a JSON object in a string: {}",
                                  where, object.error().message));
  call.arguments = std::move(*object);
  return call;
}

Result<Message> parse_message(const json::value& value, const std::string& where) {
  const json::object* object = value.if_object();
  if (!object) return bad(where, fmt::format("{} must be an object", where));
  Message message;
  const json::value* role = object->if_contains("role");
  if (!role || !role->is_string() || !known_role(role->as_string()))
    return bad(where + ".role",
               fmt::format("{}.role must be system, developer, user, assistant or tool", where));
  message.role = std::string(role->as_string());
  TRY(message.content, content_text(object->if_contains("content"), where + ".content"));
  if (message.role == "assistant") {
    const json::value* reasoning = object->if_contains("reasoning_content");
    if (reasoning && reasoning->is_string())
      message.reasoning_content = std::string(reasoning->as_string());
    if (const json::value* calls = object->if_contains("tool_calls"); calls && !calls->is_null()) {
      if (!calls->is_array() || calls->as_array().size() > kMaxToolCalls)
        return bad(
            where + ".tool_calls",
            fmt::format("{}.tool_calls must be an array of at most {}", where, kMaxToolCalls));
      for (const json::value& call : calls->as_array()) {
        TRY(ToolCall parsed, parse_tool_call(call, fmt::format("{}.tool_calls[{}]", where,
                                                               message.tool_calls.size())));
        message.tool_calls.push_back(std::move(parsed));
      }
    }
  }
  if (message.role == "tool") {
    TRY(message.tool_call_id, string_field(*object, "tool_call_id"));
  }
  return message;
}

Result<json::array> parse_tools(const json::object& body) {
  const json::value* tools = body.if_contains("tools");
  if (!tools || tools->is_null()) return json::array();
  if (!tools->is_array() || tools->as_array().size() > kMaxTools)
    return bad("tools", fmt::format("\"tools\" must be an array of at most {} tools", kMaxTools));
  std::size_t i = 0;
  for (const json::value& tool : tools->as_array()) {
    const std::string where = fmt::format("tools[{}]", i++);
    const json::object* object = tool.if_object();
    const json::value* inner = object ? object->if_contains("function") : nullptr;
    const json::object* function = inner ? inner->if_object() : nullptr;
    const json::value* name = function ? function->if_contains("name") : nullptr;
    if (!name || !name->is_string() || name->as_string().empty())
      return bad(where,
                 fmt::format("{} must be {{\"type\": \"function\", \"function\": {{\"name\": "
                             "...}}}}",
                             where));
    if (name->as_string().size() > kMaxToolName)
      return bad(where,
                 fmt::format("{}.function.name may have at most {} bytes", where, kMaxToolName));
  }
  return tools->as_array();
}

/// Takes what means effort out of the template's arguments. enable_thinking false is effort none,
/// whatever word stands beside it.
Result<std::optional<Effort>> effort_from_template(json::object& arguments) {
  std::optional<Effort> effort;
  if (const json::value* word = arguments.if_contains("reasoning_effort");
      word && !word->is_null()) {
    TRY(effort, parse_effort(*word));
  }
  TRY(const bool enabled, bool_field(arguments, "enable_thinking", true));
  if (!enabled) effort = Effort{Effort::Word::none, {}, {}};
  for (const char* key :
       {"reasoning_effort", "enable_thinking", "messages", "tools", "add_generation_prompt"})
    arguments.erase(key);
  return effort;
}

Result<std::optional<double>> optional_number(const json::object& body, std::string_view key,
                                              double min, double max) {
  if (!has_field(body, key)) return std::optional<double>();
  TRY(const double value, number_field(body, key, 0, min, max));
  return std::optional<double>(value);
}

Result<std::optional<std::int64_t>> optional_int(const json::object& body, std::string_view key,
                                                 std::int64_t min, std::int64_t max) {
  if (!has_field(body, key)) return std::optional<std::int64_t>();
  TRY(const std::int64_t value, int_field(body, key, 0, min, max));
  return std::optional<std::int64_t>(value);
}

Result<std::vector<std::string>> parse_stop(const json::object& body) {
  std::vector<std::string> stops;
  const json::value* stop = body.if_contains("stop");
  if (!stop || stop->is_null()) return stops;
  const auto refuse = [] {
    return bad("stop", fmt::format("\"stop\" must be a string or an array of at most {} strings of "
                                   "at most {} bytes",
                                   kMaxStops, kMaxStopBytes));
  };
  const auto take = [&](const json::value& value) {
    if (!value.is_string() || value.as_string().size() > kMaxStopBytes) return false;
    if (!value.as_string().empty()) stops.emplace_back(value.as_string());
    return true;
  };
  if (!stop->is_array()) {
    if (!take(*stop)) return refuse();
    return stops;
  }
  if (stop->as_array().size() > kMaxStops) return refuse();
  for (const json::value& one : stop->as_array())
    if (!take(one)) return refuse();
  return stops;
}

/// {"17": -100, ...}
Result<std::vector<std::pair<std::int32_t, float>>> parse_logit_bias(const json::object& body) {
  std::vector<std::pair<std::int32_t, float>> biases;
  const json::value* value = body.if_contains("logit_bias");
  if (!value || value->is_null()) return biases;
  const auto refuse = [](std::string what) {
    return bad("logit_bias",
               "\"logit_bias\" must be an object of token ids and numbers from -100 "
               "to 100: " +
                   std::move(what));
  };
  const json::object* object = value->if_object();
  if (!object) return refuse("it is no object");
  if (object->size() > kMaxBiases) return refuse(fmt::format("at most {} ids", kMaxBiases));
  for (const auto& [key, bias] : *object) {
    const std::string_view text = key;
    std::int32_t id = -1;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (problem != std::errc() || end != text.data() + text.size() || id < 0)
      return refuse(fmt::format("\"{}\" is no token id", text.substr(0, 40)));
    const double number = bias.is_number() ? bias.to_number<double>() : 1000;
    if (!(number >= -100 && number <= 100))
      return refuse(fmt::format("the bias of {} is {}", id, to_json(bias).substr(0, 40)));
    biases.emplace_back(id, static_cast<float>(number));
  }
  return biases;
}

/// "logprobs": true asks for them, "top_logprobs": n for n alternatives as well.
Result<std::optional<int>> parse_logprobs(const json::object& body) {
  // The older completions API has a number there; that door reads it itself.
  const json::value* asked = body.if_contains("logprobs");
  if (asked && asked->is_number()) return std::optional<int>();
  TRY(const bool wanted, bool_field(body, "logprobs", false));
  TRY(const std::optional<std::int64_t> top,
      optional_int(body, "top_logprobs", 0, kMaxTopLogprobs));
  if (!wanted && top.value_or(0) > 0)
    return bad("top_logprobs", "\"top_logprobs\" needs \"logprobs\": true");
  if (!wanted) return std::optional<int>();
  return std::optional<int>(static_cast<int>(top.value_or(0)));
}

}  // namespace

bool thinks(const Effort& effort) {
  return effort.budget ? *effort.budget > 0 : effort.word != Effort::Word::none;
}

std::string to_string(const Effort& effort) {
  if (effort.budget) return std::to_string(*effort.budget);
  switch (effort.word) {
    case Effort::Word::none:
      return "none";
    case Effort::Word::low:
      return "low";
    case Effort::Word::medium:
      return "medium";
    case Effort::Word::xhigh:
      return "xhigh";
  }
  return "medium";
}

void set_effort_aliases(const EffortAliases& aliases) {
  g_aliases = aliases;
}

Result<Effort> parse_effort(std::string_view text) {
  for (const auto& [word, effort] : kEffortWords)
    if (word == text) return Effort{effort, {}, {}};
  for (const auto& [word, alias] : kEffortAliases)
    if (word == text) return Effort{g_aliases.*alias, {}, std::string(word)};
  std::int64_t n = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (text.empty() || problem != std::errc() || end != text.data() + text.size())
    return unknown_effort(text);
  return effort_from_number(n);
}

Result<Effort> parse_effort(const json::value& value) {
  if (value.is_string()) return parse_effort(std::string_view(value.as_string()));
  if (value.is_int64()) return effort_from_number(value.as_int64());
  if (value.is_double() && value.as_double() == std::floor(value.as_double()) &&
      std::abs(value.as_double()) <= 2.0 * kMaxEffortBudget)
    return effort_from_number(static_cast<std::int64_t>(value.as_double()));
  return unknown_effort(to_json(value));
}

Result<ChatRequest> parse_chat_request(const json::object& body) {
  const json::value* messages = body.if_contains("messages");
  if (!messages || !messages->is_array() || messages->as_array().empty() ||
      messages->as_array().size() > kMaxMessages)
    return bad("messages",
               fmt::format("\"messages\" must be an array of 1 to {} messages", kMaxMessages));
  ChatRequest request;
  for (const json::value& message : messages->as_array()) {
    TRY(Message parsed,
        parse_message(message, fmt::format("messages[{}]", request.messages.size())));
    request.messages.push_back(std::move(parsed));
  }
  TRY(request.tools, parse_tools(body));
  if (const json::value* arguments = body.if_contains("chat_template_kwargs");
      arguments && !arguments->is_null()) {
    if (!arguments->is_object())
      return bad("chat_template_kwargs", "\"chat_template_kwargs\" must be an object");
    if (arguments->as_object().size() > kMaxTemplateArguments)
      return bad("chat_template_kwargs", fmt::format("\"chat_template_kwargs\" may hold at most {}",
                                                     kMaxTemplateArguments));
    request.template_arguments = arguments->as_object();
    TRY(request.effort, effort_from_template(request.template_arguments));
  }
  if (const json::value* effort = body.if_contains("reasoning_effort");
      effort && !effort->is_null()) {
    TRY(request.effort, parse_effort(*effort));
  }
  return request;
}

Result<SamplingParams> parse_sampling(const json::object& body) {
  SamplingParams params;
  TRY(params.temperature, optional_number(body, "temperature", 0, 100));
  TRY(params.top_p, optional_number(body, "top_p", 0, 1));
  TRY(const std::optional<std::int64_t> top_k, optional_int(body, "top_k", -1, 1 << 30));
  if (top_k) params.top_k = static_cast<int>(std::max<std::int64_t>(0, *top_k));  // -1: all, as 0
  TRY(params.min_p, optional_number(body, "min_p", 0, 1));
  TRY(params.presence_penalty, optional_number(body, "presence_penalty", -2, 2));
  TRY(params.frequency_penalty, optional_number(body, "frequency_penalty", -2, 2));
  TRY(params.repetition_penalty, optional_number(body, "repetition_penalty", 0.01, 100));
  if (const json::value* seed = body.if_contains("seed"); seed && !seed->is_null()) {
    if (seed->is_uint64()) {
      params.seed = seed->as_uint64();
    } else {
      TRY(const std::int64_t n, int_field(body, "seed", 0, -1, INT64_MAX));
      if (n >= 0) params.seed = static_cast<std::uint64_t>(n);  // -1: a random one
    }
  }
  TRY(params.stop, parse_stop(body));
  TRY(params.logit_bias, parse_logit_bias(body));
  TRY(params.top_logprobs, parse_logprobs(body));
  return params;
}

Result<Budgets> parse_budgets(const json::object& body) {
  Budgets budgets;
  TRY(budgets.max_reasoning_tokens, optional_int(body, "max_reasoning_tokens", 0, kMaxBudget));
  TRY(budgets.max_answer_tokens, optional_int(body, "max_answer_tokens", 1, kMaxBudget));
  TRY(budgets.max_tokens, optional_int(body, "max_tokens", 1, kMaxBudget));
  TRY(const std::optional<std::int64_t> completion,
      optional_int(body, "max_completion_tokens", 1, kMaxBudget));
  if (completion) budgets.max_tokens = completion;  // the newer name of the same field
  return budgets;
}

}  // namespace ponder
