#include "server/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>

namespace gristmill::server {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

constexpr std::array<bool, 256> make_plain() {
  std::array<bool, 256> plain{};
  for (int c = 0x20; c < 0x80; ++c) plain[static_cast<size_t>(c)] = c != '"' && c != '\\';
  return plain;
}
constexpr std::array<bool, 256> plain = make_plain();

/// Length of the well-formed sequence at the start of `text` (Unicode table 3-7), or 0; `bad` is then the length of the
/// maximal subpart to replace.
size_t sequence_length(std::string_view text, size_t& bad) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  size_t length = 0;
  unsigned char low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    bad = 1;
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size() || byte(i) < low || byte(i) > high) {
      bad = i;
      return 0;
    }
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    default: {
      static const char* const digits = "0123456789abcdef";
      out += "\\u00";
      out += digits[static_cast<unsigned char>(c) >> 4];
      out += digits[static_cast<unsigned char>(c) & 15];
    }
  }
}

template <class Float>
void append_number(std::string& out, Float value) {
  if (std::isnan(value)) {
    out += "null";
    return;
  }
  if (value < Float(-9999)) value = Float(-9999);
  if (std::isinf(value)) value = std::numeric_limits<Float>::max();
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  out.append(buffer, end);
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (plain[c]) {
      ++i;
      continue;
    }
    if (c < 0x80) {
      out.append(text, start, i - start);
      append_escaped(out, text[i]);
      start = ++i;
      continue;
    }
    size_t bad = 0;
    const size_t length = sequence_length(text.substr(i), bad);
    if (length > 0) {
      i += length;
      continue;
    }
    out.append(text, start, i - start);
    out += replacement;
    i += bad;
    start = i;
  }
  out.append(text, start, text.size() - start);
  out += '"';
}

void append_json_number(std::string& out, float value) {
  append_number(out, value);
}
void append_json_number(std::string& out, double value) {
  append_number(out, value);
}

void JsonWriter::separate() {
  if (comma_) out_ += ',';
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  out_ += bracket;
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  append_json_string(out_, name);
  out_ += ':';
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  separate();
  append_json_string(out_, text);
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t value) {
  separate();
  char buffer[24];
  out_.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::number(double value) {
  separate();
  append_json_number(out_, value);
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  comma_ = true;
  return *this;
}

size_t count_characters(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

}  // namespace gristmill::server
