#include <algorithm>
#include <cstring>

#include "text/jinja/format_spec.h"
#include "text/jinja/markup.h"
#include "text/jinja/method.h"
#include "text/jinja/string_search.h"
#include "text/jinja/unicode.h"

namespace gristmill::jinja {
namespace {

const std::string& text_argument(const Value& argument, std::string_view function) {
  if (!argument.is_string()) fail(function, "() argument must be str, not ", argument.type_name());
  return argument.string();
}

template <std::string (*function)(std::string_view)>
Value map_text(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  expect_none(arguments, "this string method");
  interpreter.budget().text(self.string().size() * 3);
  return marked_like(self, function(self.string()));
}

/// True if the text is not empty and every character passes.
template <bool (*test)(char32_t)>
Value all_of(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  expect_none(arguments, "this string method");
  interpreter.budget().scan(self.string().size());
  const std::string& text = self.string();
  for (size_t at = 0; at < text.size();) {
    if (!test(unicode::decode(text, at))) return false;
  }
  return !text.empty();
}

Value is_ascii(Interpreter&, const Value& self, Arguments& arguments) {
  expect_none(arguments, "isascii");
  return std::all_of(self.string().begin(), self.string().end(), [](char c) { return (c & 0x80) == 0; });
}

Value is_printable(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return self.string().empty() || all_of<unicode::is_printable>(interpreter, self, arguments).boolean();
}

/// islower and isupper: some cased characters, and all of them of the one case.
template <bool (*right)(char32_t)>
Value is_case(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  expect_none(arguments, "this string method");
  interpreter.budget().scan(self.string().size());
  return all_cased(self.string(), right);
}

Value is_title(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  expect_none(arguments, "istitle");
  interpreter.budget().scan(self.string().size());
  bool in_word = false, any = false;
  for (size_t at = 0; at < self.string().size();) {
    const char32_t c = unicode::decode(self.string(), at);
    const bool cased = unicode::is_cased(c);
    if (cased && (in_word ? unicode::is_uppercase(c) : unicode::is_lowercase(c))) return false;
    any = any || cased;
    in_word = cased;
  }
  return any;
}

// ---- Stripping and padding
// -------------------------------------------------------------------------------------------

template <bool left, bool right>
Value strip(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto [chars] = bind(arguments, "strip", {"chars"});
  interpreter.budget().text(self.string().size());
  if (chars.is_missing() || chars.is_none()) {
    std::string_view text = self.string();
    if (left) text = unicode::strip_left(text);
    if (right) text = unicode::strip_right(text);
    return marked_like(self, std::string(text));
  }
  return marked_like(self, std::string(strip_characters(self.string(), text_argument(chars, "strip"), left, right,
                                                        interpreter.budget())));
}

enum class Side { left, right, both };

/// A width from a template, kept where sums and products with it cannot overflow.
int64_t width_argument(const Value& argument) {
  return std::clamp<int64_t>(integer_or(argument, 0, "width"), 0, int64_t{1} << 40);
}

template <Side side>
Value pad(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto [width_value, fill_value] = bind(arguments, "the padding method", {"width", "fillchar"}, 1);
  const int64_t width = width_argument(width_value);
  const std::string fill = fill_value.is_missing() ? " " : text_argument(fill_value, "the padding method");
  if (unicode::count(fill) != 1) fail("The fill character must be exactly one character long");
  const auto length = static_cast<int64_t>(self.text_length());
  const int64_t missing = std::max<int64_t>(0, width - length);
  interpreter.budget().text(self.string().size() + static_cast<uint64_t>(missing) * fill.size());
  // str.center puts the odd space before the text if the width is odd.
  const int64_t before = side == Side::right ? missing : side == Side::left ? 0 : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < before; ++i) out += fill;
  out += self.string();
  for (int64_t i = before; i < missing; ++i) out += fill;
  return marked_like(self, std::move(out));
}

Value zfill(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto [width_value] = bind(arguments, "zfill", {"width"}, 1);
  const int64_t missing = std::max<int64_t>(0, width_argument(width_value) - static_cast<int64_t>(self.text_length()));
  interpreter.budget().text(self.string().size() + static_cast<uint64_t>(missing));
  std::string out = self.string();
  const bool has_sign = out.starts_with('+') || out.starts_with('-');
  out.insert(has_sign ? 1 : 0, static_cast<size_t>(missing), '0');
  return marked_like(self, std::move(out));
}

Value expand_tabs(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto [size_value] = bind(arguments, "expandtabs", {"tabsize"});
  const int64_t size = std::clamp<int64_t>(integer_or(size_value, 8, "tabsize"), 0, int64_t{1} << 30);
  std::string out;
  int64_t column = 0;
  for (size_t at = 0; at < self.string().size();) {
    const char32_t c = unicode::decode(self.string(), at);
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      interpreter.budget().text(static_cast<uint64_t>(spaces));
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    } else {
      unicode::append(out, c);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  interpreter.budget().text(out.size());
  return marked_like(self, std::move(out));
}

// ---- Splitting and joining
// -------------------------------------------------------------------------------------------

Value pieces_of(const Value& self, const std::vector<std::string_view>& pieces, Budget& budget) {
  budget.values(pieces.size());
  budget.text(self.string().size());
  List items;
  items.reserve(pieces.size());
  for (std::string_view piece : pieces) items.push_back(marked_like(self, std::string(piece)));
  return Value(std::move(items));
}

template <bool from_right>
Value split(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto [separator, limit_value] = bind(arguments, "split", {"sep", "maxsplit"});
  const int64_t limit = integer_or(limit_value, -1, "maxsplit");
  const size_t most = limit < 0 ? std::string::npos : static_cast<size_t>(limit);
  interpreter.budget().scan(self.string().size());
  if (separator.is_missing() || separator.is_none()) {
    const auto pieces = from_right ? split_space_right(self.string(), most) : split_space(self.string(), most);
    return pieces_of(self, pieces, interpreter.budget());
  }
  const std::string& by = text_argument(separator, "split");
  if (by.empty()) fail("empty separator");
  const auto pieces =
      from_right ? split_right(self.string(), by, most, interpreter.budget()) : split_left(self.string(), by, most);
  return pieces_of(self, pieces, interpreter.budget());
}

Value splitlines(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto [keep] = bind(arguments, "splitlines", {"keepends"});
  interpreter.budget().scan(self.string().size());
  return pieces_of(self, split_lines(self.string(), truth_or(keep, false)), interpreter.budget());
}

template <bool from_right>
Value partition(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto [separator] = bind(arguments, "partition", {"sep"}, 1);
  const std::string& by = text_argument(separator, "partition");
  if (by.empty()) fail("empty separator");
  interpreter.budget().text(self.string().size());
  const std::string& text = self.string();
  const size_t at = from_right ? find_text_right(text, by, interpreter.budget()) : find_text(text, by, 0);
  if (at == text.npos) {
    const Value nothing = marked_like(self, "");
    return from_right ? Value::tuple({nothing, nothing, self}) : Value::tuple({self, nothing, nothing});
  }
  return Value::tuple(
      {marked_like(self, text.substr(0, at)), separator, marked_like(self, text.substr(at + by.size()))});
}

Value join(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto [iterable] = bind(arguments, "join", {"iterable"}, 1);
  std::string out;
  Iterator iterator(iterable);
  Value item;
  for (size_t i = 0; iterator.next(item); ++i) {
    if (self.is_markup()) item = escaped(item, interpreter.budget());
    if (!item.is_string()) fail("sequence item ", i, ": expected str instance, ", item.type_name(), " found");
    if (i > 0) out += self.string();
    interpreter.budget().text(item.string().size() + self.string().size());
    out += item.string();
  }
  return marked_like(self, std::move(out));
}

Value replace(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto [old_text, new_text, count] = bind(arguments, "replace", {"old", "new", "count"}, 2);
  const Value by = self.is_markup() ? escaped(new_text, interpreter.budget()) : new_text;
  return marked_like(self, replace_text(self.string(), text_argument(old_text, "replace"), text_argument(by, "replace"),
                                        integer_or(count, -1, "count"), interpreter.budget()));
}

template <bool prefix>
Value remove_affix(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto [affix] = bind(arguments, prefix ? "removeprefix" : "removesuffix", {prefix ? "prefix" : "suffix"}, 1);
  interpreter.budget().text(self.string().size());
  std::string_view text = self.string();
  const std::string& part = text_argument(affix, prefix ? "removeprefix" : "removesuffix");
  if (prefix && text.starts_with(part)) text.remove_prefix(part.size());
  if (!prefix && text.ends_with(part)) text.remove_suffix(part.size());
  return marked_like(self, std::string(text));
}

// ---- Searching
// -------------------------------------------------------------------------------------------------------

/// The part of a string that [start:end] selects, and where it starts in code points.
struct Window {
  std::string_view text;
  int64_t start = 0;
  bool inside = true;  ///< start is not behind the end
};

Window window_of(const Value& self, const Value& start_value, const Value& end_value, Budget& budget) {
  budget.scan(self.string().size());
  const auto length = static_cast<int64_t>(self.text_length());
  int64_t start = integer_or(start_value, 0, "start");
  int64_t end = integer_or(end_value, length, "end");
  if (start < 0) start = std::max<int64_t>(0, start + length);
  if (end < 0) end = std::max<int64_t>(0, end + length);
  end = std::min(end, length);
  if (start > end) return {{}, start, false};
  const std::string& text = self.string();
  const size_t from = unicode::offset_of(text, static_cast<size_t>(start));
  const std::string_view rest = std::string_view(text).substr(from);
  return {rest.substr(0, unicode::offset_of(rest, static_cast<size_t>(end - start))), start, true};
}

template <bool at_start>
Value has_affix(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  constexpr std::string_view name = at_start ? "startswith" : "endswith";
  const auto [affixes, start, end] = bind(arguments, name, {"prefix", "start", "end"}, 1);
  const Window window = window_of(self, start, end, interpreter.budget());
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string()) fail(name, " first arg must be str or a tuple of str, not ", affix.type_name());
    interpreter.budget().scan(affix.string().size());
    return window.inside &&
           (at_start ? window.text.starts_with(affix.string()) : window.text.ends_with(affix.string()));
  };
  if (!affixes.is(Kind::tuple)) return matches(affixes);
  return std::any_of(affixes.list().begin(), affixes.list().end(), matches);
}

template <bool from_right, bool must_exist>
Value find(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto [part_value, start, end] = bind(arguments, "find", {"sub", "start", "end"}, 1);
  const std::string& part = text_argument(part_value, "find");
  const Window window = window_of(self, start, end, interpreter.budget());
  interpreter.budget().scan(part.size());
  size_t at = std::string::npos;
  if (window.inside) {
    at = from_right ? find_text_right(window.text, part, interpreter.budget()) : find_text(window.text, part, 0);
  }
  if (at != std::string::npos) return window.start + static_cast<int64_t>(unicode::count(window.text.substr(0, at)));
  if (must_exist) fail("substring not found");
  return -1;
}

Value count(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto [part_value, start, end] = bind(arguments, "count", {"sub", "start", "end"}, 1);
  const std::string& part = text_argument(part_value, "count");
  const Window window = window_of(self, start, end, interpreter.budget());
  if (!window.inside) return 0;
  if (part.empty()) return unicode::count(window.text) + 1;
  int64_t found = 0;
  for (size_t at = 0; (at = find_text(window.text, part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

// ---- Formatting
// ------------------------------------------------------------------------------------------------------

Value format(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return format_text(self, arguments, interpreter);
}

Value format_map(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const auto [mapping] = bind(arguments, "format_map", {"mapping"}, 1);
  if (!mapping.is_dict()) fail("format_map() argument must be a mapping, not ", mapping.type_name());
  Arguments named;
  for (const auto& entry : mapping.dict()) {
    interpreter.budget().items(1);
    if (entry.key.is_string()) named.named.emplace_back(entry.key.string(), entry.value);
  }
  return format_text(self, named, interpreter);
}

}  // namespace

std::span<const Method> string_methods() {
  static constexpr Method methods[] = {
      {"capitalize", map_text<unicode::capitalize>},
      {"casefold"},
      {"center", pad<Side::both>},
      {"count", count},
      {"encode"},
      {"endswith", has_affix<false>},
      {"expandtabs", expand_tabs},
      {"find", find<false, false>},
      {"format", format},
      {"format_map", format_map},
      {"index", find<false, true>},
      {"isalnum", all_of<unicode::is_alphanumeric>},
      {"isalpha", all_of<unicode::is_alphabetic>},
      {"isascii", is_ascii},
      {"isdecimal", all_of<unicode::is_decimal>},
      {"isdigit", all_of<unicode::is_digit>},
      {"isidentifier"},
      {"islower", is_case<unicode::is_lowercase>},
      {"isnumeric", all_of<unicode::is_numeric>},
      {"isprintable", is_printable},
      {"isspace", all_of<unicode::is_space>},
      {"istitle", is_title},
      {"isupper", is_case<unicode::is_uppercase>},
      {"join", join},
      {"ljust", pad<Side::left>},
      {"lower", map_text<unicode::lower>},
      {"lstrip", strip<true, false>},
      {"maketrans"},
      {"partition", partition<false>},
      {"removeprefix", remove_affix<true>},
      {"removesuffix", remove_affix<false>},
      {"replace", replace},
      {"rfind", find<true, false>},
      {"rindex", find<true, true>},
      {"rjust", pad<Side::right>},
      {"rpartition", partition<true>},
      {"rsplit", split<true>},
      {"rstrip", strip<false, true>},
      {"split", split<false>},
      {"splitlines", splitlines},
      {"startswith", has_affix<true>},
      {"strip", strip<true, true>},
      {"swapcase", map_text<unicode::swap_case>},
      {"title", map_text<unicode::title>},
      {"translate"},
      {"upper", map_text<unicode::upper>},
      {"zfill", zfill},
  };
  return methods;
}

}  // namespace gristmill::jinja
