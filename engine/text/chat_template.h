#pragma once
// The Jinja chat template of a GGUF file: messages and tools to prompt text. An interpreter of
// the Jinja that such files use, without any access to the host. Const after compile() and
// thread-safe. Limits per render: 1e6 steps, depth 64, 16 MiB of output; range() and string
// repetition are bounded too.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"

namespace ponder::text {

/// A piece of a rendered prompt. What the template itself wrote may hold special tokens; what
/// came from the caller's values never may.
struct PromptPiece {
  std::string text;
  bool from_template = true;
};

class ChatTemplate {
 public:
  /// Parses; bad_request with the line on a construct it does not know.
  static Result<std::shared_ptr<const ChatTemplate>> compile(std::string_view source);
  virtual ~ChatTemplate() = default;

  /// Renders with these variables (messages, tools, add_generation_prompt, enable_thinking,
  /// reasoning_effort, ...). raise_exception and every limit are bad_request.
  /// The concatenation of the pieces is what Jinja2 prints for the same input.
  virtual Result<std::vector<PromptPiece>> render(const json::object& variables) const = 0;

  /// Whether the template reads this variable: effort words are the template's business only if
  /// it reads `reasoning_effort`.
  virtual bool reads(std::string_view variable) const = 0;
};

/// The text of all pieces.
std::string join(const std::vector<PromptPiece>& pieces);

}  // namespace ponder::text
