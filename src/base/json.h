#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gristmill {

/// Reads JSON (RFC 8259) from text that nobody has checked, piece by piece, without keeping it. Every fault is an Error
/// that starts with `subject` and says where. Nesting is limited; strings must not hold control characters, escapes and
/// surrogate pairs are decoded to UTF-8, other bytes are taken as they are.
class JsonReader {
 public:
  static constexpr int kDeepest = 64;

  /// `subject` is what messages start with, e.g. the path of the file; `text` outlives the reader.
  JsonReader(std::string subject, std::string_view text) : subject_(std::move(subject)), text_(text) {}

  /// What the following messages are about, e.g. a tensor; empty: nothing in particular.
  void set_context(std::string context) { context_ = std::move(context); }
  [[noreturn]] void fail(const std::string& what) const;

  /// Calls member(key) for each member of an object; it must read the value.
  template <class Member>
  void object(Member member) {
    enter('{');
    if (!next_is('}')) {
      do {
        const std::string key = string();
        expect(':');
        member(key);
      } while (next_is(','));
      expect('}');
    }
    --depth_;
  }
  /// Calls element() for each element of an array; it must read it.
  template <class Element>
  void array(Element element) {
    enter('[');
    if (!next_is(']')) {
      do element();
      while (next_is(','));
      expect(']');
    }
    --depth_;
  }
  std::string string();
  /// A number without sign, fraction and exponent.
  uint64_t whole_number();
  /// The text of any number.
  std::string_view number();
  /// true, false or null.
  bool next_is_word(std::string_view word);
  /// The first character of the next value; '\0' at the end.
  char peek();
  void expect_end();

 private:
  bool next_is(char c);
  void expect(char c);
  void enter(char c);
  void skip_space();
  uint32_t hex4();
  void escape(std::string* out);

  std::string subject_;
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  std::string context_;
};

struct JsonMember;

/// A JSON value in memory.
struct Json {
  enum class Kind : uint8_t { null, boolean, number, string, array, object };
  Kind kind = Kind::null;
  bool boolean = false;
  double number = 0;
  bool is_integer = false;  ///< the number was written without fraction and exponent and fits `integer`
  int64_t integer = 0;
  std::string string;
  std::vector<Json> array;
  std::vector<JsonMember> object;  ///< in the text's order; names are unique

  /// The member of that name; null when there is none or this is no object.
  const Json* find(std::string_view name) const;
};

struct JsonMember {
  std::string first;
  Json second;
};

/// "a number", "an array" ... for messages.
const char* name_of(Json::Kind kind);

/// A whole text. Throws Error starting with `subject`.
Json parse_json(const std::string& subject, std::string_view text);

}  // namespace gristmill
