#pragma once
// A request to the ids that the model reads, and what the window leaves for its output. Pure.
#include <string>
#include <vector>

#include "engine/generator/generator.h"
#include "engine/run/grammars.h"
#include "engine/run/load.h"

namespace ponder::run {

/// Thinking budgets in tokens where the template has no word for effort.
struct EffortBudgets {
  std::int64_t low = 2048;
  std::int64_t medium = 8192;
  std::int64_t xhigh = 131072;
};

struct RenderedPrompt {
  std::string text;
  std::vector<text::TokenId> ids;
  bool starts_thinking = false;  ///< it ends in an open <think>, or inside a thought
  /// So many ids come before each piece of the caller's own text (text::EncodedPrompt).
  std::vector<std::size_t> caller_text = {};
  std::vector<std::size_t> caller_ends = {};  ///< and so many lie before the end of each
  std::shared_ptr<const text::JsonGrammar> grammar = {};  ///< of the schema; null: there is none
};

/// bad_request when the template refuses the conversation or the model has none, and for a schema
/// that cannot bound an answer. Template arguments of the request never replace what the request or
/// the model file says. At effort none the prompt never ends in an open <think>. The schema is
/// compiled by `grammars`. Of a prompt with more than `most` ids only those of its beginning are
/// made, some more than `most`: counting megabytes that can never fit would keep others waiting for
/// a second.
Result<RenderedPrompt> render_prompt(const Vocabulary& vocabulary, const GenerationRequest& request,
                                     Grammars& grammars, std::size_t most = SIZE_MAX);
/// The same for one request alone.
Result<RenderedPrompt> render_prompt(const Vocabulary& vocabulary,
                                     const GenerationRequest& request);

/// The exact plan; context_length_exceeded with its numbers.
Result<PromptPlan> plan_prompt(const Vocabulary& vocabulary, const RenderedPrompt& prompt,
                               const GenerationRequest& request, std::int64_t n_ctx,
                               const EffortBudgets& effort_budgets);

}  // namespace ponder::run
