#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace gristmill::jinja {

/// How to_json() writes; the defaults are those of Python's json.dumps with ensure_ascii=False.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  /// Text of one level of indentation; without it everything stands on one line.
  std::optional<std::string> indent;
  /// ", " or, with indentation, ","
  std::optional<std::string> item_separator;
  std::string key_separator = ": ";
  /// Longest text allowed.
  size_t room = size_t(-1);
};

/// JSON text of a value, byte for byte as Python's json.dumps writes it. Throws TemplateError for what JSON cannot hold
/// (undefined values, objects, keys that are no scalars) and for text longer than `room`.
std::string to_json(const Value& value, const JsonStyle& style = {});

/// Reads one JSON text (RFC 8259, UTF-8). Integers beyond 64 bits become floats; of equal keys the last one counts.
/// Throws gristmill::Error with the offset of the mistake, also for nesting deeper than `max_depth`.
Value parse_json(std::string_view text, int max_depth = 200);

}  // namespace gristmill::jinja
