#include "quantize/json_text.h"

#include <charconv>
#include <cstdio>

namespace gristmill::quantize {

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string json_text(const Json& value, int indent) {
  const std::string pad(static_cast<size_t>(indent) + 2, ' '), end(static_cast<size_t>(indent), ' ');
  switch (value.kind) {
    case Json::Kind::null:
      return "null";
    case Json::Kind::boolean:
      return value.boolean ? "true" : "false";
    case Json::Kind::number: {
      if (value.is_integer) return std::to_string(value.integer);
      char text[64];
      const auto result = std::to_chars(text, text + sizeof text, value.number);
      std::string number(text, result.ptr);
      if (number.find_first_of(".e") == std::string::npos) number += ".0";
      return number;
    }
    case Json::Kind::string:
      return json_string(value.string);
    case Json::Kind::array: {
      if (value.array.empty()) return "[]";
      std::string out = "[\n";
      for (size_t i = 0; i < value.array.size(); ++i)
        out += pad + json_text(value.array[i], indent + 2) + (i + 1 < value.array.size() ? ",\n" : "\n");
      return out + end + "]";
    }
    case Json::Kind::object: {
      if (value.object.empty()) return "{}";
      std::string out = "{\n";
      for (size_t i = 0; i < value.object.size(); ++i)
        out += pad + json_string(value.object[i].first) + ": " + json_text(value.object[i].second, indent + 2) +
               (i + 1 < value.object.size() ? ",\n" : "\n");
      return out + end + "}";
    }
  }
  return "null";
}

}  // namespace gristmill::quantize
