#include <cmath>
#include <unordered_map>

#include "text/jinja/compare.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/object.h"
#include "text/jinja/operators.h"
#include "text/jinja/string_search.h"
#include "text/jinja/unicode.h"

namespace gristmill::jinja {
namespace {

/// A test that takes no argument.
template <bool (*test)(const Value&)>
bool plain(Interpreter&, const Value& input, Arguments& arguments) {
  expect_none(arguments, "this test");
  return test(input);
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.is_boolean();
}
bool is_true(const Value& value) {
  return value.is_boolean() && value.boolean();
}
bool is_false(const Value& value) {
  return value.is_boolean() && !value.boolean();
}
bool is_integer(const Value& value) {
  return value.is(Kind::integer);
}
bool is_float(const Value& value) {
  return value.is(Kind::real);
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_string(const Value& value) {
  return value.is_string();
}
bool is_mapping(const Value& value) {
  return value.is_dict();
}
bool is_escaped(const Value& value) {
  return value.is_markup();
}

/// Has a length and items by number, as undefined values of jinja2 also do.
bool is_sequence(const Value& value) {
  if (value.is(Kind::object)) return value.object().subscriptable();
  return value.is_string() || value.is_sequence() || value.is_dict() || value.is_undefined();
}

bool is_callable(const Value& value) {
  return value.is_undefined() || (value.is(Kind::object) && value.object().callable());
}

/// The rest of a number divided by `divisor`.
Value remainder(Interpreter& interpreter, const Value& input, int64_t divisor) {
  return apply(Operator::modulo, input, Value(divisor), interpreter);
}

bool is_odd(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  expect_none(arguments, "odd");
  return equals(remainder(interpreter, input, 2), Value(1), interpreter.budget());
}

bool is_even(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  expect_none(arguments, "even");
  return equals(remainder(interpreter, input, 2), Value(0), interpreter.budget());
}

bool is_divisible(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [number] = bind(arguments, "divisibleby", {"num"}, 1);
  return equals(apply(Operator::modulo, input, number, interpreter), Value(0), interpreter.budget());
}

template <bool (*right_case)(char32_t)>
bool is_case(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  expect_none(arguments, "this test");
  const Value text = interpreter.text_of(input);
  interpreter.budget().scan(text.string().size());
  return all_cased(text.string(), right_case);
}

template <Comparison comparison>
bool compares(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [other] = bind(arguments, "this test", {"other"}, 1);
  return compare(comparison, input, other, interpreter.budget());
}

bool is_same(Interpreter&, const Value& input, Arguments& arguments) {
  const auto [other] = bind(arguments, "sameas", {"other"}, 1);
  return input.same_as(other);
}

bool is_filter(Interpreter&, const Value& input, Arguments& arguments) {
  expect_none(arguments, "filter");
  return input.is_string() && find_filter(input.string()) != nullptr;
}

bool is_test(Interpreter&, const Value& input, Arguments& arguments) {
  expect_none(arguments, "test");
  return input.is_string() && find_test(input.string()) != nullptr;
}

}  // namespace

TestFunction find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, TestFunction> tests = {
      {"!=", compares<Comparison::not_equal>},
      {"<", compares<Comparison::less>},
      {"<=", compares<Comparison::less_equal>},
      {"==", compares<Comparison::equal>},
      {">", compares<Comparison::greater>},
      {">=", compares<Comparison::greater_equal>},
      {"boolean", plain<is_boolean>},
      {"callable", plain<is_callable>},
      {"defined", plain<is_defined>},
      {"divisibleby", is_divisible},
      {"eq", compares<Comparison::equal>},
      {"equalto", compares<Comparison::equal>},
      {"escaped", plain<is_escaped>},
      {"even", is_even},
      {"false", plain<is_false>},
      {"filter", is_filter},
      {"float", plain<is_float>},
      {"ge", compares<Comparison::greater_equal>},
      {"greaterthan", compares<Comparison::greater>},
      {"gt", compares<Comparison::greater>},
      {"in", compares<Comparison::in>},
      {"integer", plain<is_integer>},
      {"iterable", plain<is_iterable>},
      {"le", compares<Comparison::less_equal>},
      {"lessthan", compares<Comparison::less>},
      {"lower", is_case<unicode::is_lowercase>},
      {"lt", compares<Comparison::less>},
      {"mapping", plain<is_mapping>},
      {"ne", compares<Comparison::not_equal>},
      {"none", plain<is_none>},
      {"number", plain<is_number>},
      {"odd", is_odd},
      {"sameas", is_same},
      {"sequence", plain<is_sequence>},
      {"string", plain<is_string>},
      {"test", is_test},
      {"true", plain<is_true>},
      {"undefined", plain<is_undefined>},
      {"upper", is_case<unicode::is_uppercase>},
  };
  const auto found = tests.find(name);
  return found == tests.end() ? nullptr : found->second;
}

}  // namespace gristmill::jinja
