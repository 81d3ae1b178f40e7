#include <charconv>
#include <cmath>

#include "text/jinja/filters.h"
#include "text/jinja/json.h"
#include "text/jinja/markup.h"
#include "text/jinja/method.h"
#include "text/jinja/object.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace gristmill::jinja {
namespace {

Value default_value(Interpreter&, const Value& input, Arguments& arguments) {
  const auto [otherwise, boolean] = bind(arguments, "default", {"default_value", "boolean"});
  if (!input.is_undefined() && !(truth_or(boolean, false) && !truth(input))) return input;
  return otherwise.is_missing() ? Value("") : otherwise;
}

Value absolute(Interpreter&, const Value& input, Arguments& arguments) {
  expect_none(arguments, "abs");
  if (input.is(Kind::real)) return std::fabs(input.real());
  if (!input.is_integral()) fail("bad operand type for abs(): '", input.type_name(), "'");
  return input.integer() < 0 ? apply_sign(Operator::negate, input) : Value(input.integer());
}

Value length(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  expect_none(arguments, "len");
  if (input.is_string()) interpreter.budget().scan(input.string().size());
  return length_of(input);
}

Value list(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  expect_none(arguments, "list");
  return Value(to_list(input, interpreter.budget()));
}

Value string(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  expect_none(arguments, "string");
  return soft_text(interpreter, input);
}

Value safe(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  expect_none(arguments, "safe");
  return input.is_markup() ? input : Value::markup(interpreter.text_of(input).string());
}

Value escape(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  expect_none(arguments, "escape");
  return escaped(input, interpreter.budget());
}

Value force_escape(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  expect_none(arguments, "forceescape");
  return escaped(Value(interpreter.text_of(input).string()), interpreter.budget());
}

/// The attribute alone: unlike `.`, this does not fall back to items.
Value attribute(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [name_value] = bind(arguments, "attr", {"name"}, 1);
  const Value name = interpreter.text_of(name_value);
  if (input.is_dict() && !find_methods(name.string()).of_dict) return Value::undefined_member(input, name);
  return interpreter.get_attribute(input, name, find_methods(name.string()));
}

// ---- Numbers
// ---------------------------------------------------------------------------------------------------------

int64_t truncated(double value) {
  if (std::isnan(value)) fail("cannot convert float NaN to integer");
  if (std::isinf(value)) fail("cannot convert float infinity to integer");
  if (!(std::fabs(value) < 0x1p63)) fail("the result does not fit a 64-bit integer");
  return static_cast<int64_t>(value);
}

Value to_integer(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [otherwise, base] = bind(arguments, "int", {"default", "base"});
  const Value fallback = otherwise.is_missing() ? Value(0) : otherwise;
  if (input.is_undefined()) fail(input.undefined_message());
  if (input.is_integral()) return input.integer();
  if (input.is(Kind::real)) return std::isnan(input.real()) ? fallback : Value(truncated(input.real()));
  if (!input.is_string()) return fallback;
  interpreter.budget().scan(input.string().size());
  const int64_t radix = integer_or(base, 10, "base");
  if (radix >= 0 && radix <= 36 && radix != 1) {
    if (const auto value = parse_integer(input.string(), static_cast<int>(radix))) return *value;
  }
  const auto value = parse_float(input.string());
  return value && std::isfinite(*value) ? Value(truncated(*value)) : fallback;
}

Value to_float(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [otherwise] = bind(arguments, "float", {"default"});
  if (input.is_undefined()) fail(input.undefined_message());
  if (input.is_number()) return input.real();
  if (input.is_string()) {
    interpreter.budget().scan(input.string().size());
    if (const auto value = parse_float(input.string())) return *value;
  }
  return otherwise.is_missing() ? Value(0.0) : otherwise;
}

/// Half to even, on the exact decimal value of the float, as Python's round().
double round_to(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 330) return value;
  if (digits < -330) return std::copysign(0.0, value);
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / unit) * unit;
  }
  char text[800];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, static_cast<int>(digits));
  double rounded = 0;
  std::from_chars(text, end.ptr, rounded);
  return rounded;
}

int64_t round_integer(int64_t value, int64_t digits) {
  if (digits >= 0) return value;
  if (digits < -18) return 0;
  int64_t unit = 1;
  for (int64_t i = digits; i < 0; ++i) unit *= 10;
  const int64_t down = floor_divide(value, unit), rest = floor_modulo(value, unit);
  const bool up = rest > unit - rest || (rest == unit - rest && down % 2 != 0);
  int64_t rounded = 0;
  if (__builtin_mul_overflow(down + (up ? 1 : 0), unit, &rounded)) fail("the result does not fit a 64-bit integer");
  return rounded;
}

Value round(Interpreter&, const Value& input, Arguments& arguments) {
  const auto [precision, method] = bind(arguments, "round", {"precision", "method"});
  const int64_t digits = integer_or(precision, 0, "precision");
  const std::string how = method.is_string() ? method.string() : "common";
  if (!input.is_number()) fail("type ", input.type_name(), " doesn't define __round__ method");
  if (how == "common") {
    return input.is_integral() ? Value(round_integer(input.integer(), digits)) : Value(round_to(input.real(), digits));
  }
  if (how != "ceil" && how != "floor") fail("method must be common, ceil or floor");
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = input.real() * unit;
  return static_cast<double>(truncated(how == "ceil" ? std::ceil(scaled) : std::floor(scaled))) / unit;
}

// ---- JSON
// ------------------------------------------------------------------------------------------------------------

Value tojson(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [ascii, indent, separators, sort_keys] =
      bind(arguments, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = truth_or(ascii, false);
  style.sort_keys = truth_or(sort_keys, false);
  style.room = interpreter.budget().text_room();
  if (indent.is_string()) {
    style.indent = indent.string();
  } else if (!indent.is_missing() && !indent.is_none()) {
    const int64_t width = std::clamp<int64_t>(integer_or(indent, 0, "indent"), 0, int64_t{1} << 30);
    interpreter.budget().text(static_cast<uint64_t>(width));
    style.indent = std::string(static_cast<size_t>(width), ' ');
  }
  if (!separators.is_missing() && !separators.is_none()) {
    if (!separators.is_sequence() || separators.list().size() != 2 || !separators.list()[0].is_string() ||
        !separators.list()[1].is_string()) {
      fail("separators must be a pair of strings");
    }
    style.item_separator = separators.list()[0].string();
    style.key_separator = separators.list()[1].string();
  }
  std::string text = to_json(input, style);
  interpreter.budget().text(text.size());
  return Value(std::move(text));
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text, int base) {
  text = unicode::strip_left(unicode::strip_right(text));
  bool negative = false;
  if (text.starts_with('-') || text.starts_with('+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 0x20);
    const int prefixed = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefixed != 0 && (base == prefixed || base == 0)) {
      base = prefixed;
      text.remove_prefix(2);
      if (text.starts_with('_')) text.remove_prefix(1);
    }
  }
  if (base == 0) base = 10;
  std::string digits(negative ? "-" : "");
  for (size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && i + 1 < text.size() && text[i - 1] != '_';
    if (text[i] == '_' && between) continue;
    if (text[i] == '-') return std::nullopt;
    digits += text[i];
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (end != digits.data() + digits.size() || text.empty()) return std::nullopt;
  if (error == std::errc::result_out_of_range) fail("the integer does not fit 64 bits");
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::optional<double> parse_float(std::string_view text) {
  text = unicode::strip_left(unicode::strip_right(text));
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto is_digit = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
    if (text[i] == '_' && i > 0 && is_digit(i - 1) && is_digit(i + 1)) continue;
    digits += text[i];
  }
  if (digits.starts_with('+')) digits.erase(0, 1);
  if (digits.empty() || digits[0] == '+' || digits.find('(') != digits.npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    const bool tiny = digits.find("e-") != digits.npos || digits.find("E-") != digits.npos;
    return (digits[0] == '-' ? -1.0 : 1.0) * (tiny ? 0.0 : HUGE_VAL);
  }
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::span<const FilterEntry> value_filters() {
  static constexpr FilterEntry filters[] = {
      {"abs", absolute},
      {"attr", attribute},
      {"count", length},
      {"d", default_value},
      {"default", default_value},
      {"e", escape},
      {"escape", escape},
      {"float", to_float},
      {"forceescape", force_escape},
      {"int", to_integer},
      {"length", length},
      {"list", list},
      {"round", round},
      {"safe", safe},
      {"string", string},
      {"tojson", tojson},
  };
  return filters;
}

}  // namespace gristmill::jinja
