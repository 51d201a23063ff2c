#include "engine/run/prompt.h"

#include <fmt/core.h>

#include <ctime>

#include "engine/generator/budget.h"
#include "engine/text/prompt_encoding.h"

namespace ponder::run {
namespace {

std::int64_t budget_of(Effort::Word word, const EffortBudgets& budgets) {
  switch (word) {
    case Effort::Word::none:
      return 0;
    case Effort::Word::low:
      return budgets.low;
    case Effort::Word::medium:
      return budgets.medium;
    case Effort::Word::xhigh:
      return budgets.xhigh;
  }
  return budgets.medium;
}

json::object tool_call(const ToolCall& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

json::object message(const Message& m, bool knows_developer) {
  const bool as_system = m.role == "developer" && !knows_developer;
  json::object o{{"role", as_system ? "system" : m.role}, {"content", m.content}};
  if (m.reasoning_content) o["reasoning_content"] = *m.reasoning_content;
  if (!m.tool_calls.empty()) {
    json::array calls;
    for (const ToolCall& call : m.tool_calls)
      calls.push_back(tool_call(call));
    o["tool_calls"] = std::move(calls);
  }
  if (m.role == "tool") o["tool_call_id"] = m.tool_call_id;
  return o;
}

/// Several system messages at the head become one: the templates of this family take only one,
/// at the start.
json::array messages(const std::vector<Message>& all, bool knows_developer) {
  json::array out;
  std::size_t i = 0;
  const auto leads = [&](const Message& m) { return m.role == "system" || m.role == "developer"; };
  if (all.size() > 1 && leads(all[0]) && leads(all[1])) {
    Message head = all[0];
    for (i = 1; i < all.size() && leads(all[i]); ++i)
      head.content += "\n\n" + all[i].content;
    out.push_back(message(head, knows_developer));
  }
  for (; i < all.size(); ++i)
    out.push_back(message(all[i], knows_developer));
  return out;
}

/// What a request may not set by its template arguments: the conversation comes from the request
/// itself, and the special tokens, which a template may write as such, from the model file.
constexpr const char* kReserved[] = {"messages",         "tools",     "add_generation_prompt",
                                     "enable_thinking",  "bos_token", "eos_token",
                                     "reasoning_effort", "pad_token", "unk_token"};

json::object template_variables(const Vocabulary& vocabulary, const ChatRequest& chat) {
  const Effort effort = chat.effort.value_or(Effort{});
  json::object variables = chat.template_arguments;
  for (const char* name : kReserved)
    variables.erase(name);
  for (const auto& [name, text] : vocabulary.special_texts)
    variables[name] = text;
  if (vocabulary.chat_template->reads("strftime_now") && !variables.contains("now"))
    variables["now"] = static_cast<std::int64_t>(std::time(nullptr));
  variables["messages"] = messages(chat.messages, vocabulary.template_knows_developer);
  if (!chat.tools.empty()) variables["tools"] = chat.tools;
  variables["add_generation_prompt"] = true;
  variables["enable_thinking"] = thinks(effort);
  if (thinks(effort) && vocabulary.chat_template->reads("reasoning_effort"))
    variables["reasoning_effort"] = to_string(Effort{effort.word, {}});
  return variables;
}

bool ends_in_open_think(std::string_view prompt) {
  const std::size_t last = prompt.find_last_not_of(" \t\r\n");
  return last != std::string_view::npos && prompt.substr(0, last + 1).ends_with("<think>");
}

/// A rendered prompt may also stop in the middle of a thought, to go on with it.
bool ends_inside_think(const text::Tokenizer& tokenizer, const RenderedPrompt& prompt) {
  const text::TokenId open = tokenizer.special_id("<think>");
  const text::TokenId close = tokenizer.special_id("</think>");
  for (auto id = prompt.ids.rbegin(); open >= 0 && id != prompt.ids.rend(); ++id) {
    if (*id == open) return true;
    if (*id == close || tokenizer.is_end(*id)) return false;
  }
  return ends_in_open_think(prompt.text);
}

}  // namespace

Result<RenderedPrompt> render_prompt(const Vocabulary& vocabulary,
                                     const GenerationRequest& request) {
  Grammars grammars;
  return render_prompt(vocabulary, request, grammars);
}

Result<RenderedPrompt> render_prompt(const Vocabulary& vocabulary, const GenerationRequest& request,
                                     Grammars& grammars, std::size_t most) {
  RenderedPrompt prompt;
  if (!request.schema.empty()) {
    TRY(prompt.grammar, grammars.of(request.schema));
  }
  if (request.raw_prompt) {
    prompt.text = *request.raw_prompt;
    prompt.ids = vocabulary.tokenizer->encode(prompt.text, true, most);
    prompt.starts_thinking = ends_inside_think(*vocabulary.tokenizer, prompt);
  } else {
    if (vocabulary.template_fault) return fail(*vocabulary.template_fault);
    if (!vocabulary.chat_template)
      return fail(ErrorCode::bad_request, "this model file has no chat template",
                  "send a rendered prompt to /v1/completions, or use an instruction-tuned model");
    TRY(std::vector<text::PromptPiece> pieces,
        vocabulary.chat_template->render(template_variables(vocabulary, request.chat)));
    prompt.text = text::join(pieces);
    prompt.starts_thinking = ends_in_open_think(prompt.text);
    if (prompt.starts_thinking && !thinks(request.chat.effort.value_or(Effort{}))) {
      // A template that always opens the thinking: closed as others of the family do it.
      pieces.push_back({prompt.text.ends_with('\n') ? "\n</think>\n\n" : "\n\n</think>\n\n"});
      prompt.text += pieces.back().text;
      prompt.starts_thinking = false;
    }
    text::EncodedPrompt encoded = text::encode_with_borders(*vocabulary.tokenizer, pieces, most);
    prompt.ids = std::move(encoded.ids);
    prompt.caller_text = std::move(encoded.caller_text);
    prompt.caller_ends = std::move(encoded.caller_ends);
  }
  if (prompt.ids.empty()) return fail(ErrorCode::bad_request, "the prompt is empty");
  return prompt;
}

Result<PromptPlan> plan_prompt(const Vocabulary& vocabulary, const RenderedPrompt& prompt,
                               const GenerationRequest& request, std::int64_t n_ctx,
                               const EffortBudgets& effort_budgets) {
  const Effort effort = request.chat.effort.value_or(Effort{});
  PromptPlan plan;
  plan.effort_used = to_string(effort);
  plan.effort_by = "template";
  bool thinking = thinks(effort);
  std::optional<std::int64_t> effort_budget = effort.budget;
  if (request.raw_prompt) {
    thinking = prompt.starts_thinking;  // the one who rendered it has chosen
    if (!thinking) plan.effort_used = "none";
  } else if (thinking && !effort.budget && !vocabulary.chat_template->reads("reasoning_effort")) {
    effort_budget = budget_of(effort.word, effort_budgets);
  }
  if (effort_budget && thinking) plan.effort_by = "budget";
  plan.prompt_tokens = static_cast<std::int64_t>(prompt.ids.size());
  plan.n_ctx = n_ctx;
  TRY(const BudgetPlan budgets,
      plan_budgets(plan.prompt_tokens, n_ctx, request.budgets, thinking, effort_budget));
  plan.reasoning_budget = budgets.reasoning;
  plan.answer_budget = budgets.answer;
  plan.total_budget = budgets.total;
  return plan;
}

}  // namespace ponder::run
