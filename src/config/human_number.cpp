#include "config/human_number.h"

#include <charconv>
#include <limits>
#include <string>

#include "base/error.h"

namespace gristmill::config {
namespace {

[[noreturn]] void refuse(std::string_view flag, std::string_view text, const char* why) {
  throw Error(cat("argument ", flag, ": ", why, ": '", text, "'"));
}

/// 10 raised to `power`, for small powers.
int64_t ten_to(size_t power) {
  int64_t out = 1;
  for (size_t i = 0; i < power; ++i) out *= 10;
  return out;
}

}  // namespace

int64_t human_number(std::string_view flag, std::string_view text) {
  std::string_view digits = text;
  int64_t factor = 1;
  bool decimal = true;
  if (!digits.empty()) {
    constexpr std::string_view decimal_units = "kmgt";
    constexpr std::string_view binary_units = "KMGT";
    const char unit = digits.back();
    const size_t power = decimal_units.find(unit);
    const size_t binary_power = binary_units.find(unit);
    if (power != std::string_view::npos) {
      factor = ten_to(3 * (power + 1));
      digits.remove_suffix(1);
    } else if (binary_power != std::string_view::npos) {
      factor = int64_t{1} << (10 * (binary_power + 1));
      decimal = false;
      digits.remove_suffix(1);
    }
  }
  const size_t dot = digits.find('.');
  const std::string_view whole_text = digits.substr(0, dot);
  int64_t whole = 0;
  const auto [end, failure] = std::from_chars(whole_text.data(), whole_text.data() + whole_text.size(), whole);
  if (whole_text.empty() || failure == std::errc::invalid_argument || end != whole_text.data() + whole_text.size()) {
    refuse(flag, text, "invalid integer value");
  }
  if (failure != std::errc()) refuse(flag, text, "the number is too large");
  int64_t value = 0;
  if (__builtin_mul_overflow(whole, factor, &value)) refuse(flag, text, "the number is too large");
  if (dot == std::string_view::npos) return value;
  std::string_view fraction = digits.substr(dot + 1);
  while (!fraction.empty() && fraction.back() == '0') fraction.remove_suffix(1);
  if (!decimal) refuse(flag, text, "decimals are not allowed with the binary suffixes K, M, G, T");
  if (digits.size() == dot + 1 || fraction.size() > 12 ||
      fraction.find_first_not_of("0123456789") != std::string_view::npos || whole < 0 ||
      factor % ten_to(fraction.size()) != 0) {
    refuse(flag, text, "invalid integer value");
  }
  int64_t part = 0;
  if (!fraction.empty()) std::from_chars(fraction.data(), fraction.data() + fraction.size(), part);
  part *= factor / ten_to(fraction.size());
  if (value > std::numeric_limits<int64_t>::max() - part) refuse(flag, text, "the number is too large");
  return value + part;
}

}  // namespace gristmill::config
