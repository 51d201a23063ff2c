#include "engine/text/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/text/jinja/callable.h"
#include "engine/text/jinja/tests.h"

namespace ponder::text::jinja {
namespace {

constexpr int kMaxDepth = 64;

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::end:
      return "the end of the template";
    case TokenKind::block_end:
      return "%}";
    case TokenKind::variable_end:
      return "}}";
    case TokenKind::variable_begin:
      return "{{";
    case TokenKind::block_begin:
      return "{%";
    case TokenKind::data:
      return "text";
    case TokenKind::string:
      return "a string";
    case TokenKind::integer:
    case TokenKind::floating:
      return "a number";
    case TokenKind::name:
    case TokenKind::symbol:
      break;
  }
  return fmt::format("'{}'", token.text.substr(0, 60));
}

/// Wraps `base` when there is anything to do to it.
ExprPointer with_steps(ExprPointer base, std::vector<Step> steps) {
  if (steps.empty()) return base;
  const int line = base->line;
  auto postfix = std::make_unique<Postfix>(std::move(base), line);
  postfix->steps = std::move(steps);
  return postfix;
}

Value text_constant(const std::string& text) {
  return Value(TextPointer(std::make_shared<MarkedText>(text, Origin::template_source)));
}

}  // namespace

Outcome<void> ExpressionParser::Deeper::check() const {
  if (parser_.depth_ > kMaxDepth)
    return fault(fmt::format("the template is nested deeper than {} levels", kMaxDepth),
                 parser_.peek().line);
  return {};
}

const Token& ExpressionParser::peek(std::size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}
const Token& ExpressionParser::next() {
  const Token& token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}
bool ExpressionParser::skip_symbol(std::string_view symbol) {
  if (!peek().is_symbol(symbol)) return false;
  next();
  return true;
}
bool ExpressionParser::skip_name(std::string_view name) {
  if (!peek().is_name(name)) return false;
  next();
  return true;
}
tl::unexpected<Fault> ExpressionParser::unexpected(std::string_view wanted) const {
  return fault(fmt::format("expected {}, got {}", wanted, describe(peek())), peek().line);
}
Outcome<void> ExpressionParser::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) return unexpected(fmt::format("'{}'", symbol));
  return {};
}
Outcome<void> ExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (peek().kind != kind) return unexpected(what);
  next();
  return {};
}
Outcome<std::string> ExpressionParser::expect_name() {
  if (peek().kind != TokenKind::name) return unexpected("a name");
  return next().text;
}
std::size_t ExpressionParser::reads_of(int symbol) const {
  const auto i = static_cast<std::size_t>(symbol);
  return i < read_counts_.size() ? read_counts_[i] : 0;
}

Outcome<ExprPointer> ExpressionParser::expression(bool conditional) {
  const Deeper deeper(*this);
  TRY_VOID(deeper.check());
  TRY(ExprPointer expr, or_test());
  for (int chained = 0; conditional && skip_name("if"); ++chained) {
    if (chained == kMaxDepth) return unexpected("fewer conditions in one expression");
    auto choice = std::make_unique<Conditional>(expr->line);
    choice->then = std::move(expr);
    TRY(choice->test, or_test());
    if (skip_name("else")) {
      TRY(choice->otherwise, expression());
    }
    expr = std::move(choice);
  }
  return expr;
}

bool ExpressionParser::at_tuple_end() const {
  const Token& token = peek();
  return token.kind == TokenKind::variable_end || token.kind == TokenKind::block_end ||
         token.is_symbol(")") || token.is_name("in");
}

Outcome<ExprPointer> ExpressionParser::tuple(bool conditional, bool may_be_empty) {
  const int line = peek().line;
  auto items = std::make_unique<Sequence>(List::Kind::tuple, line);
  bool is_tuple = false;
  while (!at_tuple_end()) {
    TRY(ExprPointer item, expression(conditional));
    items->items.push_back(std::move(item));
    if (!skip_symbol(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items->items.empty()) return std::move(items->items.front());
    if (!may_be_empty) return unexpected("an expression");
  }
  return items;
}

Outcome<Targets> ExpressionParser::targets(bool allow_members) {
  Targets found;
  const bool bracket = skip_symbol("(");
  while (true) {
    const int line = peek().line;
    TRY(const std::string name, expect_name());
    for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"})
      if (name == reserved) return fault(fmt::format("cannot assign to '{}'", name), line);
    Target target;
    target.symbol = symbols().intern(name);
    if (allow_members && skip_symbol(".")) {
      TRY(const std::string member, expect_name());
      target.member = symbols().intern(member);
    }
    found.names.push_back(target);
    if (!skip_symbol(",")) break;
    found.unpacks = true;
    if (peek().kind != TokenKind::name || peek().is_name("in")) break;
  }
  if (bracket) TRY_VOID(expect_symbol(")"));
  return found;
}

Outcome<ExprPointer> ExpressionParser::or_test() {
  TRY(ExprPointer first, and_test());
  if (!peek().is_name("or")) return first;
  auto logic = std::make_unique<Logic>(false, first->line);
  logic->operands.push_back(std::move(first));
  while (skip_name("or")) {
    TRY(ExprPointer operand, and_test());
    logic->operands.push_back(std::move(operand));
  }
  return logic;
}

Outcome<ExprPointer> ExpressionParser::and_test() {
  TRY(ExprPointer first, not_test());
  if (!peek().is_name("and")) return first;
  auto logic = std::make_unique<Logic>(true, first->line);
  logic->operands.push_back(std::move(first));
  while (skip_name("and")) {
    TRY(ExprPointer operand, not_test());
    logic->operands.push_back(std::move(operand));
  }
  return logic;
}

Outcome<ExprPointer> ExpressionParser::not_test() {
  if (!peek().is_name("not")) return comparison();
  const Deeper deeper(*this);
  TRY_VOID(deeper.check());
  const int line = next().line;
  TRY(ExprPointer operand, not_test());
  return std::make_unique<Negation>(std::move(operand), line);
}

Outcome<ExprPointer> ExpressionParser::comparison() {
  TRY(ExprPointer first, sum());
  std::unique_ptr<Chain> chain;
  static constexpr std::pair<std::string_view, Operator> kOperators[] = {
      {"==", Operator::eq}, {"!=", Operator::ne}, {"<", Operator::lt},
      {"<=", Operator::le}, {">", Operator::gt},  {">=", Operator::ge}};
  while (true) {
    bool found = false;
    Operator op = Operator::eq;
    for (const auto& [symbol, each] : kOperators)
      if (!found && skip_symbol(symbol)) found = true, op = each;
    if (!found && skip_name("in")) found = true, op = Operator::in;
    if (!found && peek().is_name("not") && peek(1).is_name("in")) {
      next(), next();
      found = true, op = Operator::not_in;
    }
    if (!found) break;
    TRY(ExprPointer operand, sum());
    if (!chain) chain = std::make_unique<Chain>(ExprKind::compare, std::move(first), operand->line);
    chain->rest.emplace_back(op, std::move(operand));
  }
  if (chain) return chain;
  return first;
}

Outcome<ExprPointer> ExpressionParser::chain(
    ExprKind kind, Level operand,
    std::initializer_list<std::pair<std::string_view, Operator>> ops) {
  TRY(ExprPointer first, (this->*operand)());
  std::unique_ptr<Chain> made;
  while (true) {
    bool found = false;
    for (const auto& [symbol, op] : ops) {
      if (found || !skip_symbol(symbol)) continue;
      found = true;
      TRY(ExprPointer right, (this->*operand)());
      if (!made) made = std::make_unique<Chain>(kind, std::move(first), right->line);
      made->rest.emplace_back(op, std::move(right));
    }
    if (!found) break;
  }
  if (made) return made;
  return first;
}

Outcome<ExprPointer> ExpressionParser::sum() {
  return chain(ExprKind::arithmetic, &ExpressionParser::concatenation,
               {{"+", Operator::add}, {"-", Operator::subtract}});
}
Outcome<ExprPointer> ExpressionParser::product() {
  return chain(ExprKind::arithmetic, &ExpressionParser::power,
               {{"*", Operator::multiply},
                {"/", Operator::divide},
                {"//", Operator::floor_divide},
                {"%", Operator::modulo}});
}
Outcome<ExprPointer> ExpressionParser::power() {
  TRY(ExprPointer first, unary(true));
  std::unique_ptr<Chain> made;
  while (skip_symbol("**")) {
    TRY(ExprPointer right, unary(true));
    if (!made) made = std::make_unique<Chain>(ExprKind::arithmetic, std::move(first), right->line);
    made->rest.emplace_back(Operator::power, std::move(right));
  }
  if (made) return made;
  return first;
}

Outcome<ExprPointer> ExpressionParser::concatenation() {
  TRY(ExprPointer first, product());
  if (!peek().is_symbol("~")) return first;
  auto concat = std::make_unique<Concat>(first->line);
  concat->operands.push_back(std::move(first));
  while (skip_symbol("~")) {
    TRY(ExprPointer operand, product());
    concat->operands.push_back(std::move(operand));
  }
  return concat;
}

Outcome<ExprPointer> ExpressionParser::unary(bool with_filters) {
  const Deeper deeper(*this);
  TRY_VOID(deeper.check());
  ExprPointer expr;
  if (peek().is_symbol("-") || peek().is_symbol("+")) {
    const Token& sign = next();
    const bool negative = sign.text == "-";
    const int line = sign.line;
    TRY(ExprPointer operand, unary(false));
    expr = std::make_unique<Sign>(negative, std::move(operand), line);
  } else {
    TRY(expr, primary());
  }
  std::vector<Step> steps;
  TRY_VOID(postfix(steps));
  if (with_filters) TRY_VOID(filter_chain(steps));
  return with_steps(std::move(expr), std::move(steps));
}

Outcome<ExprPointer> ExpressionParser::primary() {
  const Token& token = peek();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::name: {
      const std::string name = next().text;
      if (name == "true" || name == "True") return std::make_unique<Constant>(Value(true), line);
      if (name == "false" || name == "False") return std::make_unique<Constant>(Value(false), line);
      if (name == "none" || name == "None") return std::make_unique<Constant>(Value(None{}), line);
      const int symbol = symbols().intern(name);
      program_.reads.insert(symbol);
      read_counts_.resize(std::max(read_counts_.size(), symbols().size()));
      ++read_counts_[static_cast<std::size_t>(symbol)];
      return std::make_unique<Name>(symbol, line);
    }
    case TokenKind::string: {
      std::string text;
      while (peek().kind == TokenKind::string)
        text += next().text;
      return std::make_unique<Constant>(text_constant(text), line);
    }
    case TokenKind::integer:
      return std::make_unique<Constant>(Value(next().integer), line);
    case TokenKind::floating:
      return std::make_unique<Constant>(Value(next().floating), line);
    case TokenKind::symbol:
      if (token.text == "(") {
        next();
        TRY(ExprPointer inner, tuple(true, true));
        TRY_VOID(expect_symbol(")"));
        return inner;
      }
      if (token.text == "[") return list();
      if (token.text == "{") return dict();
      break;
    default:
      break;
  }
  return unexpected("an expression");
}

Outcome<ExprPointer> ExpressionParser::list() {
  auto made = std::make_unique<Sequence>(List::Kind::list, next().line);
  while (!peek().is_symbol("]")) {
    if (!made->items.empty()) {
      TRY_VOID(expect_symbol(","));
      if (peek().is_symbol("]")) break;
    }
    TRY(ExprPointer item, expression());
    made->items.push_back(std::move(item));
  }
  next();
  return made;
}

Outcome<ExprPointer> ExpressionParser::dict() {
  auto made = std::make_unique<DictExpr>(next().line);
  while (!peek().is_symbol("}")) {
    if (!made->entries.empty()) {
      TRY_VOID(expect_symbol(","));
      if (peek().is_symbol("}")) break;
    }
    TRY(ExprPointer key, expression());
    TRY_VOID(expect_symbol(":"));
    TRY(ExprPointer value, expression());
    made->entries.emplace_back(std::move(key), std::move(value));
  }
  next();
  return made;
}

Outcome<void> ExpressionParser::postfix(std::vector<Step>& steps) {
  while (true) {
    if (peek().is_symbol(".") || peek().is_symbol("[")) {
      TRY(Step step, subscript());
      steps.push_back(std::move(step));
    } else if (peek().is_symbol("(")) {
      Step step{Step::Kind::call, peek().line};
      TRY(step.arguments, arguments());
      steps.push_back(std::move(step));
    } else {
      return {};
    }
  }
}

Outcome<void> ExpressionParser::filter_chain(std::vector<Step>& steps) {
  while (true) {
    if (skip_symbol("|")) {
      TRY(Step step, filter_step());
      steps.push_back(std::move(step));
    } else if (peek().is_name("is")) {
      TRY(Step step, test_step());
      steps.push_back(std::move(step));
    } else if (peek().is_symbol("(")) {
      Step step{Step::Kind::call, peek().line};
      TRY(step.arguments, arguments());
      steps.push_back(std::move(step));
    } else {
      return {};
    }
  }
}

Outcome<std::vector<Step>> ExpressionParser::filters(bool first_without_pipe) {
  std::vector<Step> steps;
  while (first_without_pipe || skip_symbol("|")) {
    first_without_pipe = false;
    TRY(Step step, filter_step());
    steps.push_back(std::move(step));
  }
  return steps;
}

Outcome<Step> ExpressionParser::subscript() {
  Step step{Step::Kind::attribute, peek().line};
  if (skip_symbol(".")) {
    const Token& token = next();
    if (token.kind == TokenKind::name) {
      step.symbol = symbols().intern(token.text);
      return step;
    }
    if (token.kind != TokenKind::integer)
      return fault("expected a name or a number after '.'", token.line);
    step.kind = Step::Kind::item;
    step.item = std::make_unique<Constant>(Value(token.integer), token.line);
    return step;
  }
  next();  // [
  step.kind = Step::Kind::item;
  const auto part = [&](ExprPointer& into) -> Outcome<void> {
    if (peek().is_symbol(":") || peek().is_symbol("]")) return {};
    TRY(into, expression());
    return {};
  };
  TRY_VOID(part(step.item));
  if (skip_symbol(":")) {
    step.kind = Step::Kind::slice;
    TRY_VOID(part(step.stop));
    if (skip_symbol(":")) TRY_VOID(part(step.stride));
  } else if (!step.item) {
    return unexpected("an index");
  }
  TRY_VOID(expect_symbol("]"));
  return step;
}

Outcome<ArgumentExprs> ExpressionParser::arguments() {
  ArgumentExprs args;
  TRY_VOID(expect_symbol("("));
  while (!peek().is_symbol(")")) {
    if (!args.positional.empty() || !args.named.empty()) {
      TRY_VOID(expect_symbol(","));
      if (peek().is_symbol(")")) break;
    }
    if (peek().kind == TokenKind::name && peek(1).is_symbol("=")) {
      std::string name = next().text;
      next();
      TRY(ExprPointer value, expression());
      args.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!args.named.empty()) return unexpected("a named argument after a named one");
      if (peek().is_symbol("*") || peek().is_symbol("**"))
        return unexpected("plain arguments (* and ** are not known)");
      TRY(ExprPointer value, expression());
      args.positional.push_back(std::move(value));
    }
  }
  next();
  return args;
}

Outcome<Step> ExpressionParser::filter_step() {
  Step step{Step::Kind::filter, peek().line};
  TRY(const std::string name, expect_name());
  step.filter = find_filter(name);
  if (!step.filter)
    return fault(fmt::format("there is no filter '{}'", name.substr(0, 60)), step.line);
  if (peek().is_symbol("(")) {
    TRY(step.arguments, arguments());
  }
  return step;
}

Outcome<Step> ExpressionParser::test_step() {
  Step step{Step::Kind::test, next().line};
  step.negated = skip_name("not");
  TRY(const std::string name, expect_name());
  step.test = find_test(name);
  if (!step.test) return fault(fmt::format("there is no test '{}'", name.substr(0, 60)), step.line);
  const Token& token = peek();
  const bool operand = token.kind == TokenKind::string || token.kind == TokenKind::integer ||
                       token.kind == TokenKind::floating || token.is_symbol("[") ||
                       token.is_symbol("{") ||
                       (token.kind == TokenKind::name && !token.is_name("else") &&
                        !token.is_name("or") && !token.is_name("and"));
  if (token.is_symbol("(")) {
    TRY(step.arguments, arguments());
  } else if (token.is_name("is")) {
    return unexpected("no second 'is'");
  } else if (operand && step.test->arguments > 0) {
    const Deeper deeper(*this);
    TRY_VOID(deeper.check());
    TRY(ExprPointer base, primary());
    std::vector<Step> steps;
    TRY_VOID(postfix(steps));
    step.arguments.positional.push_back(with_steps(std::move(base), std::move(steps)));
  }
  return step;
}

}  // namespace ponder::text::jinja
