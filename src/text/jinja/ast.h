#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/builtins.h"
#include "text/jinja/error.h"
#include "text/jinja/value.h"

/// The tree of a parsed template. The parser builds it, resolve_names() fills in the slots, and the interpreter walks
/// it; after parsing it never changes.
namespace gristmill::jinja {

// ---- Variables
// -------------------------------------------------------------------------------------------------------

/// Where a variable lives: `hops` frames out from the running one, at `index`. A frame belongs to one activation of the
/// template, a macro, a call block or a recursive loop.
struct Slot {
  uint16_t hops = 0;
  uint16_t index = 0;
};

/// What happens to a variable when its scope is entered.
struct Load {
  enum class Action : uint8_t {
    resolve,  ///< taken from the context and the globals, by name
    copy,     ///< starts with the value of the outer variable `from`
    clear     ///< starts without a value
  };
  Action action = Action::clear;
  uint16_t index = 0;
  Slot from;
  Value name;
};

using Loads = std::vector<Load>;

// ---- Expressions
// -----------------------------------------------------------------------------------------------------

enum class ExpressionKind : uint8_t {
  literal,
  name,
  namespace_target,
  sequence,
  dict,
  attribute,
  subscript,
  slice,
  call,
  filter,
  test,
  unary,
  binary,
  logic,
  concat,
  compare,
  conditional
};

struct Expression {
  Expression(ExpressionKind k, Position p) : kind(k), at(p) {}
  virtual ~Expression() = default;
  const ExpressionKind kind;
  int16_t height = 1;  ///< levels of expressions below, itself included
  Position at;
};
using ExpressionPtr = std::unique_ptr<Expression>;

struct Literal final : Expression {
  Literal(Position p, Value v) : Expression(ExpressionKind::literal, p), value(std::move(v)) {}
  Value value;
};

struct Name final : Expression {
  Name(Position p, Value n) : Expression(ExpressionKind::name, p), name(std::move(n)) {}
  Value name;  ///< a string
  Slot slot;
};

/// `ns.name` as the target of a set.
struct NamespaceTarget final : Expression {
  NamespaceTarget(Position p, Value n, Value a)
      : Expression(ExpressionKind::namespace_target, p), name(std::move(n)), attribute(std::move(a)) {}
  Value name;
  Value attribute;
  Slot slot;
};

/// A list or tuple display, or a tuple of targets.
struct Sequence final : Expression {
  Sequence(Position p, bool t) : Expression(ExpressionKind::sequence, p), is_tuple(t) {}
  bool is_tuple;
  std::vector<ExpressionPtr> items;
};

struct DictDisplay final : Expression {
  explicit DictDisplay(Position p) : Expression(ExpressionKind::dict, p) {}
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};

struct Attribute final : Expression {
  Attribute(Position p, ExpressionPtr o, Value n)
      : Expression(ExpressionKind::attribute, p),
        object(std::move(o)),
        name(std::move(n)),
        methods(find_methods(name.string())) {}
  ExpressionPtr object;
  Value name;
  Methods methods;  ///< what Python's str, list, tuple and dict have under this name
};

struct Subscript final : Expression {
  Subscript(Position p, ExpressionPtr o, ExpressionPtr i)
      : Expression(ExpressionKind::subscript, p), object(std::move(o)), index(std::move(i)) {}
  ExpressionPtr object, index;
};

struct Slice final : Expression {
  Slice(Position p, ExpressionPtr o) : Expression(ExpressionKind::slice, p), object(std::move(o)) {}
  ExpressionPtr object;
  ExpressionPtr start, stop, step;  ///< null where left out
};

struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr spread;        ///< after *
  ExpressionPtr named_spread;  ///< after **
};

struct Call final : Expression {
  Call(Position p, ExpressionPtr c) : Expression(ExpressionKind::call, p), callee(std::move(c)) {}
  ExpressionPtr callee;
  ArgumentList arguments;
};

/// `function` is null for a name that does not exist but stands in a branch that may never run.
struct Filter final : Expression {
  Filter(Position p, ExpressionPtr i, std::string n)
      : Expression(ExpressionKind::filter, p), input(std::move(i)), name(std::move(n)) {}
  ExpressionPtr input;  ///< null in filter blocks and set blocks: the text of the block
  std::string name;
  FilterFunction function = nullptr;
  ArgumentList arguments;
};

struct Test final : Expression {
  Test(Position p, ExpressionPtr i, std::string n)
      : Expression(ExpressionKind::test, p), input(std::move(i)), name(std::move(n)) {}
  ExpressionPtr input;
  std::string name;
  TestFunction function = nullptr;
  ArgumentList arguments;
};

enum class Operator : uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  negate,
  plus,
  logical_not
};

struct Unary final : Expression {
  Unary(Position p, Operator o, ExpressionPtr e) : Expression(ExpressionKind::unary, p), op(o), operand(std::move(e)) {}
  Operator op;
  ExpressionPtr operand;
};

struct Binary final : Expression {
  Binary(Position p, Operator o, ExpressionPtr l, ExpressionPtr r)
      : Expression(ExpressionKind::binary, p), op(o), left(std::move(l)), right(std::move(r)) {}
  Operator op;
  ExpressionPtr left, right;
};

/// A chain of `and`, or of `or`.
struct Logic final : Expression {
  Logic(Position p, bool a) : Expression(ExpressionKind::logic, p), is_and(a) {}
  bool is_and;
  std::vector<ExpressionPtr> operands;
};

/// A chain of `~`.
struct Concat final : Expression {
  explicit Concat(Position p) : Expression(ExpressionKind::concat, p) {}
  std::vector<ExpressionPtr> parts;
};

enum class Comparison : uint8_t { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

/// `a < b <= c`: every operand is evaluated once, and the chain ends at the first false link.
struct Compare final : Expression {
  Compare(Position p, ExpressionPtr f) : Expression(ExpressionKind::compare, p), first(std::move(f)) {}
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> links;
};

struct Conditional final : Expression {
  Conditional(Position p, ExpressionPtr c, ExpressionPtr t, ExpressionPtr o)
      : Expression(ExpressionKind::conditional, p),
        condition(std::move(c)),
        then(std::move(t)),
        otherwise(std::move(o)) {}
  ExpressionPtr condition, then, otherwise;  ///< otherwise may be null
};

// ---- Statements
// ------------------------------------------------------------------------------------------------------

enum class StatementKind : uint8_t {
  text,
  print,
  set,
  set_block,
  loop,
  branch,
  macro,
  call_block,
  generation,
  filter_block,
  with,
  leave_loop,
  next_round
};

struct Statement {
  Statement(StatementKind k, Position p) : kind(k), at(p) {}
  virtual ~Statement() = default;
  const StatementKind kind;
  Position at;
};
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

struct Text final : Statement {
  Text(Position p, std::string t) : Statement(StatementKind::text, p), text(std::move(t)) {}
  std::string text;
};

struct Print final : Statement {
  Print(Position p, ExpressionPtr e) : Statement(StatementKind::print, p), value(std::move(e)) {}
  ExpressionPtr value;
};

struct Set final : Statement {
  explicit Set(Position p) : Statement(StatementKind::set, p) {}
  ExpressionPtr target, value;
};

struct SetBlock final : Statement {
  explicit SetBlock(Position p) : Statement(StatementKind::set_block, p) {}
  ExpressionPtr target;
  ExpressionPtr filter;  ///< null, or the filters the text goes through
  Loads loads;
  Body body;
};

/// The code and variables of a macro, a call block or a generation block.
struct Function {
  std::string name;  ///< empty: anonymous
  std::vector<std::unique_ptr<Name>> parameters;
  std::vector<ExpressionPtr> defaults;  ///< of the last parameters
  bool takes_caller = false;
  bool takes_kwargs = false;
  bool takes_varargs = false;
  bool caller_is_parameter = false;
  uint16_t caller_index = 0, kwargs_index = 0, varargs_index = 0;
  uint16_t slots = 0;
  Loads loads;
  Body body;
};

struct Loop final : Statement {
  explicit Loop(Position p) : Statement(StatementKind::loop, p) {}
  ExpressionPtr target, source;
  ExpressionPtr test_target;  ///< the same target among the variables of the test
  ExpressionPtr test;         ///< null, or the condition after `if`
  bool recursive = false;
  bool uses_loop = false;  ///< the body names `loop`
  uint16_t loop_index = 0;
  uint16_t slots = 0;  ///< of its own frame, if recursive
  Loads loads, test_loads, else_loads;
  Body body, otherwise;
};

struct Branch final : Statement {
  explicit Branch(Position p) : Statement(StatementKind::branch, p) {}
  std::vector<std::pair<ExpressionPtr, Body>> cases;
  Body otherwise;
};

struct Macro final : Statement {
  Macro(Position p, Value n) : Statement(StatementKind::macro, p), target(p, std::move(n)) {}
  Name target;
  Function function;
};

struct CallBlock final : Statement {
  explicit CallBlock(Position p) : Statement(StatementKind::call_block, p) {}
  std::unique_ptr<Expression> call;  ///< a Call
  Function function;
};

/// `{% generation %}`: marks what the assistant said; renders as its body.
struct Generation final : Statement {
  explicit Generation(Position p) : Statement(StatementKind::generation, p) {}
  Function function;
};

struct FilterBlock final : Statement {
  explicit FilterBlock(Position p) : Statement(StatementKind::filter_block, p) {}
  ExpressionPtr filter;
  Loads loads;
  Body body;
};

struct With final : Statement {
  explicit With(Position p) : Statement(StatementKind::with, p) {}
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> variables;
  Loads loads;
  Body body;
};

/// break
struct LeaveLoop final : Statement {
  explicit LeaveLoop(Position p) : Statement(StatementKind::leave_loop, p) {}
};

/// continue
struct NextRound final : Statement {
  explicit NextRound(Position p) : Statement(StatementKind::next_round, p) {}
};

/// A whole template.
struct Tree {
  uint16_t slots = 0;
  Loads loads;
  Body body;
};

}  // namespace gristmill::jinja
