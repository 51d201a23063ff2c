#pragma once
// The expressions of the grammar; the statement parser is built on it.
#include <string_view>
#include <vector>

#include "engine/text/jinja/ast.h"
#include "engine/text/jinja/lexer.h"

namespace ponder::text::jinja {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, Program& program)
      : tokens_(std::move(tokens)), program_(program) {}

  /// With `conditional`, also `a if test else b`.
  Outcome<ExprPointer> expression(bool conditional = true);
  /// An expression, or several with commas: a tuple. An empty one only with `may_be_empty`.
  Outcome<ExprPointer> tuple(bool conditional, bool may_be_empty);
  /// A name, `namespace.member`, or several names with commas.
  Outcome<Targets> targets(bool allow_members);
  /// `|filter|filter`, each a step.
  Outcome<std::vector<Step>> filters(bool first_without_pipe);

  const Token& peek(std::size_t ahead = 0) const;
  const Token& next();
  bool skip_symbol(std::string_view symbol);
  bool skip_name(std::string_view name);
  Outcome<void> expect_symbol(std::string_view symbol);
  Outcome<void> expect(TokenKind kind, std::string_view what);
  Outcome<std::string> expect_name();
  tl::unexpected<Fault> unexpected(std::string_view wanted) const;

  /// How often the name was read so far.
  std::size_t reads_of(int symbol) const;
  SymbolTable& symbols() { return program_.symbols; }

  /// Nesting of the source, bounded: one for each level of statements, brackets and prefixes.
  class Deeper {
   public:
    explicit Deeper(ExpressionParser& parser) : parser_(parser) { ++parser_.depth_; }
    ~Deeper() { --parser_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    Outcome<void> check() const;

   private:
    ExpressionParser& parser_;
  };

 private:
  Outcome<ExprPointer> or_test();
  Outcome<ExprPointer> and_test();
  Outcome<ExprPointer> not_test();
  Outcome<ExprPointer> comparison();
  Outcome<ExprPointer> sum();
  Outcome<ExprPointer> concatenation();
  Outcome<ExprPointer> product();
  Outcome<ExprPointer> power();
  Outcome<ExprPointer> unary(bool with_filters);
  Outcome<ExprPointer> primary();
  Outcome<ExprPointer> list();
  Outcome<ExprPointer> dict();
  Outcome<void> postfix(std::vector<Step>& steps);
  Outcome<void> filter_chain(std::vector<Step>& steps);
  Outcome<Step> subscript();
  Outcome<Step> filter_step();
  Outcome<Step> test_step();
  Outcome<ArgumentExprs> arguments();
  bool at_tuple_end() const;

  using Level = Outcome<ExprPointer> (ExpressionParser::*)();
  Outcome<ExprPointer> chain(ExprKind kind, Level operand,
                             std::initializer_list<std::pair<std::string_view, Operator>> ops);

  std::vector<Token> tokens_;
  Program& program_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::vector<std::size_t> read_counts_;
};

}  // namespace ponder::text::jinja
