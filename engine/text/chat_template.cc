#include "engine/text/chat_template.h"

#include <fmt/format.h>

#include "engine/text/jinja/interpreter.h"
#include "engine/text/jinja/parser.h"

namespace ponder::text {
namespace {

tl::unexpected<Error> refused(const jinja::FaultInfo& info, std::string_view doing) {
  std::string where = info.line > 0 ? fmt::format(" (line {})", info.line) : "";
  return fail(ErrorCode::bad_request,
              fmt::format("{} the chat template: {}{}", doing, info.message, where));
}

class JinjaTemplate final : public ChatTemplate {
 public:
  explicit JinjaTemplate(std::unique_ptr<jinja::Program> program) : program_(std::move(program)) {}

  Result<std::vector<PromptPiece>> render(const json::object& variables) const override {
    auto text = jinja::interpret(*program_, variables);
    if (!text) return refused(*text.error(), "rendering");
    std::vector<PromptPiece> pieces;
    text->for_each_stretch([&](std::string_view stretch, jinja::Origin origin) {
      pieces.push_back({std::string(stretch), origin == jinja::Origin::template_source});
    });
    return pieces;
  }

  bool reads(std::string_view variable) const override {
    return program_->reads.count(program_->symbols.find(variable)) > 0;
  }

 private:
  std::unique_ptr<jinja::Program> program_;
};

}  // namespace

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::compile(std::string_view source) {
  auto program = jinja::parse(source);
  if (!program) return refused(*program.error(), "reading");
  return std::make_shared<const JinjaTemplate>(std::move(*program));
}

std::string join(const std::vector<PromptPiece>& pieces) {
  std::string text;
  for (const PromptPiece& piece : pieces)
    text += piece.text;
  return text;
}

}  // namespace ponder::text
