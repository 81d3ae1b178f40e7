#include "text/jinja/compare.h"
#include "text/jinja/method.h"
#include "text/jinja/object.h"
#include "text/jinja/operators.h"

namespace gristmill::jinja {
namespace {

template <DictView::Part part>
Value view(Interpreter&, const Value& self, Arguments& arguments) {
  expect_none(arguments, "this dict method");
  return make_object<DictView>(self, part);
}

Value get(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto [key, otherwise] = bind(arguments, "get", {"key", "default"}, 1);
  charge_key(key, interpreter.budget());
  if (const Value* found = self.dict().find(key)) return *found;
  return otherwise.is_missing() ? Value(nullptr) : otherwise;
}

Value copy(Interpreter&, const Value& self, Arguments& arguments) {
  expect_none(arguments, "copy");
  return self;  // nothing can tell an immutable value from its copy
}

Value from_keys(Interpreter& interpreter, const Value&, Arguments& arguments) {
  const auto [keys, value] = bind(arguments, "fromkeys", {"iterable", "value"}, 1);
  return dict_from_keys(keys, value.is_missing() ? Value(nullptr) : value, interpreter.budget());
}

Value count(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto [wanted] = bind(arguments, "count", {"value"}, 1);
  interpreter.budget().steps(self.list().size());
  int64_t found = 0;
  for (const Value& item : self.list()) found += equals(item, wanted, interpreter.budget()) ? 1 : 0;
  return found;
}

Value index(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto [wanted, start, stop] = bind(arguments, "index", {"value", "start", "stop"}, 1);
  const auto size = static_cast<int64_t>(self.list().size());
  int64_t first = integer_or(start, 0, "start"), last = integer_or(stop, size, "stop");
  if (first < 0) first = std::max<int64_t>(0, first + size);
  if (last < 0) last += size;
  for (int64_t i = first; i < std::min(last, size); ++i) {
    interpreter.budget().steps(1);
    if (equals(self.list()[static_cast<size_t>(i)], wanted, interpreter.budget())) return i;
  }
  fail("the value is not in the ", self.type_name());
}

}  // namespace

std::span<const Method> list_methods() {
  static constexpr Method methods[] = {
      {"append", nullptr, true},  {"clear", nullptr, true},  {"copy", copy},
      {"count", count},           {"extend", nullptr, true}, {"index", index},
      {"insert", nullptr, true},  {"pop", nullptr, true},    {"remove", nullptr, true},
      {"reverse", nullptr, true}, {"sort", nullptr, true},
  };
  return methods;
}

std::span<const Method> tuple_methods() {
  static constexpr Method methods[] = {{"count", count}, {"index", index}};
  return methods;
}

std::span<const Method> dict_methods() {
  static constexpr Method methods[] = {
      {"clear", nullptr, true},
      {"copy", copy},
      {"fromkeys", from_keys},
      {"get", get},
      {"items", view<DictView::Part::items>},
      {"keys", view<DictView::Part::keys>},
      {"pop", nullptr, true},
      {"popitem", nullptr, true},
      {"setdefault", nullptr, true},
      {"update", nullptr, true},
      {"values", view<DictView::Part::values>},
  };
  return methods;
}

}  // namespace gristmill::jinja
