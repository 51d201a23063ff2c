#pragma once
// The parsed template. Chains of operators, attributes and filters are flat, so that the depth of
// the tree is the depth of the source's own nesting, which the parser bounds.
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/value.h"

namespace ponder::text::jinja {

struct Test;  // tests.h

/// Names of the template, numbered.
class SymbolTable {
 public:
  int intern(std::string_view name) {
    const auto [it, fresh] =
        numbers_.try_emplace(std::string(name), static_cast<int>(names_.size()));
    if (fresh) names_.push_back(it->first);
    return it->second;
  }
  /// The number of `name`, or -1.
  int find(std::string_view name) const {
    const auto it = numbers_.find(std::string(name));
    return it == numbers_.end() ? -1 : it->second;
  }
  const std::string& name(int symbol) const { return names_[static_cast<std::size_t>(symbol)]; }
  std::size_t size() const { return names_.size(); }

 private:
  std::unordered_map<std::string, int> numbers_;
  std::vector<std::string> names_;
};

enum class ExprKind {
  constant,
  name,
  sequence,
  dict,
  logic,
  negation,
  compare,
  arithmetic,
  concat,
  sign,
  conditional,
  postfix
};
struct Expr {
  Expr(ExprKind k, int l) : kind(k), line(l) {}
  virtual ~Expr() = default;
  ExprKind kind;
  int line;
};
using ExprPointer = std::unique_ptr<Expr>;

struct Constant final : Expr {
  Constant(Value v, int l) : Expr(ExprKind::constant, l), value(std::move(v)) {}
  Value value;
};
struct Name final : Expr {
  Name(int s, int l) : Expr(ExprKind::name, l), symbol(s) {}
  int symbol;
};
struct Sequence final : Expr {  // [a, b] or (a, b)
  Sequence(List::Kind k, int l) : Expr(ExprKind::sequence, l), list_kind(k) {}
  List::Kind list_kind;
  std::vector<ExprPointer> items;
};
struct DictExpr final : Expr {
  explicit DictExpr(int l) : Expr(ExprKind::dict, l) {}
  std::vector<std::pair<ExprPointer, ExprPointer>> entries;
};
struct Logic final : Expr {  // a and b and c, or a or b or c
  Logic(bool a, int l) : Expr(ExprKind::logic, l), is_and(a) {}
  bool is_and;
  std::vector<ExprPointer> operands;
};
struct Negation final : Expr {  // not a
  Negation(ExprPointer o, int l) : Expr(ExprKind::negation, l), operand(std::move(o)) {}
  ExprPointer operand;
};
struct Chain : Expr {  // first op operand op operand ...
  Chain(ExprKind k, ExprPointer f, int l) : Expr(k, l), first(std::move(f)) {}
  ExprPointer first;
  std::vector<std::pair<Operator, ExprPointer>> rest;
};
struct Concat final : Expr {  // a ~ b ~ c
  explicit Concat(int l) : Expr(ExprKind::concat, l) {}
  std::vector<ExprPointer> operands;
};
struct Sign final : Expr {  // -a or +a
  Sign(bool n, ExprPointer o, int l)
      : Expr(ExprKind::sign, l), negative(n), operand(std::move(o)) {}
  bool negative;
  ExprPointer operand;
};
struct Conditional final : Expr {  // a if test else b
  explicit Conditional(int l) : Expr(ExprKind::conditional, l) {}
  ExprPointer test, then, otherwise;  // otherwise may be null
};

struct ArgumentExprs {
  std::vector<ExprPointer> positional;
  std::vector<std::pair<std::string, ExprPointer>> named;
};
struct Step {
  enum class Kind { attribute, item, slice, call, filter, test } kind = Kind::attribute;
  int line = 0;
  int symbol = -1;                     // attribute
  ExprPointer item = {};               // item, or the slice's start
  ExprPointer stop = {}, stride = {};  // slice; each may be null
  ArgumentExprs arguments = {};        // call, filter, test
  const Callable* filter = nullptr;
  const Test* test = nullptr;
  bool negated = false;  // is not
};
struct Postfix final : Expr {
  Postfix(ExprPointer b, int l) : Expr(ExprKind::postfix, l), base(std::move(b)) {}
  ExprPointer base;
  std::vector<Step> steps;
};

enum class StatementKind {
  data,
  print,
  branch,
  loop,
  assign,
  assign_block,
  macro,
  scope,
  filter_block,
  break_loop,
  continue_loop
};
struct Statement {
  Statement(StatementKind k, int l) : kind(k), line(l) {}
  virtual ~Statement() = default;
  StatementKind kind;
  int line;
};
using StatementPointer = std::unique_ptr<Statement>;
using Block = std::vector<StatementPointer>;

struct Data final : Statement {
  Data(std::string t, int l)
      : Statement(StatementKind::data, l), text(std::move(t), Origin::template_source) {}
  MarkedText text;
};
struct Print final : Statement {
  Print(ExprPointer e, int l) : Statement(StatementKind::print, l), expr(std::move(e)) {}
  ExprPointer expr;
};
struct Branch final : Statement {  // if, elif, ..., else
  explicit Branch(int l) : Statement(StatementKind::branch, l) {}
  std::vector<std::pair<ExprPointer, Block>> arms;
  Block otherwise;
};
struct Target {
  int symbol = -1;
  int member = -1;  ///< of a namespace, or -1
};
struct Targets {
  std::vector<Target> names;
  bool unpacks = false;  ///< a tuple of them
};
struct Loop final : Statement {
  explicit Loop(int l) : Statement(StatementKind::loop, l) {}
  Targets targets;
  ExprPointer items;
  ExprPointer filter;  // may be null
  Block body, otherwise;
  bool uses_loop = false;  ///< the body names `loop`
};
struct Assign final : Statement {
  explicit Assign(int l) : Statement(StatementKind::assign, l) {}
  Targets targets;
  ExprPointer value;
};
struct AssignBlock final : Statement {
  explicit AssignBlock(int l) : Statement(StatementKind::assign_block, l) {}
  Target target;
  std::vector<Step> filters;
  Block body;
};
struct MacroNode final : Statement {
  explicit MacroNode(int l) : Statement(StatementKind::macro, l) {}
  int symbol = -1;
  std::vector<int> parameters;
  std::vector<ExprPointer> defaults;  // one a parameter, null where there is none
  Block body;
};
struct ScopeBlock final : Statement {  // with, generation
  explicit ScopeBlock(int l) : Statement(StatementKind::scope, l) {}
  std::vector<std::pair<int, ExprPointer>> names;
  Block body;
};
struct FilterBlock final : Statement {
  explicit FilterBlock(int l) : Statement(StatementKind::filter_block, l) {}
  std::vector<Step> filters;
  Block body;
};
struct Jump final : Statement {  // break, continue
  using Statement::Statement;
};

struct Program {
  SymbolTable symbols;
  std::set<int> reads;  ///< names whose value is asked for anywhere
  Block body;
};

}  // namespace ponder::text::jinja
