#pragma once
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"

/// The filters of jinja2, in groups, and what they share.
namespace gristmill::jinja {

using FilterEntry = std::pair<std::string_view, FilterFunction>;
std::span<const FilterEntry> value_filters();
std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry> selection_filters();

/// The text of a value, keeping the mark of marked text (markupsafe's soft_str).
inline Value soft_text(Interpreter& interpreter, const Value& value) {
  return interpreter.text_of(value);
}

/// Looks up "a.b.0" in a value, as the `attribute` arguments of filters mean it. Without attribute: the value itself.
class AttributePath {
 public:
  /// `fallback` replaces undefined steps if it is not missing; `ignore_case` lowers a text at the end of the path.
  AttributePath(const Value& attribute, Value fallback, bool ignore_case);
  Value operator()(Interpreter& interpreter, const Value& value) const;

 private:
  std::vector<Value> steps_;
  Value fallback_;
  bool ignore_case_;
};

/// Python's sorted() with one key per item.
List sorted(Interpreter& interpreter, List items, const std::function<Value(const Value&)>& key, bool reverse);

/// Python's int(text, base) and float(text).
std::optional<int64_t> parse_integer(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

}  // namespace gristmill::jinja
