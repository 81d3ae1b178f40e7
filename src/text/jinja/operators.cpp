#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "text/jinja/compare.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/markup.h"
#include "text/jinja/object.h"
#include "text/jinja/printf_format.h"
#include "text/jinja/unicode.h"

namespace gristmill::jinja {
namespace {

constexpr std::string_view sign_of(Operator op) {
  switch (op) {
    case Operator::add:
    case Operator::plus:
      return "+";
    case Operator::subtract:
    case Operator::negate:
      return "-";
    case Operator::multiply:
      return "*";
    case Operator::divide:
      return "/";
    case Operator::floor_divide:
      return "//";
    case Operator::modulo:
      return "%";
    case Operator::power:
      return "**";
    case Operator::logical_not:
      return "not";
  }
  return "?";
}

[[noreturn]] void unsupported(Operator op, const Value& left, const Value& right) {
  fail("unsupported operand type(s) for ", sign_of(op), ": '", left.type_name(), "' and '", right.type_name(), "'");
}

[[noreturn]] void overflow() {
  fail("the result does not fit a 64-bit integer");
}

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return result;
}

Value integer_operation(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Operator::add:
      if (__builtin_add_overflow(a, b, &result)) overflow();
      return result;
    case Operator::subtract:
      if (__builtin_sub_overflow(a, b, &result)) overflow();
      return result;
    case Operator::multiply:
      if (__builtin_mul_overflow(a, b, &result)) overflow();
      return result;
    case Operator::divide:
      if (b == 0) fail("division by zero");
      // Python rounds the exact quotient; beyond 2^53 the operands are no doubles.
      return static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b));
    case Operator::floor_divide:
    case Operator::modulo:
      if (b == 0) fail("integer division or modulo by zero");
      if (b == -1 && a == std::numeric_limits<int64_t>::min()) overflow();
      return op == Operator::modulo ? floor_modulo(a, b) : floor_divide(a, b);
    case Operator::power:
      if (b >= 0) return integer_power(a, b);
      if (a == 0) fail("0.0 cannot be raised to a negative power");
      return std::pow(static_cast<double>(a), static_cast<double>(b));
    default:
      overflow();
  }
}

double float_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

Value float_operation(Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return a + b;
    case Operator::subtract:
      return a - b;
    case Operator::multiply:
      return a * b;
    case Operator::divide:
      if (b == 0) fail("float division by zero");
      return a / b;
    case Operator::floor_divide: {
      if (b == 0) fail("float floor division by zero");
      const double quotient = (a - float_modulo(a, b)) / b;
      const double whole = std::floor(quotient);
      return quotient - whole > 0.5 ? whole + 1 : whole;
    }
    case Operator::modulo:
      if (b == 0) fail("float modulo by zero");
      return float_modulo(a, b);
    case Operator::power: {
      if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
      if (a < 0 && std::floor(b) != b) fail("complex numbers are not supported");
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) fail("the result is too large for a float");
      return result;
    }
    default:
      overflow();
  }
}

Value repeat(const Value& sequence, int64_t times, Budget& budget) {
  const size_t size = sequence.is_string() ? sequence.string().size() : sequence.list().size();
  const uint64_t count = times > 0 && size > 0 ? static_cast<uint64_t>(times) : 0;
  uint64_t total = 0;
  if (__builtin_mul_overflow(count, uint64_t{size}, &total)) total = std::numeric_limits<uint64_t>::max() / 64;
  if (sequence.is_string()) {
    budget.text(total);
    std::string text;
    text.reserve(total);
    for (uint64_t i = 0; i < count; ++i) text += sequence.string();
    return sequence.is_markup() ? Value::markup(std::move(text)) : Value(std::move(text));
  }
  budget.items(std::min(total, std::numeric_limits<uint64_t>::max() / 64));
  List items;
  items.reserve(total);
  for (uint64_t i = 0; i < count; ++i) items.insert(items.end(), sequence.list().begin(), sequence.list().end());
  return sequence.is(Kind::tuple) ? Value::tuple(std::move(items)) : Value(std::move(items));
}

Value concatenate(const Value& left, const Value& right, Budget& budget) {
  if (left.is_string()) {
    if (left.is_markup() || right.is_markup()) {
      return Value::markup(escaped(left, budget).string() + escaped(right, budget).string());
    }
    budget.text(left.string().size() + right.string().size());
    std::string text;
    text.reserve(left.string().size() + right.string().size());
    text += left.string();
    text += right.string();
    return Value(std::move(text));
  }
  budget.items(left.list().size() + right.list().size());
  List items;
  items.reserve(left.list().size() + right.list().size());
  items.insert(items.end(), left.list().begin(), left.list().end());
  items.insert(items.end(), right.list().begin(), right.list().end());
  return left.is(Kind::tuple) ? Value::tuple(std::move(items)) : Value(std::move(items));
}

bool text_contains(const std::string& text, const Value& part, Budget& budget) {
  if (!part.is_string()) fail("'in <string>' requires string as left operand, not ", part.type_name());
  budget.scan(text.size() + part.string().size());
  return part.string().empty() || memmem(text.data(), text.size(), part.string().data(), part.string().size());
}

/// A slice bound, clipped as Python does.
int64_t bound(const Value& value, int64_t length, int64_t otherwise, int64_t low, int64_t high) {
  if (value.is_none()) return otherwise;
  if (value.is_undefined()) fail(value.undefined_message());
  if (!value.is_integral()) fail("slice indices must be integers or None");
  int64_t index = value.integer();
  if (index < 0) index += length;
  return std::clamp(index, low, high);
}

struct SliceRange {
  int64_t start = 0, step = 1;
  size_t count = 0;
};

SliceRange slice_range(size_t size, const Value& start, const Value& stop, const Value& step) {
  const auto length = static_cast<int64_t>(size);
  const int64_t stride = bound(step, 0, 1, -length - 1, length + 1);
  if (stride == 0) fail("slice step cannot be zero");  // clipping large steps leaves what they select
  const bool forward = stride > 0;
  const int64_t low = forward ? 0 : -1, high = forward ? length : length - 1;
  const int64_t first = bound(start, length, forward ? 0 : length - 1, low, high);
  const int64_t last = bound(stop, length, forward ? length : -1, low, high);
  const int64_t span = forward ? last - first : first - last;
  const int64_t width = forward ? stride : -stride;
  return {first, stride, span > 0 ? static_cast<size_t>((span + width - 1) / width) : 0};
}

std::string slice_text(const Value& text, const SliceRange& range) {
  const std::string& bytes = text.string();
  if (range.count == 0) return {};
  if (range.step == 1) {
    // One run of the text.
    if (text.text_length() == bytes.size()) return bytes.substr(static_cast<size_t>(range.start), range.count);
    const size_t begin = unicode::offset_of(bytes, static_cast<size_t>(range.start));
    const std::string_view rest = std::string_view(bytes).substr(begin);
    return std::string(rest.substr(0, unicode::offset_of(rest, range.count)));
  }
  std::string out;
  size_t at = unicode::offset_of(bytes, static_cast<size_t>(range.start));
  for (size_t i = 0; i < range.count; ++i) {
    size_t next = at;
    unicode::decode(bytes, next);
    out.append(bytes, at, next - at);
    if (i + 1 == range.count) break;
    if (range.step > 0) {
      at += unicode::offset_of(std::string_view(bytes).substr(at), static_cast<size_t>(range.step));
    } else {
      for (int64_t back = range.step; back < 0; ++back) unicode::decode_back(bytes, at);
    }
  }
  return out;
}

}  // namespace

int64_t floor_modulo(int64_t a, int64_t b) {
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value add(const Value& left, const Value& right, Budget& budget) {
  for (const Value* side : {&left, &right}) {
    if (side->is_undefined()) fail(side->undefined_message());
  }
  if (left.is_integral() && right.is_integral()) {
    return integer_operation(Operator::add, left.integer(), right.integer());
  }
  if (left.is_number() && right.is_number()) return left.real() + right.real();
  if (left.is_string() && right.is_string()) return concatenate(left, right, budget);
  if (left.is_sequence() && left.kind() == right.kind()) return concatenate(left, right, budget);
  if (left.is_string()) fail("can only concatenate str (not \"", right.type_name(), "\") to str");
  if (left.is_sequence()) {
    fail("can only concatenate ", left.type_name(), " (not \"", right.type_name(), "\") to ", left.type_name());
  }
  unsupported(Operator::add, left, right);
}

Value apply(Operator op, const Value& left, const Value& right, Interpreter& interpreter) {
  if (op == Operator::add) return add(left, right, interpreter.budget());
  if (op == Operator::modulo && left.is_string()) return printf_format(left, right, interpreter);
  for (const Value* side : {&left, &right}) {
    if (side->is_undefined()) fail(side->undefined_message());
  }
  if (left.is_integral() && right.is_integral()) return integer_operation(op, left.integer(), right.integer());
  if (left.is_number() && right.is_number()) return float_operation(op, left.real(), right.real());
  if (op == Operator::multiply) {
    if ((left.is_string() || left.is_sequence()) && right.is_integral()) {
      return repeat(left, right.integer(), interpreter.budget());
    }
    if ((right.is_string() || right.is_sequence()) && left.is_integral()) {
      return repeat(right, left.integer(), interpreter.budget());
    }
  }
  unsupported(op, left, right);
}

Value apply_sign(Operator op, const Value& operand) {
  if (operand.is_undefined()) fail(operand.undefined_message());
  if (operand.is_integral()) {
    return op == Operator::negate ? integer_operation(Operator::subtract, 0, operand.integer())
                                  : Value(operand.integer());
  }
  if (operand.is(Kind::real)) return op == Operator::negate ? -operand.real() : operand.real();
  fail("bad operand type for unary ", sign_of(op), ": '", operand.type_name(), "'");
}

bool compare(Comparison comparison, const Value& left, const Value& right, Budget& budget) {
  switch (comparison) {
    case Comparison::equal:
      return equals(left, right, budget);
    case Comparison::not_equal:
      return !equals(left, right, budget);
    case Comparison::less:
      return order(left, right, "<", budget) < 0;
    case Comparison::less_equal:
      return order(left, right, "<=", budget) <= 0;
    case Comparison::greater:
      return order(left, right, ">", budget) > 0;
    case Comparison::greater_equal:
      return order(left, right, ">=", budget) >= 0;
    case Comparison::in:
      return contains(right, left, budget);
    case Comparison::not_in:
      return !contains(right, left, budget);
  }
  return false;
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (container.is_string()) return text_contains(container.string(), item, budget);
  if (container.is_dict()) {
    charge_key(item, budget);
    return container.dict().find(item) != nullptr;
  }
  const auto* view = container.as<DictView>();
  if (view && view->part() == DictView::Part::keys) {
    charge_key(item, budget);
    return view->dict().find(item) != nullptr;
  }
  if (!is_iterable(container)) fail("argument of type '", container.type_name(), "' is not iterable");
  Iterator iterator(container);
  Value candidate;
  while (iterator.next(candidate)) {
    budget.steps(1);
    if (equals(candidate, item, budget)) return true;
  }
  return false;
}

Value item_at(const Value& sequence, int64_t index, Budget& budget) {
  const bool is_object = sequence.is(Kind::object) && sequence.object().subscriptable();
  if (!sequence.is_string() && !sequence.is_sequence() && !is_object) return Value::missing();
  const auto length = static_cast<int64_t>(length_of(sequence));
  if (index < 0) index += length;
  if (index < 0 || index >= length) return Value::missing();
  const auto at = static_cast<size_t>(index);
  if (sequence.is_sequence()) return sequence.list()[at];
  if (is_object) return sequence.object().item(at);
  const std::string& text = sequence.string();
  if (static_cast<size_t>(length) != text.size()) budget.scan(text.size());
  std::string character = slice_text(sequence, {index, 1, 1});
  return sequence.is_markup() ? Value::markup(std::move(character)) : Value(std::move(character));
}

Value slice(const Value& object, const Value& start, const Value& stop, const Value& step, Budget& budget) {
  if (object.is_undefined()) fail(object.undefined_message());
  if (object.is_dict()) fail("unhashable type: 'slice'");
  const bool is_object = object.is(Kind::object) && object.object().subscriptable();
  if (!object.is_string() && !object.is_sequence() && !is_object) {
    fail("'", object.type_name(), "' object is not subscriptable");
  }
  const SliceRange range = slice_range(length_of(object), start, stop, step);
  if (object.is_string()) {
    budget.scan(object.string().size());
    budget.text(range.count);
    std::string text = slice_text(object, range);
    return object.is_markup() ? Value::markup(std::move(text)) : Value(std::move(text));
  }
  budget.items(range.count);
  List items;
  items.reserve(range.count);
  for (size_t i = 0; i < range.count; ++i) {
    items.push_back(item_at(object, range.start + static_cast<int64_t>(i) * range.step, budget));
  }
  return object.is(Kind::tuple) ? Value::tuple(std::move(items)) : Value(std::move(items));
}

List to_list(const Value& iterable, Budget& budget) {
  if (iterable.is_sequence()) {
    budget.items(iterable.list().size());
    return iterable.list();
  }
  List items;
  Iterator iterator(iterable);
  Value item;
  while (iterator.next(item)) {
    budget.values(1);
    items.push_back(std::move(item));
  }
  return items;
}

Value dict_from_keys(const Value& keys, const Value& value, Budget& budget) {
  Dict dict;
  Iterator iterator(keys);
  Value key;
  while (iterator.next(key)) {
    budget.values(1);
    charge_key(key, budget);
    dict.set(key, value);
  }
  return Value(std::move(dict));
}

Dict dict_from(const Value& source, Budget& budget) {
  if (source.is_dict()) {
    budget.items(2 * source.dict().size());
    return source.dict();
  }
  Dict dict;
  Iterator iterator(source);
  Value pair;
  while (iterator.next(pair)) {
    budget.values(1);
    const List items = to_list(pair, budget);
    if (items.size() != 2) fail("dict() needs pairs; one item has length ", items.size());
    charge_key(items[0], budget);
    dict.set(items[0], items[1]);
  }
  return dict;
}

bool is_hashable(const Value& key) {
  if (key.is(Kind::list) || key.is_dict()) return false;
  return !key.is(Kind::tuple) || std::all_of(key.list().begin(), key.list().end(), is_hashable);
}

void charge_key(const Value& key, Budget& budget) {
  if (key.is_string()) budget.scan(key.string().size());
  if (!key.is(Kind::tuple)) return;
  budget.steps(key.list().size());
  for (const Value& item : key.list()) charge_key(item, budget);
}

}  // namespace gristmill::jinja
