#include <algorithm>
#include <charconv>
#include <optional>

#include "text/jinja/format_spec.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/markup.h"
#include "text/jinja/number_text.h"
#include "text/jinja/python_text.h"

namespace gristmill::jinja {
namespace {

std::optional<int64_t> as_index(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || text[0] == '-' || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// str.format(): "{field!conversion:spec}", where a spec may hold fields itself.
class TextFormatter {
 public:
  TextFormatter(const Arguments& arguments, bool marked, Interpreter& interpreter)
      : arguments_(arguments), marked_(marked), interpreter_(interpreter) {}

  std::string run(std::string_view format, int fields_deep) {
    if (fields_deep > 2) fail("Max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < format.size();) {
      const size_t brace = std::min(format.find_first_of("{}", at), format.size());
      append(out, format.substr(at, brace - at));
      if (brace == format.size()) break;
      const bool doubled = brace + 1 < format.size() && format[brace + 1] == format[brace];
      if (doubled) {
        out += format[brace];
        at = brace + 2;
      } else if (format[brace] == '}') {
        fail("Single '}' encountered in format string");
      } else {
        const size_t end = field_end(format, brace);
        append(out, replace(format.substr(brace + 1, end - brace - 1), fields_deep));
        at = end + 1;
      }
    }
    return out;
  }

 private:
  void append(std::string& out, std::string_view text) {
    interpreter_.budget().text(text.size());
    out += text;
  }

  static size_t field_end(std::string_view format, size_t open) {
    int depth = 0;
    for (size_t at = open; at < format.size(); ++at) {
      if (format[at] == '{') ++depth;
      if (format[at] == '}' && --depth == 0) return at;
    }
    fail(open + 1 == format.size() ? "Single '{' encountered in format string" : "expected '}' before end of string");
  }

  /// The text for one field, given what stands between its braces.
  std::string replace(std::string_view field, int fields_deep) {
    size_t name_end = 0;
    bool in_brackets = false;
    for (; name_end < field.size(); ++name_end) {
      const char c = field[name_end];
      if (c == '[') in_brackets = true;
      if (c == ']') in_brackets = false;
      if (!in_brackets && (c == '!' || c == ':')) break;
      if (c == '{' || c == '}') fail("unexpected '", std::string(1, c), "' in field name");
    }
    Value value = look_up(field.substr(0, name_end));
    std::string_view rest = field.substr(name_end);
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) fail("expected ':' after conversion specifier");
      value = convert(value, rest[1]);
      rest.remove_prefix(2);
    }
    const std::string spec = rest.empty() ? std::string() : run(rest.substr(1), fields_deep + 1);
    std::string text = format_value(value, spec, interpreter_);
    return marked_ && !value.is_markup() ? escape_html(text) : text;
  }

  Value convert(const Value& value, char conversion) {
    if (conversion == 's') return interpreter_.text_of(value);
    if (conversion != 'r' && conversion != 'a') {
      fail("Unknown conversion specifier '", std::string(1, conversion), "'");
    }
    std::string text;
    append_repr(text, value, interpreter_.budget().text_room());
    interpreter_.budget().text(text.size());
    return Value(conversion == 'a' ? ascii_only(text) : std::move(text));
  }

  Value look_up(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, first_end));
    for (size_t at = first_end; at < name.size();) {
      if (name[at] == '.') {
        const size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        const Value attribute(name.substr(at + 1, end - at - 1));
        if (attribute.string().empty()) fail("Empty attribute in format string");
        value = interpreter_.get_attribute(value, attribute, find_methods(attribute.string()));
        at = end;
      } else if (name[at] == '[') {
        const size_t end = name.find(']', at);
        if (end == name.npos) fail("Missing ']' in format string");
        const std::string_view key = name.substr(at + 1, end - at - 1);
        if (key.empty()) fail("Empty attribute in format string");
        const auto index = as_index(key);
        value = interpreter_.get_item(value, index ? Value(*index) : Value(key));
        at = end + 1;
      } else {
        fail("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Value argument(std::string_view name) {
    auto index = as_index(name);
    if (name.empty()) {
      if (numbered_) fail("cannot switch from manual field specification to automatic field numbering");
      index = next_++;
      counted_ = true;
    } else if (index) {
      if (counted_) fail("cannot switch from automatic field numbering to manual field specification");
      numbered_ = true;
    }
    if (index) {
      if (static_cast<size_t>(*index) >= arguments_.positional.size()) {
        fail("Replacement index ", *index, " out of range for positional args tuple");
      }
      return arguments_.positional[static_cast<size_t>(*index)];
    }
    const auto found = std::find_if(arguments_.named.begin(), arguments_.named.end(),
                                    [&](const auto& given) { return given.first == name; });
    if (found == arguments_.named.end()) fail("format() got no argument ", quoted(name));
    return found->second;
  }

  const Arguments& arguments_;
  const bool marked_;
  Interpreter& interpreter_;
  int64_t next_ = 0;
  bool counted_ = false, numbered_ = false;
};

}  // namespace

Value format_text(const Value& format, const Arguments& arguments, Interpreter& interpreter) {
  return marked_like(format, TextFormatter(arguments, format.is_markup(), interpreter).run(format.string(), 1));
}

}  // namespace gristmill::jinja
