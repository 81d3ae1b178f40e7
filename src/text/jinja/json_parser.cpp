#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "text/jinja/json.h"
#include "text/jinja/unicode.h"

namespace gristmill::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class JsonParser {
 public:
  JsonParser(std::string_view text, int max_depth)
      : text_(text), max_depth_(std::min(max_depth, max_value_depth - 1)) {}

  Value run() {
    Value result = value(0);
    skip_space();
    if (at_ < text_.size()) fail_at("unexpected text after the JSON value");
    return result;
  }

 private:
  [[noreturn]] void fail_at(std::string_view message) const { throw Error(cat("JSON, byte ", at_, ": ", message)); }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_space() {
    while (peek() == ' ' || peek() == '\n' || peek() == '\r' || peek() == '\t') ++at_;
  }

  void expect(char c, std::string_view message) {
    skip_space();
    if (peek() != c) fail_at(message);
    ++at_;
  }

  Value literal(std::string_view word, Value value) {
    if (!text_.substr(at_).starts_with(word)) fail_at("expected a JSON value");
    at_ += word.size();
    return value;
  }

  Value value(int depth) {
    skip_space();
    if (depth > max_depth_) fail_at(cat("nested deeper than ", max_depth_, " levels"));
    switch (peek()) {
      case '{':
        return dict(depth);
      case '[':
        return list(depth);
      case '"':
        return Value(string());
      case 't':
        return literal("true", Value(true));
      case 'f':
        return literal("false", Value(false));
      case 'n':
        return literal("null", Value(nullptr));
      default:
        return number();
    }
  }

  Value list(int depth) {
    ++at_;
    List items;
    skip_space();
    if (peek() != ']') {
      while (true) {
        items.push_back(value(depth + 1));
        skip_space();
        if (peek() != ',') break;
        ++at_;
      }
    }
    expect(']', "expected ',' or ']'");
    return Value(std::move(items));
  }

  Value dict(int depth) {
    ++at_;
    Dict items;
    skip_space();
    if (peek() != '}') {
      while (true) {
        skip_space();
        if (peek() != '"') fail_at("expected a key in double quotes");
        Value key(string());
        expect(':', "expected ':' after the key");
        items.set(std::move(key), value(depth + 1));
        skip_space();
        if (peek() != ',') break;
        ++at_;
      }
    }
    expect('}', "expected ',' or '}'");
    return Value(std::move(items));
  }

  Value number() {
    const size_t start = at_;
    if (peek() == '-') ++at_;
    if (!is_digit(peek())) fail_at("expected a JSON value");
    if (peek() == '0' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1])) fail_at("a number cannot start with 0");
    const auto digits = [&] {
      if (!is_digit(peek())) fail_at("expected a digit");
      while (is_digit(peek())) ++at_;
    };
    digits();
    bool is_integer = true;
    if (peek() == '.') {
      ++at_;
      digits();
      is_integer = false;
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      digits();
      is_integer = false;
    }
    const std::string_view number = text_.substr(start, at_ - start);
    if (is_integer) {
      int64_t value = 0;
      if (std::from_chars(number.data(), number.data() + number.size(), value).ec == std::errc()) return value;
    }
    double value = 0;
    const auto result = std::from_chars(number.data(), number.data() + number.size(), value);
    if (result.ec == std::errc::result_out_of_range) value = out_of_range(number);
    return value;
  }

  /// What a float too large or too small becomes, as in Python: infinity or zero.
  static double out_of_range(std::string_view number) {
    const size_t exponent = number.find_first_of("eE");
    const bool tiny = exponent != number.npos ? number[exponent + 1] == '-' : number.find("0.") <= 1;
    const double size = tiny ? 0.0 : std::numeric_limits<double>::infinity();
    return number[0] == '-' ? -size : size;
  }

  std::string string() {
    ++at_;
    std::string out;
    while (true) {
      const size_t start = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<unsigned char>(text_[at_]) >= 0x20) {
        if (unicode::decode(text_, at_) >= unicode::stray_byte) fail_at("the text is not UTF-8");
      }
      out += text_.substr(start, at_ - start);
      if (at_ >= text_.size()) fail_at("the string is not closed");
      const char c = text_[at_];
      if (c == '"') break;
      if (c != '\\') fail_at("control characters in strings must be escaped");
      ++at_;
      escape(out);
    }
    ++at_;
    return out;
  }

  void escape(std::string& out) {
    const char c = peek();
    static constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    if (c == 'u') {
      ++at_;
      return unicode_escape(out);
    }
    const size_t letter = c == '\0' ? letters.npos : letters.find(c);
    if (letter == letters.npos) fail_at("unknown escape");
    out += meanings[letter];
    ++at_;
  }

  char32_t hex4() {
    uint32_t unit = 0;
    const std::string_view digits = text_.substr(std::min(at_, text_.size()), 4);
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), unit, 16);
    if (digits.size() != 4 || result.ec != std::errc() || result.ptr != digits.data() + 4 || digits[0] == '-') {
      fail_at("\\u needs four hexadecimal digits");
    }
    at_ += 4;
    return unit;
  }

  void unicode_escape(std::string& out) {
    char32_t c = hex4();
    if (c >= 0xd800 && c < 0xdc00 && text_.substr(at_).starts_with("\\u")) {
      at_ += 2;
      const char32_t low = hex4();
      if (low < 0xdc00 || low > 0xdfff) fail_at("half of a surrogate pair");
      c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    if (c >= 0xd800 && c <= 0xdfff) fail_at("half of a surrogate pair");
    unicode::append(out, c);
  }

  std::string_view text_;
  int max_depth_;
  size_t at_ = 0;
};

}  // namespace

Value parse_json(std::string_view text, int max_depth) {
  return JsonParser(text, max_depth).run();
}

}  // namespace gristmill::jinja
