#pragma once
#include <bit>
#include <cstdint>

namespace gristmill {

/// FP8 E4M3 "FN" (Micikevicius et al. 2022: bias 7, no infinities, all ones is NaN) to float32, exact.
inline float fp8_e4m3_to_f32(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24;
  const uint32_t exponent = (bits >> 3) & 15u, mantissa = bits & 7u;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 120) << 23) | (mantissa << 20));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

/// Round to nearest, ties to even; beyond the largest finite value (448) it is that. Without branches, so that loops
/// over it become vector code.
inline uint8_t f32_to_fp8_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  const uint32_t normal = (rounded >> 20) - (120u << 3);
  // Below 2^-6 steps are 2^-9: adding 2^14 leaves just these, and the addition does the rounding.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) - 0x46800000u;
  uint32_t code = magnitude < 0x3c800000u ? subnormal : normal;
  code = magnitude > 0x43e00000u ? 0x7eu : code;
  code = magnitude > 0x7f800000u ? 0x7fu : code;
  return static_cast<uint8_t>(((bits >> 24) & 0x80u) | code);
}

}  // namespace gristmill
