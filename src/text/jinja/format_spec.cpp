#include "text/jinja/format_spec.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/number_text.h"
#include "text/jinja/python_text.h"
#include "text/jinja/unicode.h"

namespace gristmill::jinja {
namespace {

constexpr int64_t widest = int64_t{1} << 30;

struct Spec {
  std::string fill = " ";
  char align = 0;
  char sign = '-';
  bool alternate = false;
  int64_t width = 0;
  char grouping = 0;
  int64_t precision = -1;
  char type = 0;
};

bool is_align(char32_t c) {
  return c == '<' || c == '>' || c == '=' || c == '^';
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  const auto number = [&] {
    int64_t value = 0;
    while (peek() >= '0' && peek() <= '9') value = std::min(widest, value * 10 + (text[at++] - '0'));
    return value;
  };
  if (!text.empty()) {
    size_t after_fill = 0;
    unicode::decode(text, after_fill);
    if (after_fill < text.size() && is_align(static_cast<unsigned char>(text[after_fill]))) {
      spec.fill = text.substr(0, after_fill);
      spec.align = text[after_fill];
      at = after_fill + 1;
    } else if (is_align(static_cast<unsigned char>(text[0]))) {
      spec.align = text[at++];
    }
  }
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = text[at++];
  if (peek() == '#') {
    spec.alternate = true;
    ++at;
  }
  if (peek() == '0') {
    ++at;
    if (spec.align == 0) {
      spec.fill = "0";
      spec.align = '=';
    }
  }
  spec.width = number();
  if (peek() == ',' || peek() == '_') spec.grouping = text[at++];
  if (peek() == '.') {
    ++at;
    if (peek() < '0' || peek() > '9') fail("format specifier is missing the precision");
    spec.precision = number();
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) fail("invalid format specifier ", quoted(text));
  return spec;
}

void append_fill(std::string& out, const Spec& spec, size_t count) {
  for (size_t i = 0; i < count; ++i) out += spec.fill;
}

/// Puts `head` and `body` into the width; '=' fills between them.
std::string aligned(const Spec& spec, std::string_view head, std::string_view body, char otherwise) {
  const size_t length = unicode::count(head) + unicode::count(body);
  const size_t missing = static_cast<size_t>(spec.width) > length ? static_cast<size_t>(spec.width) - length : 0;
  const char align = spec.align ? spec.align : otherwise;
  const size_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  std::string out;
  append_fill(out, spec, before);
  out += head;
  if (align == '=') append_fill(out, spec, missing);
  out += body;
  if (align == '<' || align == '^') append_fill(out, spec, missing - before);
  return out;
}

/// Separators between groups of the whole digits, with zeros in front until it is `width` long.
std::string grouped(std::string whole, char separator, size_t group, size_t width) {
  const auto length = [&] { return whole.size() + (whole.empty() ? 0 : (whole.size() - 1) / group); };
  if (width > length()) {
    // About one separator per group of the missing width, then one by one.
    const size_t zeros = (width - length()) * group / (group + 1);
    whole.insert(0, zeros, '0');
    while (length() < width) whole.insert(0, 1, '0');
  }
  std::string out;
  for (size_t i = 0; i < whole.size(); ++i) {
    if (i > 0 && (whole.size() - i) % group == 0) out += separator;
    out += whole[i];
  }
  return out;
}

std::string number_text(const Spec& spec, bool negative, std::string_view prefix, std::string digits) {
  std::string head(negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign));
  head += prefix;
  if (spec.grouping) {
    const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
    const std::string rest = digits.substr(whole);
    const size_t group = spec.type == 'b' || spec.type == 'o' || spec.type == 'x' || spec.type == 'X' ? 4 : 3;
    const size_t taken = head.size() + rest.size();
    const size_t width = static_cast<size_t>(spec.width);
    const bool zeros = spec.fill == "0" && spec.align == '=';
    digits = grouped(digits.substr(0, whole), spec.grouping, group, zeros && width > taken ? width - taken : 0) + rest;
  }
  return aligned(spec, head, digits, '>');
}

std::string format_integer(const Spec& spec, int64_t value) {
  if (spec.precision >= 0) fail("precision not allowed in integer format specifier");
  int base = 10;
  std::string prefix;
  switch (spec.type) {
    case 0:
    case 'd':
    case 'n':
      break;
    case 'b':
      base = 2;
      break;
    case 'o':
      base = 8;
      break;
    case 'x':
    case 'X':
      base = 16;
      break;
    case 'c': {
      if (value < 0 || value > 0x10ffff) fail("%c arg not in range(0x110000)");
      std::string text;
      unicode::append(text, static_cast<char32_t>(value));
      return aligned(spec, "", text, '<');
    }
    default:
      fail("unknown format code '", std::string(1, spec.type), "' for object of type 'int'");
  }
  if (spec.alternate && base != 10) prefix = std::string("0") + spec.type;
  return number_text(spec, value < 0, prefix, digits_of(magnitude_of(value), base, spec.type == 'X'));
}

std::string format_float(const Spec& spec, double value) {
  const double magnitude = std::fabs(value);
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  std::string digits;
  switch (spec.type) {
    case 0:
      digits = spec.precision < 0 ? float_text(magnitude) : float_digits(magnitude, 'g', precision);
      if (std::isfinite(value) && digits.find_first_of(".e") == digits.npos) digits += ".0";
      break;
    case 'n':
      digits = float_digits(magnitude, 'g', precision);
      break;
    case '%':
      digits = float_digits(magnitude * 100, 'f', precision) + "%";
      break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      digits = float_digits(magnitude, spec.type, precision);
      break;
    default:
      fail("unknown format code '", std::string(1, spec.type), "' for object of type 'float'");
  }
  return number_text(spec, std::signbit(value) && !std::isnan(value), "", std::move(digits));
}

std::string format_string(const Spec& spec, std::string_view text) {
  if (spec.type != 0 && spec.type != 's') {
    fail("unknown format code '", std::string(1, spec.type), "' for object of type 'str'");
  }
  if (spec.sign != '-' || spec.grouping || spec.alternate || spec.align == '=') {
    fail("sign, '=', '#', ',' and '_' are not allowed in a string format specifier");
  }
  if (spec.precision >= 0) text = text.substr(0, unicode::offset_of(text, static_cast<size_t>(spec.precision)));
  return aligned(spec, "", text, '<');
}

}  // namespace

std::string format_value(const Value& value, std::string_view spec_text, Interpreter& interpreter) {
  if (spec_text.empty()) return interpreter.text_of(value).string();
  Spec spec = parse_spec(spec_text);
  interpreter.budget().text(static_cast<uint64_t>(spec.width) * spec.fill.size() +
                            static_cast<uint64_t>(std::max<int64_t>(0, spec.precision)));
  if (value.is_string()) {
    interpreter.budget().text(value.string().size());
    if (spec.fill == "0" && spec.align == '=') spec.align = '<';  // "05" pads a string behind
    return format_string(spec, value.string());
  }
  const bool as_float = spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (value.is(Kind::real) || (value.is_integral() && as_float)) return format_float(spec, value.real());
  if (value.is_integral()) return format_integer(spec, value.integer());
  fail("unsupported format string passed to ", value.type_name(), ".__format__");
}

}  // namespace gristmill::jinja
