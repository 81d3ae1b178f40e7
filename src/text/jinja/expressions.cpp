#include <algorithm>

#include "text/jinja/compare.h"
#include "text/jinja/interpreter_scopes.h"
#include "text/jinja/method.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"

namespace gristmill::jinja {
namespace {

Value unsafe_attribute(const Value& object, const Value& name) {
  return Value::undefined_hint(
      cat("access to attribute ", repr(name), " of '", object.type_name(), "' object is unsafe"));
}

/// Names that every Python object has and no template may reach.
bool is_internal(std::string_view name) {
  return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

}  // namespace

Value Interpreter::evaluate(const Expression& node) {
  try {
    budget_.steps(1);
    if (node.kind == ExpressionKind::literal) return static_cast<const Literal&>(node).value;
    if (node.kind == ExpressionKind::name) return evaluate_name(static_cast<const Name&>(node));
    const Level level(*this);
    return evaluate_node(node);
  } catch (const TemplateError& error) {
    if (error.line() > 0) throw;
    throw TemplateError(error.fault(), error.message(), node.at);
  }
}

Value Interpreter::evaluate_node(const Expression& node) {
  switch (node.kind) {
    case ExpressionKind::sequence:
      return evaluate_sequence(static_cast<const Sequence&>(node));
    case ExpressionKind::dict:
      return evaluate_dict(static_cast<const DictDisplay&>(node));
    case ExpressionKind::attribute: {
      const auto& attribute = static_cast<const Attribute&>(node);
      return get_attribute(evaluate(*attribute.object), attribute.name, attribute.methods);
    }
    case ExpressionKind::subscript: {
      const auto& subscript = static_cast<const Subscript&>(node);
      const Value object = evaluate(*subscript.object);
      return get_item(object, evaluate(*subscript.index));
    }
    case ExpressionKind::slice:
      return evaluate_slice(static_cast<const Slice&>(node));
    case ExpressionKind::call:
      return evaluate_call(static_cast<const Call&>(node), nullptr);
    case ExpressionKind::filter:
      return evaluate_filter(static_cast<const Filter&>(node));
    case ExpressionKind::test:
      return evaluate_test(static_cast<const Test&>(node));
    case ExpressionKind::unary:
      return evaluate_unary(static_cast<const Unary&>(node));
    case ExpressionKind::binary: {
      const auto& binary = static_cast<const Binary&>(node);
      const Value left = evaluate(*binary.left);
      return apply(binary.op, left, evaluate(*binary.right), *this);
    }
    case ExpressionKind::logic:
      return evaluate_logic(static_cast<const Logic&>(node));
    case ExpressionKind::concat:
      return evaluate_concat(static_cast<const Concat&>(node));
    case ExpressionKind::compare:
      return evaluate_compare(static_cast<const Compare&>(node));
    case ExpressionKind::conditional:
      return evaluate_conditional(static_cast<const Conditional&>(node));
    default:
      fail("a target is not an expression");
  }
}

Value Interpreter::evaluate_name(const Name& node) {
  const Value& value = variable(node.slot);
  return value.is_missing() ? Value::undefined_variable(node.name) : value;
}

Value Interpreter::evaluate_sequence(const Sequence& node) {
  budget_.items(node.items.size());
  List items;
  items.reserve(node.items.size());
  for (const auto& item : node.items) items.push_back(evaluate(*item));
  return node.is_tuple ? Value::tuple(std::move(items)) : Value(std::move(items));
}

Value Interpreter::evaluate_dict(const DictDisplay& node) {
  budget_.items(2 * node.items.size());
  Dict dict;
  for (const auto& [key_node, value_node] : node.items) {
    Value key = evaluate(*key_node);
    charge_key(key, budget_);
    dict.set(std::move(key), evaluate(*value_node));
  }
  return Value(std::move(dict));
}

Value Interpreter::evaluate_slice(const Slice& node) {
  const Value object = evaluate(*node.object);
  const auto part = [&](const ExpressionPtr& expression) {
    return expression ? evaluate(*expression) : Value(nullptr);
  };
  const Value start = part(node.start);
  const Value stop = part(node.stop);
  return slice(object, start, stop, part(node.step), budget_);
}

Value Interpreter::evaluate_unary(const Unary& node) {
  const Value operand = evaluate(*node.operand);
  return node.op == Operator::logical_not ? Value(!jinja::truth(operand)) : apply_sign(node.op, operand);
}

Value Interpreter::evaluate_logic(const Logic& node) {
  for (size_t i = 0; i + 1 < node.operands.size(); ++i) {
    Value value = evaluate(*node.operands[i]);
    if (jinja::truth(value) != node.is_and) return value;
  }
  return evaluate(*node.operands.back());
}

Value Interpreter::evaluate_concat(const Concat& node) {
  std::string text;
  for (const auto& part : node.parts) append_text(text, evaluate(*part), budget_.text_room());
  budget_.text(text.size());
  return Value(std::move(text));
}

bool Interpreter::evaluate_compare(const Compare& node) {
  Value left = evaluate(*node.first);
  for (const auto& [comparison, operand] : node.links) {
    Value right = evaluate(*operand);
    if (!compare(comparison, left, right, budget_)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate_conditional(const Conditional& node) {
  if (jinja::truth(evaluate(*node.condition))) return evaluate(*node.then);
  if (node.otherwise) return evaluate(*node.otherwise);
  return Value::undefined_hint(
      cat("the inline if-expression on line ", node.at.line, " evaluated to false and no else section was defined"));
}

// ---- Calls
// -----------------------------------------------------------------------------------------------------------

Arguments Interpreter::evaluate_arguments(const ArgumentList& list) {
  Arguments arguments;
  arguments.positional.reserve(list.positional.size());
  for (const auto& argument : list.positional) arguments.positional.push_back(evaluate(*argument));
  for (const auto& [name, argument] : list.named) arguments.named.emplace_back(name, evaluate(*argument));
  if (list.spread) {
    Iterator iterator(evaluate(*list.spread));
    Value item;
    while (iterator.next(item)) {
      budget_.items(1);
      arguments.positional.push_back(std::move(item));
    }
  }
  if (!list.named_spread) return arguments;
  const Value named = evaluate(*list.named_spread);
  if (!named.is_dict()) fail("the argument after ** must be a mapping, not ", named.type_name());
  budget_.items(named.dict().size());
  for (const auto& entry : named.dict()) {
    if (!entry.key.is_string()) fail("keywords must be strings");
    for (const auto& [name, argument] : list.named) {
      if (name == entry.key.string()) fail("got multiple values for keyword argument ", repr(entry.key));
    }
    arguments.named.emplace_back(entry.key.string(), entry.value);
  }
  return arguments;
}

Value Interpreter::evaluate_call(const Call& node, const Value* caller) {
  const auto arguments_of = [&] {
    Arguments arguments = evaluate_arguments(node.arguments);
    if (caller) arguments.named.emplace_back("caller", *caller);
    return arguments;
  };
  if (node.callee->kind == ExpressionKind::attribute) {
    // The common case of a method: called without making a bound method first.
    const auto& attribute = static_cast<const Attribute&>(*node.callee);
    const Value object = evaluate(*attribute.object);
    const Method* method = attribute.methods.of(object);
    if (method && !method->changes) {
      Arguments arguments = arguments_of();
      return call_method(*method, object, arguments, *this);
    }
    const Value callee = get_attribute(object, attribute.name, attribute.methods);
    Arguments arguments = arguments_of();
    return call(callee, arguments);
  }
  const Value callee = evaluate(*node.callee);
  Arguments arguments = arguments_of();
  return call(callee, arguments);
}

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  if (callee.is_undefined()) fail(callee.undefined_message());
  if (!callee.is(Kind::object) || !callee.object().callable())
    fail("'", callee.type_name(), "' object is not callable");
  return callee.object().call(*this, arguments);
}

Value Interpreter::evaluate_filter(const Filter& node) {
  const Value input = node.input ? evaluate(*node.input) : *block_text_;
  if (!node.function) fail("there is no filter '", node.name, "'");
  Arguments arguments = evaluate_arguments(node.arguments);
  return node.function(*this, input, arguments);
}

bool Interpreter::evaluate_test(const Test& node) {
  const Value input = evaluate(*node.input);
  if (!node.function) fail("there is no test '", node.name, "'");
  Arguments arguments = evaluate_arguments(node.arguments);
  return node.function(*this, input, arguments);
}

Value Interpreter::text_of(const Value& value) {
  if (value.is_string()) return value;
  std::string text;
  append_text(text, value, budget_.text_room());
  budget_.text(text.size());
  return Value(std::move(text));
}

// ---- Attributes and items
// --------------------------------------------------------------------------------------------

Value Interpreter::get_attribute(const Value& object, const Value& name, const Methods& methods) {
  if (object.is_undefined()) fail(object.undefined_message());
  if (const Method* method = methods.of(object)) {
    return method->changes ? unsafe_attribute(object, name) : bind_method(*method, object);
  }
  if (is_internal(name.string())) return unsafe_attribute(object, name);
  return member_or_undefined(object, name, {});
}

Value Interpreter::member_or_undefined(const Value& object, const Value& name, const Methods& methods) {
  if (object.is_dict()) {
    if (const Value* found = object.dict().find(name)) return *found;
  }
  if (const Method* method = methods.of(object)) {
    return method->changes ? unsafe_attribute(object, name) : bind_method(*method, object);
  }
  if (object.is(Kind::object)) {
    Value found = object.object().attribute(name.string());
    if (!found.is_missing()) return found;
  }
  return Value::undefined_member(object, name);
}

Value Interpreter::get_item(const Value& object, const Value& key) {
  if (object.is_undefined()) fail(object.undefined_message());
  if (key.is_string()) {
    budget_.scan(key.string().size());
    if (object.is_dict()) {
      if (const Value* found = object.dict().find(key)) return *found;
    }
    if (is_internal(key.string())) return unsafe_attribute(object, key);
    return member_or_undefined(object, key, find_methods(key.string()));
  }
  charge_key(key, budget_);
  if (object.is_dict() && is_hashable(key)) {
    if (const Value* found = object.dict().find(key)) return *found;
  }
  if (key.is_integral()) {
    Value item = item_at(object, key.integer(), budget_);
    if (!item.is_missing()) return item;
  }
  return Value::undefined_member(object, key);
}

}  // namespace gristmill::jinja
