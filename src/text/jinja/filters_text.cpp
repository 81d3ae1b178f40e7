#include <algorithm>
#include <array>
#include <cmath>

#include "text/jinja/filters.h"
#include "text/jinja/markup.h"
#include "text/jinja/number_text.h"
#include "text/jinja/object.h"
#include "text/jinja/operators.h"
#include "text/jinja/printf_format.h"
#include "text/jinja/python_text.h"
#include "text/jinja/string_search.h"
#include "text/jinja/unicode.h"

namespace gristmill::jinja {
namespace {

template <std::string (*function)(std::string_view)>
Value map_text(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  expect_none(arguments, "this filter");
  const Value text = soft_text(interpreter, input);
  interpreter.budget().text(text.string().size() * 3);
  return marked_like(text, function(text.string()));
}

/// Calls the string method of the same name.
Value call_text_method(Interpreter& interpreter, const Value& text, std::string_view method, Arguments& arguments) {
  return find_methods(method).of_string->function(interpreter, text, arguments);
}

/// Words begin behind spaces, hyphens and opening brackets; each gets a capital.
Value title(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  expect_none(arguments, "title");
  const Value text = soft_text(interpreter, input);
  interpreter.budget().text(text.string().size() * 3);
  std::string out, word;
  const auto finish = [&] {
    size_t first = 0;
    if (!word.empty()) unicode::decode(word, first);
    out += unicode::upper(std::string_view(word).substr(0, first));
    out += unicode::lower(std::string_view(word).substr(first));
    word.clear();
  };
  for (size_t at = 0; at < text.string().size();) {
    const char32_t c = unicode::decode(text.string(), at);
    if (unicode::is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<') {
      finish();
      unicode::append(out, c);
    } else {
      unicode::append(word, c);
    }
  }
  finish();
  return Value(std::move(out));
}

Value trim(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  return call_text_method(interpreter, soft_text(interpreter, input), "strip", arguments);
}

Value center(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [width] = bind(arguments, "center", {"width"});
  Arguments method_arguments{{width.is_missing() ? Value(80) : width}, {}};
  return call_text_method(interpreter, soft_text(interpreter, input), "center", method_arguments);
}

Value replace(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [old_text, new_text, count] = bind(arguments, "replace", {"old", "new", "count"}, 2);
  return Value(replace_text(interpreter.text_of(input).string(), interpreter.text_of(old_text).string(),
                            interpreter.text_of(new_text).string(), integer_or(count, -1, "count"),
                            interpreter.budget()));
}

Value format(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  if (arguments.named.empty()) {
    return printf_format(soft_text(interpreter, input), Value::tuple(std::move(arguments.positional)), interpreter);
  }
  Dict named;
  for (auto& [name, value] : arguments.named) named.set(name, std::move(value));
  return printf_format(soft_text(interpreter, input), Value(std::move(named)), interpreter);
}

Value indent(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [width, first, blank] = bind(arguments, "indent", {"width", "first", "blank"});
  if (input.is_undefined()) fail(input.undefined_message());
  if (!input.is_string()) fail("unsupported operand type(s) for +=: '", input.type_name(), "' and 'str'");
  const int64_t spaces = width.is_string() ? 0 : std::clamp<int64_t>(integer_or(width, 4, "width"), 0, 1 << 30);
  interpreter.budget().text(static_cast<uint64_t>(spaces));
  const std::string indention = width.is_string() ? width.string() : std::string(static_cast<size_t>(spaces), ' ');
  const std::string text = input.string() + "\n";
  const bool blank_too = truth_or(blank, false);
  std::string out;
  bool is_first = true;
  for (std::string_view line : split_lines(text, false)) {
    interpreter.budget().text(line.size() + indention.size() + 1);
    if (!is_first) out += '\n';
    if (is_first ? truth_or(first, false) : blank_too || !line.empty()) out += indention;
    out += line;
    is_first = false;
  }
  return marked_like(input, std::move(out));
}

Value truncate(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [length_value, kill, end_value, leeway_value] =
      bind(arguments, "truncate", {"length", "killwords", "end", "leeway"});
  const Value end = end_value.is_missing() ? Value("...") : interpreter.text_of(end_value);
  const int64_t length = integer_or(length_value, 255, "length");
  const int64_t leeway = integer_or(leeway_value, 5, "leeway");
  const auto end_length = static_cast<int64_t>(end.text_length());
  if (length < end_length) fail("expected length >= ", end_length, ", got ", length);
  if (leeway < 0) fail("expected leeway >= 0, got ", leeway);
  const auto size = static_cast<int64_t>(length_of(input));
  if (size <= length || size - length <= leeway) return input;
  if (!input.is_string()) fail("cannot truncate a value of type '", input.type_name(), "'");
  const Value& text = input;
  interpreter.budget().text(text.string().size() + end.string().size());
  std::string kept(
      text.string().substr(0, unicode::offset_of(text.string(), static_cast<size_t>(length - end_length))));
  if (!truth_or(kill, false)) kept = kept.substr(0, kept.rfind(' '));
  return marked_like(text, kept + (text.is_markup() && !end.is_markup() ? escape_html(end.string()) : end.string()));
}

Value word_count(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  expect_none(arguments, "wordcount");
  const Value text = soft_text(interpreter, input);
  interpreter.budget().scan(text.string().size());
  int64_t words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.string().size();) {
    const char32_t c = unicode::decode(text.string(), at);
    const bool letter = c == '_' || unicode::is_alphanumeric(c);
    words += letter && !in_word ? 1 : 0;
    in_word = letter;
  }
  return words;
}

Value join(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [separator_value, attribute] = bind(arguments, "join", {"d", "attribute"});
  const Value separator = separator_value.is_missing() ? Value("") : interpreter.text_of(separator_value);
  const AttributePath path(attribute, Value::missing(), false);
  std::string out;
  Iterator iterator(input);
  Value item;
  for (bool first = true; iterator.next(item); first = false) {
    if (!first) out += separator.string();
    const size_t before = out.size();
    append_text(out, path(interpreter, item), interpreter.budget().text_room());
    interpreter.budget().text(out.size() - before + separator.string().size());
  }
  return Value(std::move(out));
}

// ---- For web pages
// ---------------------------------------------------------------------------------------------------

std::string url_quote(std::string_view text, bool in_query) {
  static constexpr std::string_view plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~";
  static constexpr char hex[] = "0123456789ABCDEF";
  std::string out;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (plain.find(c) != plain.npos || (c == '/' && !in_query)) {
      out += c;
    } else if (c == ' ' && in_query) {
      out += '+';
    } else {
      out += '%';
      out += hex[byte >> 4];
      out += hex[byte & 15];
    }
  }
  return out;
}

Value url_encode(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  expect_none(arguments, "urlencode");
  const auto quote = [&](const Value& part, bool in_query) {
    const Value text = interpreter.text_of(part);
    interpreter.budget().text(text.string().size() * 3);
    return url_quote(text.string(), in_query);
  };
  if (input.is_string() || !is_iterable(input)) return Value(quote(input, false));
  std::string out;
  const Value source = input.is_dict() ? make_object<DictView>(input, DictView::Part::items) : input;
  Iterator iterator(source);
  Value pair;
  while (iterator.next(pair)) {
    const List parts = to_list(pair, interpreter.budget());
    if (parts.size() != 2) fail("urlencode needs pairs");
    if (!out.empty()) out += '&';
    out += quote(parts[0], true) + "=" + quote(parts[1], true);
  }
  return Value(std::move(out));
}

Value xml_attributes(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  const auto [autospace] = bind(arguments, "xmlattr", {"autospace"});
  if (input.is_undefined()) fail(input.undefined_message());
  if (!input.is_dict()) fail("xmlattr needs a mapping, not ", input.type_name());
  std::string out;
  for (const auto& [key, value, hash] : input.dict()) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_string()) fail("xmlattr needs strings as keys, not ", key.type_name());
    if (key.string().find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      fail("Invalid character in attribute name: ", repr(key));
    }
    if (!out.empty()) out += ' ';
    out += cat(escaped(key, interpreter.budget()).string(), "=\"", escaped(value, interpreter.budget()).string(), "\"");
  }
  if (truth_or(autospace, true) && !out.empty()) out.insert(0, 1, ' ');
  return Value(std::move(out));
}

Value file_size(Interpreter&, const Value& input, Arguments& arguments) {
  const auto [binary_value] = bind(arguments, "filesizeformat", {"binary"});
  std::optional<double> bytes;
  if (input.is_number()) bytes = input.real();
  if (input.is_string()) bytes = parse_float(input.string());
  if (!bytes || !std::isfinite(*bytes)) fail("filesizeformat needs a number, not ", repr(input));
  const bool binary = truth_or(binary_value, false);
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) return "1 Byte";
  if (*bytes < base) return cat(static_cast<int64_t>(std::max(*bytes, -0x1p62)), " Bytes");
  static constexpr std::string_view prefixes[] = {"k", "M", "G", "T", "P", "E", "Z", "Y"};
  double unit = base * base;
  size_t i = 0;
  for (; i + 1 < std::size(prefixes) && *bytes >= unit; ++i) unit *= base;
  const std::string prefix = binary && i == 0 ? "K" : std::string(prefixes[i]);
  return cat(float_digits(base * *bytes / unit, 'f', 1), " ", prefix, binary ? "iB" : "B");
}

}  // namespace

std::span<const FilterEntry> text_filters() {
  static constexpr FilterEntry filters[] = {
      {"capitalize", map_text<unicode::capitalize>},
      {"center", center},
      {"filesizeformat", file_size},
      {"format", format},
      {"indent", indent},
      {"join", join},
      {"lower", map_text<unicode::lower>},
      {"replace", replace},
      {"title", title},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", map_text<unicode::upper>},
      {"urlencode", url_encode},
      {"wordcount", word_count},
      {"xmlattr", xml_attributes},
  };
  return filters;
}

}  // namespace gristmill::jinja
