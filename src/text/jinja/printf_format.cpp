#include "text/jinja/printf_format.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/markup.h"
#include "text/jinja/number_text.h"
#include "text/jinja/python_text.h"
#include "text/jinja/unicode.h"

namespace gristmill::jinja {
namespace {

constexpr int64_t widest = int64_t{1} << 30;

/// What stands between % and the letter.
struct Directive {
  bool left = false, plus = false, space = false, zero = false, alternate = false;
  int64_t width = 0;
  int64_t precision = -1;
};

class PrintfFormatter {
 public:
  PrintfFormatter(const Value& format, const Value& arguments, Interpreter& interpreter)
      : format_(format.string()), marked_(format.is_markup()), arguments_(arguments), interpreter_(interpreter) {}

  std::string run() {
    while (at_ < format_.size()) {
      const size_t percent = format_.find('%', at_);
      append(format_.substr(at_, percent - at_));
      if (percent == format_.npos) break;
      at_ = percent + 1;
      directive();
    }
    // Whatever has items by key may be left unused.
    const bool is_mapping = arguments_.is_dict() || arguments_.is(Kind::list) || arguments_.is_undefined() ||
                            (arguments_.is(Kind::object) && arguments_.object().subscriptable());
    const size_t given = arguments_.is(Kind::tuple) ? arguments_.list().size() : 1;
    if (used_ < given && !is_mapping) fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  void append(std::string_view text) {
    interpreter_.budget().text(text.size());
    out_ += text;
  }

  char peek() const {
    if (at_ >= format_.size()) fail("incomplete format");
    return format_[at_];
  }

  Value next_argument() {
    if (named_) return *named_;
    if (!arguments_.is(Kind::tuple)) {
      if (used_++ > 0) fail("not enough arguments for format string");
      return arguments_;
    }
    if (used_ >= arguments_.list().size()) fail("not enough arguments for format string");
    return arguments_.list()[used_++];
  }

  int64_t number() {
    if (peek() == '*') {
      ++at_;
      const Value value = next_argument();
      if (!value.is_integral()) fail("* wants int");
      return std::clamp(value.integer(), -widest, widest);
    }
    int64_t value = 0;
    while (peek() >= '0' && peek() <= '9') value = std::min(widest, value * 10 + (format_[at_++] - '0'));
    return value;
  }

  void directive() {
    named_.reset();
    Directive spec;
    if (peek() == '(') take_key();
    for (bool more = true; more;) {
      switch (peek()) {
        case '-':
          spec.left = true;
          break;
        case '+':
          spec.plus = true;
          break;
        case ' ':
          spec.space = true;
          break;
        case '0':
          spec.zero = true;
          break;
        case '#':
          spec.alternate = true;
          break;
        default:
          more = false;
          break;
      }
      if (more) ++at_;
    }
    spec.width = number();
    if (spec.width < 0) {
      spec.left = true;
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(0, number());
    }
    while (peek() == 'h' || peek() == 'l' || peek() == 'L') ++at_;
    const char letter = peek();
    ++at_;
    if (letter == '%') return append("%");
    convert(spec, letter);
  }

  void take_key() {
    const size_t start = ++at_;
    for (int open = 1; open > 0; ++at_) {
      if (peek() == '(') ++open;
      if (peek() == ')') --open;
    }
    const std::string_view key = format_.substr(start, at_ - 1 - start);
    if (arguments_.is_undefined()) fail(arguments_.undefined_message());
    if (!arguments_.is_dict()) fail("format requires a mapping");
    const Value* found = arguments_.dict().find(key);
    if (!found) fail("the mapping has no key ", quoted(key));
    named_ = *found;
  }

  void convert(const Directive& spec, char letter) {
    interpreter_.budget().text(static_cast<uint64_t>(spec.width) +
                               static_cast<uint64_t>(std::max<int64_t>(0, spec.precision)));
    const Value value = next_argument();
    switch (letter) {
      case 's':
        return pad_text(spec, value.is_markup() ? value : text_of(value, to_text(interpreter_.text_of(value))));
      case 'r':
        return pad_text(spec, text_of(value, limited_repr(value)));
      case 'a':
        return pad_text(spec, text_of(value, ascii_only(limited_repr(value))));
      case 'c':
        return pad_text(spec, character(value));
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return integer(spec, letter, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        if (value.is_undefined()) fail(value.undefined_message());
        if (!value.is_number()) fail("must be real number, not ", value.type_name());
        const double number = value.real();
        const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
        return pad_number(spec, std::signbit(number) && !std::isnan(number), {},
                          float_digits(std::fabs(number), letter, precision), std::isfinite(number));
      }
      default:
        fail("unsupported format character '", std::string(1, letter), "'");
    }
  }

  std::string limited_repr(const Value& value) {
    std::string text;
    append_repr(text, value, interpreter_.budget().text_room());
    return text;
  }

  /// Text of an argument; in marked text, escaped.
  Value text_of(const Value&, std::string text) const { return Value(marked_ ? escape_html(text) : std::move(text)); }

  static Value character(const Value& value) {
    if (value.is_integral()) {
      if (value.integer() < 0 || value.integer() > 0x10ffff) fail("%c arg not in range(0x110000)");
      std::string text;
      unicode::append(text, static_cast<char32_t>(value.integer()));
      return Value(std::move(text));
    }
    if (!value.is_string() || value.text_length() != 1) fail("%c requires int or char");
    return value;
  }

  void integer(const Directive& spec, char letter, const Value& value) {
    if (value.is_undefined()) fail(value.undefined_message());
    const bool decimal = letter == 'd' || letter == 'i' || letter == 'u';
    if (!value.is_integral() && !(decimal && value.is(Kind::real))) {
      fail("%", std::string(1, letter), " format: ", decimal ? "a real number" : "an integer", " is required, not ",
           value.type_name());
    }
    if (value.is(Kind::real) && !(std::fabs(value.real()) < 0x1p63)) fail("cannot convert this float to integer");
    const int64_t number = value.is_integral() ? value.integer() : static_cast<int64_t>(value.real());
    const int base = letter == 'o' ? 8 : letter == 'x' || letter == 'X' ? 16 : 10;
    std::string digits = digits_of(magnitude_of(number), base, letter == 'X');
    if (spec.precision > static_cast<int64_t>(digits.size())) {
      digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
    }
    const std::string prefix = !spec.alternate || base == 10 ? "" : base == 8 ? "0o" : letter == 'X' ? "0X" : "0x";
    pad_number(spec, number < 0, prefix, digits, true);
  }

  void pad_number(const Directive& spec, bool negative, std::string_view prefix, const std::string& digits,
                  bool zeros) {
    std::string head(negative ? "-" : spec.plus ? "+" : spec.space ? " " : "");
    head += prefix;
    const size_t width = static_cast<size_t>(spec.width);
    const size_t length = head.size() + digits.size();
    const std::string padding(width > length ? width - length : 0, spec.zero && !spec.left && zeros ? '0' : ' ');
    if (spec.left) {
      out_ += head + digits + padding;
    } else if (spec.zero && zeros) {
      out_ += head + padding + digits;
    } else {
      out_ += padding + head + digits;
    }
  }

  void pad_text(const Directive& spec, const Value& value) {
    std::string_view text = value.string();
    size_t length = value.text_length();
    if (spec.precision >= 0 && length > static_cast<size_t>(spec.precision)) {
      length = static_cast<size_t>(spec.precision);
      text = text.substr(0, unicode::offset_of(text, length));
    }
    const size_t width = static_cast<size_t>(spec.width);
    const std::string padding(width > length ? width - length : 0, ' ');
    if (!spec.left) out_ += padding;
    append(text);
    if (spec.left) out_ += padding;
  }

  const std::string_view format_;
  const bool marked_;
  const Value& arguments_;
  Interpreter& interpreter_;
  size_t at_ = 0;
  size_t used_ = 0;
  std::optional<Value> named_;
  std::string out_;
};

}  // namespace

Value printf_format(const Value& format, const Value& arguments, Interpreter& interpreter) {
  return marked_like(format, PrintfFormatter(format, arguments, interpreter).run());
}

}  // namespace gristmill::jinja
