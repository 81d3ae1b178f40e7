#pragma once
#include <cstdint>
#include <string>
#include <string_view>

/// Digits for the two kinds of string formatting.
namespace gristmill::jinja {

/// The digits of a number without its sign.
std::string digits_of(uint64_t magnitude, int base, bool upper_case);
/// The magnitude of a float in the notation e, f, g or their upper-case forms.
std::string float_digits(double magnitude, char notation, int precision);
/// |value|, which for the smallest integer has no signed form.
inline uint64_t magnitude_of(int64_t value) {
  return value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}
/// repr() of text, with everything but ASCII escaped (Python's ascii()).
std::string ascii_only(std::string_view repr);

}  // namespace gristmill::jinja
