#include "engine/text/jinja/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/text/jinja/callable.h"
#include "engine/text/jinja/lookup.h"
#include "engine/text/jinja/print.h"
#include "engine/text/jinja/tests.h"

namespace ponder::text::jinja {
namespace {

constexpr std::array<std::string_view, 4> kTokenVariables = {"bos_token", "eos_token", "pad_token",
                                                             "unk_token"};

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<int, Value>> names = {};

  void set(int symbol, Value value) {
    for (auto& [name, held] : names) {
      if (name != symbol) continue;
      held = std::move(value);
      return;
    }
    names.emplace_back(symbol, std::move(value));
  }
};

enum class Flow { on, break_loop, continue_loop };

class Interpreter final : public Context {
 public:
  Interpreter(const Program& program, const Limits& limits)
      : program_(program), meter_(limits), maker_(meter_) {}

  Outcome<MarkedText> run(const json::object& variables) {
    TRY_VOID(bind(variables));
    MarkedText out;
    TRY_VOID(run_block(program_.body, root_, out));
    return out;
  }

  ValueMaker& maker() override { return maker_; }
  Outcome<Value> attribute(const Value& value, std::string_view name) override {
    return get_attribute(*this, value, name);
  }
  Outcome<Value> item(const Value& value, const Value& key) override {
    return get_item(*this, value, key);
  }
  Outcome<Namespace*> new_namespace() override {
    TRY_VOID(meter_.hold(sizeof(Namespace) + 64));
    namespaces_.push_back(std::make_unique<Namespace>());
    return namespaces_.back().get();
  }
  Value now() override { return now_; }

 private:
  /// Counts one level of evaluation.
  class Level {
   public:
    explicit Level(Interpreter& interpreter) : interpreter_(interpreter) { ++interpreter_.levels_; }
    ~Level() { --interpreter_.levels_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Interpreter& interpreter_;
  };
  Outcome<void> enter() {
    if (levels_ > meter_.limits().levels) return fault("the template evaluates too deeply");
    return meter_.step();
  }

  /// Makes values of those variables that the template names.
  Outcome<void> bind(const json::object& variables) {
    globals_.resize(program_.symbols.size());
    for (std::size_t i = 0; i < globals_.size(); ++i) {
      const std::string& name = program_.symbols.name(static_cast<int>(i));
      if (const Callable* function = find_function(name)) globals_[i] = Value(function);
    }
    for (const auto& member : variables) {
      const std::string_view name = member.key();
      const int symbol = program_.symbols.find(name);
      const bool own = std::count(kTokenVariables.begin(), kTokenVariables.end(), name) > 0;
      const Origin origin = own ? Origin::template_source : Origin::caller;
      if (symbol < 0 && name != "now") continue;
      TRY(Value value, maker_.from_json(member.value(), origin));
      if (name == "now") now_ = value;
      if (symbol >= 0) globals_[static_cast<std::size_t>(symbol)] = std::move(value);
    }
    return {};
  }

  const Value* find(int symbol, const Scope& scope) const {
    for (const Scope* at = &scope; at; at = at->parent)
      for (const auto& [name, value] : at->names)
        if (name == symbol) return &value;
    return &globals_[static_cast<std::size_t>(symbol)];
  }
  Value look_up(int symbol, const Scope& scope) const {
    const Value* found = find(symbol, scope);
    return found->is_undefined() ? Value(Undefined{symbol}) : *found;
  }

  // --- statements ---

  Outcome<Flow> run_block(const Block& block, Scope& scope, MarkedText& out) {
    for (const StatementPointer& statement : block) {
      auto flow = run_statement(*statement, scope, out);
      if (!flow) {
        if (flow.error()->line == 0) flow.error()->line = statement->line;
        return flow;
      }
      if (*flow != Flow::on) return flow;
    }
    return Flow::on;
  }

  Outcome<Flow> run_statement(const Statement& statement, Scope& scope, MarkedText& out) {
    const Level level(*this);
    TRY_VOID(enter());
    switch (statement.kind) {
      case StatementKind::data: {
        const MarkedText& text = static_cast<const Data&>(statement).text;
        TRY_VOID(meter_.work(text.size()));
        out.append(text);
        return check_output(out);
      }
      case StatementKind::print: {
        TRY(const Value value, evaluate(*static_cast<const Print&>(statement).expr, scope));
        TRY_VOID(print(meter_, value, out));
        return Flow::on;
      }
      case StatementKind::branch:
        return run_branch(static_cast<const Branch&>(statement), scope, out);
      case StatementKind::loop:
        return run_loop(static_cast<const Loop&>(statement), scope, out);
      case StatementKind::assign: {
        const auto& assign = static_cast<const Assign&>(statement);
        TRY(Value value, evaluate(*assign.value, scope));
        TRY_VOID(store(assign.targets, std::move(value), scope));
        return Flow::on;
      }
      case StatementKind::assign_block:
        return run_assign_block(static_cast<const AssignBlock&>(statement), scope);
      case StatementKind::macro: {
        const auto& macro = static_cast<const MacroNode&>(statement);
        scope.set(macro.symbol, Value(&macro));
        return Flow::on;
      }
      case StatementKind::scope:
        return run_scope(static_cast<const ScopeBlock&>(statement), scope, out);
      case StatementKind::filter_block: {
        const auto& block = static_cast<const FilterBlock&>(statement);
        TRY(const Value value, capture(block.body, block.filters, scope));
        TRY_VOID(print(meter_, value, out));
        return Flow::on;
      }
      case StatementKind::break_loop:
        return Flow::break_loop;
      case StatementKind::continue_loop:
        return Flow::continue_loop;
    }
    return Flow::on;
  }

  Outcome<Flow> check_output(const MarkedText& out) const {
    if (static_cast<std::int64_t>(out.size()) > meter_.limits().output_bytes)
      return fault("the template makes a text of more than 16 MiB");
    return Flow::on;
  }

  Outcome<Flow> run_branch(const Branch& branch, Scope& scope, MarkedText& out) {
    for (const auto& [test, body] : branch.arms) {
      TRY(const Value value, evaluate(*test, scope));
      if (truth(value)) return run_block(body, scope, out);
    }
    return run_block(branch.otherwise, scope, out);
  }

  Outcome<Flow> run_loop(const Loop& loop, Scope& scope, MarkedText& out) {
    TRY(const Value source, evaluate(*loop.items, scope));
    TRY(ListPointer items, iterate(maker_, source));
    if (loop.filter) {
      TRY(items, filtered(loop, *items, scope));
    }
    if (items->items.empty()) {
      Scope inner{&scope};
      return run_block(loop.otherwise, inner, out);
    }
    std::shared_ptr<LoopState> state;
    const int loop_symbol = loop.uses_loop ? program_.symbols.find("loop") : -1;
    if (loop.uses_loop) {
      state = std::make_shared<LoopState>();
      state->items = items;
    }
    Scope inner{&scope};
    for (std::size_t i = 0; i < items->items.size(); ++i) {
      TRY_VOID(meter_.step());
      inner.names.clear();
      if (state) {
        state->at = i;
        inner.set(loop_symbol, Value(state));
      }
      TRY_VOID(store(loop.targets, items->items[i], inner));
      TRY(const Flow flow, run_block(loop.body, inner, out));
      if (flow == Flow::break_loop) break;
    }
    return Flow::on;
  }

  Outcome<ListPointer> filtered(const Loop& loop, const List& items, Scope& scope) {
    std::vector<Value> kept;
    Scope inner{&scope};
    for (const Value& item : items.items) {
      TRY_VOID(meter_.step());
      inner.names.clear();
      TRY_VOID(store(loop.targets, item, inner));
      TRY(const Value passes, evaluate(*loop.filter, inner));
      if (truth(passes)) kept.push_back(item);
    }
    TRY(const Value list, maker_.list(std::move(kept)));
    return *list.get<ListPointer>();
  }

  Outcome<Flow> run_assign_block(const AssignBlock& assign, Scope& scope) {
    TRY(Value value, capture(assign.body, assign.filters, scope));
    TRY_VOID(store_one(assign.target, std::move(value), scope));
    return Flow::on;
  }

  Outcome<Flow> run_scope(const ScopeBlock& block, Scope& scope, MarkedText& out) {
    Scope inner{&scope};
    for (const auto& [symbol, expr] : block.names) {
      TRY(Value value, evaluate(*expr, scope));
      inner.set(symbol, std::move(value));
    }
    return run_block(block.body, inner, out);
  }

  /// What a block writes, through filters, as a value.
  Outcome<Value> capture(const Block& body, const std::vector<Step>& filters, Scope& scope) {
    MarkedText text;
    Scope inner{&scope};
    TRY_VOID(run_block(body, inner, text));
    TRY(Value value, maker_.text(std::move(text)));
    for (const Step& step : filters) {
      TRY(const Arguments arguments, evaluate_arguments(step.arguments, scope));
      TRY(value, call(*this, *step.filter, value, arguments));
    }
    return value;
  }

  Outcome<void> store(const Targets& targets, Value value, Scope& scope) {
    if (!targets.unpacks) return store_one(targets.names.front(), std::move(value), scope);
    TRY(const ListPointer parts, iterate(maker_, value));
    if (parts->items.size() != targets.names.size())
      return fault(
          fmt::format("{} values for {} names", parts->items.size(), targets.names.size()));
    for (std::size_t i = 0; i < targets.names.size(); ++i)
      TRY_VOID(store_one(targets.names[i], parts->items[i], scope));
    return {};
  }

  Outcome<void> store_one(const Target& target, Value value, Scope& scope) {
    if (target.member < 0) {
      scope.set(target.symbol, std::move(value));
      return {};
    }
    const Value held = look_up(target.symbol, scope);
    const auto* space = held.get<Namespace*>();
    if (!space)
      return fault(fmt::format("'{}' is no namespace; its parts cannot be set",
                               program_.symbols.name(target.symbol)));
    const std::string& name = program_.symbols.name(target.member);
    for (auto& [member, old] : (*space)->members) {
      if (member != name) continue;
      old = std::move(value);
      return {};
    }
    TRY_VOID(meter_.hold(sizeof(Value) + 64));
    (*space)->members.emplace_back(name, std::move(value));
    return {};
  }

  // --- expressions ---

  Outcome<Value> evaluate(const Expr& expr, Scope& scope) {
    const Level level(*this);
    TRY_VOID(enter());
    switch (expr.kind) {
      case ExprKind::constant:
        return static_cast<const Constant&>(expr).value;
      case ExprKind::name:
        return look_up(static_cast<const Name&>(expr).symbol, scope);
      case ExprKind::sequence:
        return evaluate_sequence(static_cast<const Sequence&>(expr), scope);
      case ExprKind::dict:
        return evaluate_dict(static_cast<const DictExpr&>(expr), scope);
      case ExprKind::logic:
        return evaluate_logic(static_cast<const Logic&>(expr), scope);
      case ExprKind::negation: {
        TRY(const Value value, evaluate(*static_cast<const Negation&>(expr).operand, scope));
        return Value(!truth(value));
      }
      case ExprKind::compare:
        return evaluate_compare(static_cast<const Chain&>(expr), scope);
      case ExprKind::arithmetic:
        return evaluate_arithmetic(static_cast<const Chain&>(expr), scope);
      case ExprKind::concat:
        return evaluate_concat(static_cast<const Concat&>(expr), scope);
      case ExprKind::sign: {
        const auto& sign = static_cast<const Sign&>(expr);
        TRY(const Value value, evaluate(*sign.operand, scope));
        return signed_value(sign.negative, value);
      }
      case ExprKind::conditional:
        return evaluate_conditional(static_cast<const Conditional&>(expr), scope);
      case ExprKind::postfix:
        return evaluate_postfix(static_cast<const Postfix&>(expr), scope);
    }
    return Value();
  }

  Outcome<Value> evaluate_sequence(const Sequence& sequence, Scope& scope) {
    std::vector<Value> items;
    items.reserve(sequence.items.size());
    for (const ExprPointer& expr : sequence.items) {
      TRY(Value item, evaluate(*expr, scope));
      items.push_back(std::move(item));
    }
    return maker_.list(std::move(items), sequence.list_kind);
  }

  Outcome<Value> evaluate_dict(const DictExpr& dict, Scope& scope) {
    std::vector<std::pair<Value, Value>> entries;
    for (const auto& [key_expr, value_expr] : dict.entries) {
      TRY(Value key, evaluate(*key_expr, scope));
      TRY(Value value, evaluate(*value_expr, scope));
      entries.emplace_back(std::move(key), std::move(value));
    }
    return maker_.dict(std::move(entries));
  }

  Outcome<Value> evaluate_logic(const Logic& logic, Scope& scope) {
    Value value;
    for (const ExprPointer& operand : logic.operands) {
      TRY(value, evaluate(*operand, scope));
      if (truth(value) != logic.is_and) return value;
    }
    return value;
  }

  Outcome<Value> evaluate_compare(const Chain& chain, Scope& scope) {
    TRY(Value left, evaluate(*chain.first, scope));
    for (const auto& [op, expr] : chain.rest) {
      TRY(Value right, evaluate(*expr, scope));
      TRY(const bool holds, compare(meter_, op, left, right));
      if (!holds) return Value(false);
      left = std::move(right);
    }
    return Value(true);
  }

  Outcome<Value> evaluate_arithmetic(const Chain& chain, Scope& scope) {
    TRY(Value left, evaluate(*chain.first, scope));
    for (const auto& [op, expr] : chain.rest) {
      TRY(const Value right, evaluate(*expr, scope));
      if (const auto* undefined = left.get<Undefined>()) return not_defined(*undefined);
      if (const auto* undefined = right.get<Undefined>()) return not_defined(*undefined);
      TRY(left, arithmetic(maker_, op, left, right));
    }
    return left;
  }

  Outcome<Value> evaluate_concat(const Concat& concat, Scope& scope) {
    MarkedText text;
    for (const ExprPointer& expr : concat.operands) {
      TRY(const Value value, evaluate(*expr, scope));
      TRY_VOID(print(meter_, value, text));
    }
    return maker_.text(std::move(text));
  }

  Outcome<Value> evaluate_conditional(const Conditional& choice, Scope& scope) {
    TRY(const Value test, evaluate(*choice.test, scope));
    if (truth(test)) return evaluate(*choice.then, scope);
    return choice.otherwise ? evaluate(*choice.otherwise, scope) : Value();
  }

  Outcome<Arguments> evaluate_arguments(const ArgumentExprs& exprs, Scope& scope) {
    Arguments arguments;
    arguments.positional.reserve(exprs.positional.size());
    for (const ExprPointer& expr : exprs.positional) {
      TRY(Value value, evaluate(*expr, scope));
      arguments.positional.push_back(std::move(value));
    }
    for (const auto& [name, expr] : exprs.named) {
      TRY(Value value, evaluate(*expr, scope));
      arguments.named.emplace_back(name, std::move(value));
    }
    return arguments;
  }

  tl::unexpected<Fault> not_defined(const Undefined& undefined) const {
    if (undefined.symbol < 0) return fault("a value is not defined");
    return fault(fmt::format("'{}' is not defined", program_.symbols.name(undefined.symbol)));
  }

  Outcome<Value> evaluate_postfix(const Postfix& postfix, Scope& scope) {
    TRY(Value value, evaluate(*postfix.base, scope));
    for (std::size_t i = 0; i < postfix.steps.size(); ++i) {
      const Step& step = postfix.steps[i];
      TRY_VOID(meter_.step());
      // value.method(...) needs no method value in between.
      const bool calls_next = step.kind == Step::Kind::attribute && i + 1 < postfix.steps.size() &&
                              postfix.steps[i + 1].kind == Step::Kind::call;
      const Callable* method =
          calls_next ? find_method(value, program_.symbols.name(step.symbol)) : nullptr;
      if (method) {
        TRY(const Arguments arguments, evaluate_arguments(postfix.steps[++i].arguments, scope));
        TRY(value, call(*this, *method, value, arguments));
        continue;
      }
      TRY(value, take_step(step, value, scope));
    }
    return value;
  }

  Outcome<Value> take_step(const Step& step, const Value& value, Scope& scope) {
    const auto* undefined = value.get<Undefined>();
    switch (step.kind) {
      case Step::Kind::attribute: {
        if (undefined && undefined->symbol >= 0) return not_defined(*undefined);
        const std::string& name = program_.symbols.name(step.symbol);
        TRY(Value found, get_attribute(*this, value, name));
        return found.is_undefined() ? Value(Undefined{step.symbol}) : std::move(found);
      }
      case Step::Kind::item: {
        if (undefined && undefined->symbol >= 0) return not_defined(*undefined);
        TRY(const Value key, evaluate(*step.item, scope));
        return get_item(*this, value, key);
      }
      case Step::Kind::slice:
        return take_slice(step, value, scope);
      case Step::Kind::filter: {
        TRY(const Arguments arguments, evaluate_arguments(step.arguments, scope));
        return call(*this, *step.filter, value, arguments);
      }
      case Step::Kind::test: {
        TRY(const Arguments arguments, evaluate_arguments(step.arguments, scope));
        TRY(const bool holds, run_test(*this, *step.test, value, arguments));
        return Value(holds != step.negated);
      }
      case Step::Kind::call: {
        TRY(const Arguments arguments, evaluate_arguments(step.arguments, scope));
        return call_value(value, arguments);
      }
    }
    return Value();
  }

  Outcome<Value> take_slice(const Step& step, const Value& value, Scope& scope) {
    Value bounds[3];
    const ExprPointer* exprs[3] = {&step.item, &step.stop, &step.stride};
    for (std::size_t i = 0; i < 3; ++i)
      if (*exprs[i]) {
        TRY(bounds[i], evaluate(**exprs[i], scope));
      }
    return get_slice(*this, value, step.item ? &bounds[0] : nullptr,
                     step.stop ? &bounds[1] : nullptr, step.stride ? &bounds[2] : nullptr);
  }

  Outcome<Value> call_value(const Value& value, const Arguments& arguments) {
    if (const auto* function = value.get<const Callable*>())
      return call(*this, **function, Value(), arguments);
    if (const auto* bound = value.get<std::shared_ptr<const BoundMethod>>())
      return call(*this, *(*bound)->method, (*bound)->self, arguments);
    if (const auto* macro = value.get<const MacroNode*>()) return call_macro(**macro, arguments);
    if (const auto* undefined = value.get<Undefined>()) return not_defined(*undefined);
    return fault(fmt::format("a {} cannot be called", type_name(value)));
  }

  Outcome<Value> call_macro(const MacroNode& macro, const Arguments& arguments) {
    const std::string& name = program_.symbols.name(macro.symbol);
    if (calls_ >= meter_.limits().depth)
      return fault(fmt::format("macros call each other more than {} deep", meter_.limits().depth));
    if (arguments.positional.size() > macro.parameters.size())
      return fault(fmt::format("{}() takes at most {} arguments", name, macro.parameters.size()));
    Scope inner{&root_};
    std::vector<bool> given(macro.parameters.size(), false);
    for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
      inner.set(macro.parameters[i], arguments.positional[i]);
      given[i] = true;
    }
    for (const auto& [key, value] : arguments.named) {
      const int symbol = program_.symbols.find(key);
      const auto it = std::find(macro.parameters.begin(), macro.parameters.end(), symbol);
      if (it == macro.parameters.end())
        return fault(fmt::format("{}() has no argument '{}'", name, key));
      const auto at = static_cast<std::size_t>(it - macro.parameters.begin());
      if (given[at]) return fault(fmt::format("{}() got '{}' twice", name, key));
      inner.set(symbol, value);
      given[at] = true;
    }
    ++calls_;
    auto result = run_macro(macro, given, inner);
    --calls_;
    return result;
  }

  Outcome<Value> run_macro(const MacroNode& macro, const std::vector<bool>& given, Scope& inner) {
    for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
      if (given[i]) continue;
      // Set even without a default: the parameter hides a name outside.
      Value value{Undefined{macro.parameters[i]}};
      if (macro.defaults[i]) {
        TRY(value, evaluate(*macro.defaults[i], inner));
      }
      inner.set(macro.parameters[i], std::move(value));
    }
    MarkedText text;
    TRY_VOID(run_block(macro.body, inner, text));
    return maker_.text(std::move(text));
  }

  const Program& program_;
  Meter meter_;  // before all values, which give back to it
  ValueMaker maker_;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  std::vector<Value> globals_;  // by symbol
  Value now_;
  Scope root_;
  int levels_ = 0;
  int calls_ = 0;
};

}  // namespace

Outcome<MarkedText> interpret(const Program& program, const json::object& variables,
                              const Limits& limits) {
  return Interpreter(program, limits).run(variables);
}

}  // namespace ponder::text::jinja
