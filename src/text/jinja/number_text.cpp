#include "text/jinja/number_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/unicode.h"

namespace gristmill::jinja {
namespace {

void make_upper(std::string& text) {
  for (char& c : text) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
}

}  // namespace

std::string digits_of(uint64_t magnitude, int base, bool upper_case) {
  char buffer[64];
  std::string digits(buffer, std::to_chars(buffer, buffer + sizeof buffer, magnitude, base).ptr);
  if (upper_case) make_upper(digits);
  return digits;
}

std::string float_digits(double magnitude, char notation, int precision) {
  const char lower = static_cast<char>(notation | 0x20);
  std::string digits;
  if (std::isnan(magnitude) || std::isinf(magnitude)) {
    digits = std::isnan(magnitude) ? "nan" : "inf";
  } else {
    const auto format = lower == 'e'   ? std::chars_format::scientific
                        : lower == 'f' ? std::chars_format::fixed
                                       : std::chars_format::general;
    if (lower == 'g') precision = std::max(precision, 1);
    digits.resize(static_cast<size_t>(precision) + 400);
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), magnitude, format, precision).ptr;
    digits.resize(static_cast<size_t>(end - digits.data()));
  }
  if (notation != lower) make_upper(digits);
  return digits;
}

std::string ascii_only(std::string_view repr) {
  static constexpr char hex[] = "0123456789abcdef";
  std::string out;
  for (size_t at = 0; at < repr.size();) {
    const char32_t c = unicode::decode(repr, at);
    if (c < 0x80) {
      out += static_cast<char>(c);
      continue;
    }
    const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
    out += '\\';
    out += c < 0x100 ? 'x' : c < 0x10000 ? 'u' : 'U';
    for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += hex[(c >> shift) & 15];
  }
  return out;
}

}  // namespace gristmill::jinja
