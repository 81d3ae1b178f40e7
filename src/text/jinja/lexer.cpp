#include "text/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "text/jinja/unicode.h"

namespace gristmill::jinja {
namespace {

/// Newlines become \n, and one at the very end goes.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_digit_in(char c, int base) {
  const char lower = static_cast<char>(c | 0x20);
  return base == 16 ? is_digit(c) || (lower >= 'a' && lower <= 'f') : c >= '0' && c < '0' + base;
}

int hex_value(char c) {
  return is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_text();
    tokens_.push_back({TokenKind::end, position(source_.size()), {}, {}});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void syntax_error(size_t offset, const std::string& message) {
    throw TemplateError(Fault::syntax, message, position(offset));
  }

  /// Offsets are asked for in ascending order, but for a few steps back.
  Position position(size_t offset) {
    if (offset < known_offset_) {
      known_offset_ = 0;
      known_ = {1, 1};
    }
    while (known_offset_ < offset) {
      const bool newline = source_[known_offset_] == '\n';
      unicode::decode(source_, known_offset_);
      known_ = newline ? Position{known_.line + 1, 1} : Position{known_.line, known_.column + 1};
    }
    return known_;
  }

  bool starts_with(size_t offset, std::string_view text) const {
    return std::string_view(source_).substr(offset).starts_with(text);
  }

  size_t skip_space(size_t offset) const {
    while (offset < source_.size()) {
      size_t next = offset;
      if (!unicode::is_space(unicode::decode(source_, next))) break;
      offset = next;
    }
    return offset;
  }

  /// If a tag of the form `{%- word %}` starts here: where `word` ends. Else 0.
  size_t match_tag_word(size_t offset, std::string_view word) const {
    if (!starts_with(offset, "{%")) return 0;
    offset += 2;
    if (offset < source_.size() && (source_[offset] == '-' || source_[offset] == '+')) ++offset;
    offset = skip_space(offset);
    return starts_with(offset, word) ? skip_space(offset + word.size()) : 0;
  }

  /// If `%}` with its whitespace control ends a block here: where the text goes on. Else 0.
  size_t match_end(size_t offset, std::string_view end, bool trims_newline) const {
    if (starts_with(offset, end)) {
      offset += end.size();
      return trims_newline && starts_with(offset, "\n") ? offset + 1 : offset;
    }
    if (starts_with(offset, "-") && starts_with(offset + 1, end)) return skip_space(offset + 1 + end.size());
    if (trims_newline && starts_with(offset, "+") && starts_with(offset + 1, end)) return offset + 1 + end.size();
    return 0;
  }

  /// Moves past a tag's end; the next text starts a line if the end took a newline.
  void leave_tag(size_t next) {
    at_line_start_ = source_[next - 1] == '\n';
    at_ = next;
  }

  /// Emits the text before a tag, stripped as the tag's sign, lstrip_blocks and jinja2's rules say.
  void emit_text(size_t begin, size_t end, char sign, bool strips_line) {
    std::string_view text = std::string_view(source_).substr(begin, end - begin);
    if (sign == '-') {
      text = unicode::strip_right(text);
    } else if (sign != '+' && strips_line) {
      const size_t newline = text.rfind('\n');
      const size_t line = newline == text.npos ? 0 : newline + 1;
      if ((line > 0 || at_line_start_) && unicode::strip_left(text.substr(line)).empty()) text = text.substr(0, line);
    }
    if (!text.empty()) tokens_.push_back({TokenKind::text, position(begin), std::string(text), {}});
  }

  char sign_after(size_t offset) const {
    const char sign = offset < source_.size() ? source_[offset] : '\0';
    return sign == '-' || sign == '+' ? sign : '\0';
  }

  size_t find_tag(size_t from) const {
    for (size_t at = source_.find('{', from); at != source_.npos; at = source_.find('{', at + 1)) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return source_.npos;
  }

  /// Text up to the next tag, and that tag.
  void lex_text() {
    const size_t tag = find_tag(at_);
    if (tag == source_.npos) {
      emit_text(at_, source_.size(), '+', false);
      at_ = source_.size();
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = sign_after(tag + 2);
    emit_text(at_, tag, sign, kind != '{');
    const size_t raw = match_tag_word(tag, "raw");
    const size_t raw_body = raw ? match_end(raw, "%}", false) : 0;
    if (raw_body) {
      leave_tag(raw_body);
      lex_raw(tag);
    } else if (kind == '#') {
      lex_comment(tag);
    } else {
      at_ = tag + (sign ? 3 : 2);
      lex_tag(kind == '{', tag);
    }
  }

  void lex_comment(size_t tag) {
    const size_t body = tag + (sign_after(tag + 2) ? 3 : 2);
    for (size_t end = body; end < source_.size(); ++end) {
      if (const size_t next = match_end(end, "#}", true)) return leave_tag(next);
    }
    syntax_error(tag, "the comment is not closed: '#}' is missing");
  }

  void lex_raw(size_t tag) {
    for (size_t end = source_.find("{%", at_); end != source_.npos; end = source_.find("{%", end + 1)) {
      const size_t word = match_tag_word(end, "endraw");
      const size_t next = word ? match_end(word, "%}", true) : 0;
      if (!next) continue;
      emit_text(at_, end, sign_after(end + 2), true);
      return leave_tag(next);
    }
    syntax_error(tag, "the raw block is not closed: '{% endraw %}' is missing");
  }

  /// The tokens of a `{{ }}` or `{% %}`, up to and including its end.
  void lex_tag(bool variable, size_t tag) {
    const std::string_view end = variable ? "}}" : "%}";
    add(variable ? TokenKind::variable_begin : TokenKind::block_begin, tag, end);
    std::string open;  // the brackets that are open; inside them the tag cannot end
    while (true) {
      if (const size_t next = open.empty() ? match_end(at_, end, !variable) : 0) {
        add(variable ? TokenKind::variable_end : TokenKind::block_end, at_, end);
        return leave_tag(next);
      }
      at_ = skip_space(at_);
      if (at_ >= source_.size()) syntax_error(tag, cat("the tag is not closed: '", end, "' is missing"));
      if (open.empty() && match_end(at_, end, !variable)) continue;
      lex_expression_token(open);
    }
  }

  void add(TokenKind kind, size_t offset, std::string_view text) {
    tokens_.push_back({kind, position(offset), std::string(text), {}});
  }

  void lex_expression_token(std::string& open) {
    const char c = source_[at_];
    size_t after = at_;
    const char32_t point = unicode::decode(source_, after);
    if (is_digit(c)) {
      lex_number();
    } else if (c == '_' || unicode::is_alphanumeric(point)) {
      lex_name();
    } else if (c == '\'' || c == '"') {
      lex_string(c);
    } else {
      lex_operator(open);
    }
  }

  void lex_name() {
    const size_t start = at_;
    while (at_ < source_.size()) {
      size_t next = at_;
      const char32_t c = unicode::decode(source_, next);
      if (c != '_' && !unicode::is_alphanumeric(c)) break;
      at_ = next;
    }
    add(TokenKind::name, start, std::string_view(source_).substr(start, at_ - start));
  }

  /// Moves past digits with single underscores between them.
  size_t digits_end(size_t offset, int base) const {
    while (offset < source_.size()) {
      if (is_digit_in(source_[offset], base)) {
        ++offset;
      } else if (source_[offset] == '_' && offset + 1 < source_.size() && is_digit_in(source_[offset + 1], base)) {
        offset += 2;
      } else {
        break;
      }
    }
    return offset;
  }

  /// The end of a literal with a fraction or an exponent, or 0 if this is an integer.
  size_t float_end(size_t start) const {
    if (start > 0 && source_[start - 1] == '.') return 0;
    size_t end = digits_end(start, 10);
    bool is_float = false;
    if (starts_with(end, ".") && end + 1 < source_.size() && is_digit(source_[end + 1])) {
      end = digits_end(end + 1, 10);
      is_float = true;
    }
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
      if (exponent < source_.size() && is_digit(source_[exponent])) return digits_end(exponent, 10);
    }
    return is_float ? end : 0;
  }

  void lex_number() {
    const size_t start = at_;
    if (const size_t end = float_end(start)) {
      const std::string digits = without_underscores(start, end);
      double value = 0;
      const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (result.ec == std::errc::result_out_of_range) syntax_error(start, "the number is too large or too small");
      at_ = end;
      tokens_.push_back({TokenKind::real, position(start), digits, value});
      return;
    }
    int base = 10;
    size_t digits_at = start;
    if (source_[start] == '0' && start + 2 < source_.size()) {
      const char prefix = static_cast<char>(source_[start + 1] | 0x20);
      const int prefixed = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
      const size_t first = start + 2 + (source_[start + 2] == '_' ? 1 : 0);
      if (prefixed != 10 && first < source_.size() && is_digit_in(source_[first], prefixed)) {
        base = prefixed;
        digits_at = first;
      }
    }
    at_ = digits_end(digits_at, base);
    const std::string digits = without_underscores(digits_at, at_);
    if (base == 10 && digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != digits.npos) {
      syntax_error(start, "a decimal number cannot start with 0");
    }
    int64_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (result.ec != std::errc()) syntax_error(start, "the integer does not fit 64 bits");
    tokens_.push_back({TokenKind::integer, position(start), digits, value});
  }

  std::string without_underscores(size_t begin, size_t end) const {
    std::string digits = source_.substr(begin, end - begin);
    std::erase(digits, '_');
    return digits;
  }

  void lex_string(char quote) {
    const size_t start = at_++;
    std::string value;
    while (true) {
      if (at_ >= source_.size()) syntax_error(start, cat("the string is not closed: ", quote, " is missing"));
      const char c = source_[at_];
      if (c == quote) break;
      if (c == '\\') {
        lex_escape(value);
      } else {
        value += c;
        ++at_;
      }
    }
    ++at_;
    add(TokenKind::string, start, value);
  }

  /// Python's escapes in string literals; unknown ones stay as they are.
  void lex_escape(std::string& value) {
    const size_t start = at_++;
    if (at_ >= source_.size()) return;  // the string is not closed
    const char c = source_[at_++];
    switch (c) {
      case '\n':
        return;
      case '\\':
      case '\'':
      case '"':
        value += c;
        return;
      case 'a':
        value += '\a';
        return;
      case 'b':
        value += '\b';
        return;
      case 'f':
        value += '\f';
        return;
      case 'n':
        value += '\n';
        return;
      case 'r':
        value += '\r';
        return;
      case 't':
        value += '\t';
        return;
      case 'v':
        value += '\v';
        return;
      case 'x':
        return lex_hex_escape(value, start, 2);
      case 'u':
        return lex_hex_escape(value, start, 4);
      case 'U':
        return lex_hex_escape(value, start, 8);
      case 'N':
        syntax_error(start, "escapes by character name (\\N{...}) are not supported; use \\u or the character");
      default:
        break;
    }
    if (c >= '0' && c <= '7') {
      char32_t code = static_cast<char32_t>(c - '0');
      for (int i = 0; i < 2 && at_ < source_.size() && is_digit_in(source_[at_], 8); ++i) {
        code = code * 8 + static_cast<char32_t>(source_[at_++] - '0');
      }
      unicode::append(value, code);
      return;
    }
    value += '\\';
    value += c;
  }

  void lex_hex_escape(std::string& value, size_t start, int digits) {
    char32_t code = 0;
    for (int i = 0; i < digits; ++i) {
      if (at_ >= source_.size() || !is_digit_in(source_[at_], 16)) {
        syntax_error(start, cat("the escape needs ", digits, " hexadecimal digits"));
      }
      code = code * 16 + static_cast<char32_t>(hex_value(source_[at_++]));
    }
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
      syntax_error(start, "the escape names no character (surrogates are none)");
    }
    unicode::append(value, code);
  }

  void lex_operator(std::string& open) {
    static constexpr std::string_view operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                     "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                     ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* found = std::find_if(std::begin(operators), std::end(operators),
                                     [&](std::string_view sign) { return starts_with(at_, sign); });
    if (found == std::end(operators)) {
      size_t after = at_;
      unicode::decode(source_, after);
      syntax_error(at_, cat("unexpected character '", source_.substr(at_, after - at_), "'"));
    }
    balance(open, (*found)[0]);
    add(TokenKind::op, at_, *found);
    at_ += found->size();
  }

  void balance(std::string& open, char sign) {
    if (sign == '(' || sign == '[' || sign == '{') open += sign == '(' ? ')' : sign == '[' ? ']' : '}';
    if (sign != ')' && sign != ']' && sign != '}') return;
    if (open.empty()) syntax_error(at_, cat("unexpected '", sign, "'"));
    if (open.back() != sign) syntax_error(at_, cat("unexpected '", sign, "', expected '", open.back(), "'"));
    open.pop_back();
  }

  const std::string source_;
  size_t at_ = 0;
  bool at_line_start_ = true;
  size_t known_offset_ = 0;
  Position known_{1, 1};
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::text:
      return "text";
    case TokenKind::variable_begin:
      return "'{{'";
    case TokenKind::variable_end:
      return "'}}'";
    case TokenKind::block_begin:
      return "'{%'";
    case TokenKind::block_end:
      return "'%}'";
    case TokenKind::string:
      return "a string";
    case TokenKind::integer:
    case TokenKind::real:
      return "a number";
    case TokenKind::name:
    case TokenKind::op:
      return cat("'", token.text, "'");
    case TokenKind::end:
      return "the end of the template";
  }
  return "?";
}

}  // namespace gristmill::jinja
