#include "engine/text/jinja/parser.h"

#include <fmt/format.h>

#include <initializer_list>

#include "engine/base/utf8.h"
#include "engine/text/jinja/expression_parser.h"
#include "engine/text/jinja/lexer.h"

namespace ponder::text::jinja {
namespace {

using EndTags = std::initializer_list<std::string_view>;

class StatementParser {
 public:
  StatementParser(std::vector<Token> tokens, Program& program)
      : in_(std::move(tokens), program), program_(program) {}

  Outcome<void> run() {
    TRY(program_.body, block({}));
    return {};
  }

 private:
  /// Statements up to one of the end tags, of which the name is then the next token; all of the
  /// template without any.
  Outcome<Block> block(EndTags ends) {
    const ExpressionParser::Deeper deeper(in_);
    TRY_VOID(deeper.check());
    Block body;
    while (true) {
      const Token& token = in_.peek();
      switch (token.kind) {
        case TokenKind::data:
          body.push_back(std::make_unique<Data>(token.text, token.line));
          in_.next();
          break;
        case TokenKind::variable_begin: {
          const int line = in_.next().line;
          TRY(ExprPointer expr, in_.tuple(true, false));
          TRY_VOID(in_.expect(TokenKind::variable_end, "}}"));
          body.push_back(std::make_unique<Print>(std::move(expr), line));
          break;
        }
        case TokenKind::block_begin: {
          in_.next();
          for (const std::string_view end : ends)
            if (in_.peek().is_name(end)) return body;
          TRY(StatementPointer made, statement());
          TRY_VOID(in_.expect(TokenKind::block_end, "%}"));
          if (made) body.push_back(std::move(made));
          break;
        }
        default:
          if (ends.size() == 0) return body;
          return in_.unexpected(fmt::format("{{% {} %}}", *(ends.end() - 1)));
      }
    }
  }

  /// The rest of an opening tag, its body, and the name of the tag that ends it.
  Outcome<std::string> body_until(EndTags ends, Block& body) {
    in_.skip_symbol(":");  // Jinja2 lets Python's colon stand there
    TRY_VOID(in_.expect(TokenKind::block_end, "%}"));
    TRY(body, block(ends));
    return in_.next().text;
  }

  Outcome<StatementPointer> statement() {
    const int line = in_.peek().line;
    TRY(const std::string tag, in_.expect_name());
    if (tag == "if") return branch(line);
    if (tag == "for") return loop(line);
    if (tag == "set") return assign(line);
    if (tag == "macro") return macro(line);
    if (tag == "with") return with(line);
    if (tag == "filter") return filter_block(line);
    if (tag == "generation") return generation(line);
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) return fault(fmt::format("{} outside of a loop", tag), line);
      return std::make_unique<Jump>(
          tag == "break" ? StatementKind::break_loop : StatementKind::continue_loop, line);
    }
    if (tag == "print") {
      auto values = std::make_unique<Concat>(line);
      do {
        TRY(ExprPointer value, in_.expression());
        values->operands.push_back(std::move(value));
      } while (in_.skip_symbol(","));
      return std::make_unique<Print>(std::move(values), line);
    }
    return fault(fmt::format("the tag '{}' is not known", tag.substr(0, 60)), line);
  }

  Outcome<StatementPointer> branch(int line) {
    auto made = std::make_unique<Branch>(line);
    std::string tag = "elif";
    while (tag == "elif") {
      auto& [test, body] = made->arms.emplace_back();
      TRY(test, in_.tuple(false, false));
      TRY(tag, body_until({"elif", "else", "endif"}, body));
    }
    if (tag == "else") TRY_VOID(body_until({"endif"}, made->otherwise));
    return made;
  }

  Outcome<StatementPointer> loop(int line) {
    auto made = std::make_unique<Loop>(line);
    TRY(made->targets, in_.targets(false));
    if (!in_.skip_name("in")) return in_.unexpected("'in'");
    TRY(made->items, in_.tuple(false, false));
    if (in_.skip_name("if")) {
      TRY(made->filter, in_.expression());
    }
    if (in_.peek().is_name("recursive")) return fault("recursive loops are not known", line);
    const int loop_symbol = in_.symbols().intern("loop");
    const std::size_t reads = in_.reads_of(loop_symbol);
    ++loops_, ++scopes_;
    TRY(const std::string tag, body_until({"else", "endfor"}, made->body));
    --loops_, --scopes_;
    made->uses_loop = in_.reads_of(loop_symbol) != reads;
    if (tag == "else") {
      ++scopes_;
      TRY_VOID(body_until({"endfor"}, made->otherwise));
      --scopes_;
    }
    return made;
  }

  Outcome<StatementPointer> assign(int line) {
    TRY(Targets targets, in_.targets(true));
    if (in_.skip_symbol("=")) {
      auto made = std::make_unique<Assign>(line);
      made->targets = std::move(targets);
      TRY(made->value, in_.tuple(true, false));
      return made;
    }
    if (targets.unpacks) return in_.unexpected("'='");
    auto made = std::make_unique<AssignBlock>(line);
    made->target = targets.names.front();
    TRY(made->filters, in_.filters(false));
    TRY_VOID(scoped_body("endset", made->body));
    return made;
  }

  /// A body in which names that are set stay inside.
  Outcome<void> scoped_body(std::string_view end, Block& body) {
    ++scopes_;
    TRY_VOID(body_until({end}, body));
    --scopes_;
    return {};
  }

  Outcome<StatementPointer> macro(int line) {
    // A macro sees the names around it. At the top those live as long as the render; elsewhere a
    // macro that left its block through a namespace would outlive them.
    if (scopes_ > 0) return fault("a macro must stand at the top of the template", line);
    auto made = std::make_unique<MacroNode>(line);
    TRY(const std::string name, in_.expect_name());
    made->symbol = in_.symbols().intern(name);
    TRY_VOID(in_.expect_symbol("("));
    while (!in_.peek().is_symbol(")")) {
      if (!made->parameters.empty()) TRY_VOID(in_.expect_symbol(","));
      TRY(const std::string parameter, in_.expect_name());
      made->parameters.push_back(in_.symbols().intern(parameter));
      auto& fallback = made->defaults.emplace_back();
      if (in_.skip_symbol("=")) {
        TRY(fallback, in_.expression());
      } else if (made->defaults.size() > 1 && made->defaults[made->defaults.size() - 2]) {
        return fault("a parameter without a default follows one with a default", line);
      }
    }
    in_.next();
    const int outer_loops = std::exchange(loops_, 0);
    TRY_VOID(scoped_body("endmacro", made->body));
    loops_ = outer_loops;
    return made;
  }

  Outcome<StatementPointer> with(int line) {
    auto made = std::make_unique<ScopeBlock>(line);
    while (in_.peek().kind == TokenKind::name) {
      TRY(const std::string name, in_.expect_name());
      TRY_VOID(in_.expect_symbol("="));
      auto& [symbol, value] = made->names.emplace_back();
      symbol = in_.symbols().intern(name);
      TRY(value, in_.expression());
      if (!in_.skip_symbol(",")) break;
    }
    TRY_VOID(scoped_body("endwith", made->body));
    return made;
  }

  /// Marks what the model wrote, for training; nothing to a prompt.
  Outcome<StatementPointer> generation(int line) {
    auto made = std::make_unique<ScopeBlock>(line);
    TRY_VOID(scoped_body("endgeneration", made->body));
    return made;
  }

  Outcome<StatementPointer> filter_block(int line) {
    auto made = std::make_unique<FilterBlock>(line);
    TRY(made->filters, in_.filters(true));
    TRY_VOID(scoped_body("endfilter", made->body));
    return made;
  }

  ExpressionParser in_;
  Program& program_;
  int loops_ = 0;   // around the statement, inside the macro
  int scopes_ = 0;  // blocks whose names end with them
};

}  // namespace

Outcome<std::unique_ptr<Program>> parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes)
    return fault(fmt::format("the template has {} bytes; at most {} are accepted", source.size(),
                             kMaxSourceBytes));
  if (!is_valid_utf8(source)) return fault("the template is not valid UTF-8");
  TRY(std::vector<Token> tokens, tokenize(source));
  auto program = std::make_unique<Program>();
  TRY_VOID(StatementParser(std::move(tokens), *program).run());
  return program;
}

}  // namespace ponder::text::jinja
