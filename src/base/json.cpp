#include "base/json.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include "base/error.h"

namespace gristmill {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// A name in a message: short, and nothing but printable characters.
std::string shown(std::string_view name) {
  std::string out = "\"";
  for (const char c : name.substr(0, 80)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return out + (name.size() > 80 ? "...\"" : "\"");
}

Json read_value(JsonReader& reader) {
  Json value;
  switch (reader.peek()) {
    case '{': {
      value.kind = Json::Kind::object;
      std::set<std::string> names;
      reader.object([&](const std::string& name) {
        if (!names.insert(name).second) reader.fail(cat("member ", shown(name), " occurs twice"));
        Json member = read_value(reader);
        value.object.push_back({name, std::move(member)});
      });
      return value;
    }
    case '[':
      value.kind = Json::Kind::array;
      reader.array([&] { value.array.push_back(read_value(reader)); });
      return value;
    case '"':
      value.kind = Json::Kind::string;
      value.string = reader.string();
      return value;
    default:
      break;
  }
  if (reader.next_is_word("null")) return value;
  value.kind = Json::Kind::boolean;
  value.boolean = reader.next_is_word("true");
  if (value.boolean || reader.next_is_word("false")) return value;
  value.kind = Json::Kind::number;
  const std::string text(reader.number());
  value.number = std::strtod(text.c_str(), nullptr);
  if (!std::isfinite(value.number)) reader.fail("a number is out of range");
  if (text.find_first_of(".eE") == std::string::npos && std::fabs(value.number) < 9e18) {
    value.is_integer = true;
    value.integer = std::strtoll(text.c_str(), nullptr, 10);
  }
  return value;
}

}  // namespace

void JsonReader::fail(const std::string& what) const {
  throw Error(cat(subject_, ": ", context_.empty() ? "" : context_ + ": ", what, " (at byte ", at_, " of its JSON)"));
}

void JsonReader::skip_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
    ++at_;
}

char JsonReader::peek() {
  skip_space();
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonReader::next_is(char c) {
  skip_space();
  if (at_ == text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

void JsonReader::expect(char c) {
  if (!next_is(c)) fail(cat("'", c, "' expected"));
}

void JsonReader::enter(char c) {
  expect(c);
  if (++depth_ > kDeepest) fail(cat("nested deeper than ", kDeepest));
}

void JsonReader::expect_end() {
  skip_space();
  if (at_ != text_.size()) fail("text behind the end");
}

bool JsonReader::next_is_word(std::string_view word) {
  skip_space();
  if (text_.substr(at_, word.size()) != word) return false;
  at_ += word.size();
  return true;
}

std::string JsonReader::string() {
  expect('"');
  std::string out;
  for (;;) {
    if (at_ == text_.size()) fail("a string does not end");
    const char c = text_[at_++];
    if (c == '"') return out;
    if (static_cast<unsigned char>(c) < 0x20) fail("a control character in a string");
    if (c == '\\') {
      escape(&out);
    } else {
      out += c;
    }
  }
}

uint64_t JsonReader::whole_number() {
  skip_space();
  const size_t start = at_;
  uint64_t value = 0;
  while (at_ < text_.size() && is_digit(text_[at_])) {
    const auto digit = static_cast<uint64_t>(text_[at_] - '0');
    if (value > (std::numeric_limits<uint64_t>::max() - digit) / 10) fail("a number is out of range");
    value = value * 10 + digit;
    ++at_;
  }
  if (at_ == start) fail("a whole number expected");
  return value;
}

std::string_view JsonReader::number() {
  skip_space();
  const size_t start = at_;
  const auto digits = [&] {
    const size_t first = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    if (at_ == first) fail("a value expected");
    return at_ - first;
  };
  const auto take = [&](std::string_view any) {
    if (at_ == text_.size() || any.find(text_[at_]) == std::string_view::npos) return false;
    ++at_;
    return true;
  };
  take("-");
  const size_t first = at_;
  if (digits() > 1 && text_[first] == '0') fail("a number starts with 0");
  if (take(".")) digits();
  if (take("eE")) {
    take("+-");
    digits();
  }
  return text_.substr(start, at_ - start);
}

uint32_t JsonReader::hex4() {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = at_ < text_.size() ? text_[at_++] : '\0';
    const int digit = is_digit(c)            ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) fail("four hexadecimal digits expected");
    value = value << 4 | static_cast<uint32_t>(digit);
  }
  return value;
}

void JsonReader::escape(std::string* out) {
  constexpr std::string_view kNames = "\"\\/bfnrt", kCharacters = "\"\\/\b\f\n\r\t";
  const char c = at_ < text_.size() ? text_[at_++] : '\0';
  if (const size_t known = kNames.find(c); known != std::string_view::npos) {
    *out += kCharacters[known];
    return;
  }
  if (c != 'u') fail("unknown escape in a string");
  uint32_t code = hex4();
  if (code >= 0xd800 && code < 0xe000) {  // a surrogate pair
    if (code >= 0xdc00 || text_.substr(at_, 2) != "\\u") fail("half a surrogate pair in a string");
    at_ += 2;
    const uint32_t low = hex4();
    if (low < 0xdc00 || low >= 0xe000) fail("half a surrogate pair in a string");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  const auto put = [&](uint32_t byte) { *out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;  // bytes behind the first
  put((more == 1 ? 0xc0u : more == 2 ? 0xe0u : 0xf0u) | code >> (6 * more));
  for (int i = more - 1; i >= 0; --i) put(0x80 | (code >> (6 * i) & 0x3f));
}

const Json* Json::find(std::string_view name) const {
  for (const auto& [key, value] : object)
    if (key == name) return &value;
  return nullptr;
}

const char* name_of(Json::Kind kind) {
  switch (kind) {
    case Json::Kind::null:
      return "null";
    case Json::Kind::boolean:
      return "true or false";
    case Json::Kind::number:
      return "a number";
    case Json::Kind::string:
      return "a string";
    case Json::Kind::array:
      return "an array";
    case Json::Kind::object:
      return "an object";
  }
  return "?";
}

Json parse_json(const std::string& subject, std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark, as some editors leave it
  JsonReader reader(subject, text);
  Json value = read_value(reader);
  reader.expect_end();
  return value;
}

}  // namespace gristmill
