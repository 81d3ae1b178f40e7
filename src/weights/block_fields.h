#pragma once
// Where the fields of GGUF's quantized blocks lie (ggml's block definitions). Shared by the readers of values
// (gguf_blocks.cpp) and of codes (block_codes.cpp).
#include <bit>
#include <cstdint>

#include "base/half.h"

namespace gristmill::weights {

inline uint16_t u16_at(const uint8_t* bytes) {
  return static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
}
inline float half_at(const uint8_t* bytes) {
  return f16_to_f32(u16_at(bytes));
}

/// Element j of 32 in 16 bytes: low nibbles first, then high ones.
inline int nibble(const uint8_t* bytes, int j) {
  return j < 16 ? bytes[j] & 15 : bytes[j - 16] >> 4;
}

/// Q5_0 and Q5_1: bit j of the 32-bit `high` is bit 4 of element j.
inline int five_bits(const uint8_t* high, const uint8_t* low, int j) {
  return nibble(low, j) | ((high[j / 8] >> (j % 8)) & 1) << 4;
}

/// Q2_K and Q3_K: element l of run i (16 elements) in 64 bytes of two-bit fields.
inline int two_bits(const uint8_t* bytes, int run, int l) {
  return (bytes[32 * (run / 8) + 16 * (run % 2) + l] >> (2 * ((run % 8) / 2))) & 3;
}

/// Q3_K: the six-bit scale of run i in 12 bytes (32 stands for 0).
inline int q3_k_scale(const uint8_t* bytes, int run) {
  const int low = (bytes[run % 8] >> (4 * (run / 8))) & 15;
  const int high = (bytes[8 + run % 4] >> (2 * (run / 4))) & 3;
  return low | high << 4;
}

/// Q4_K and Q5_K: six-bit scale and minimum of run j (32 elements) in 12 bytes.
struct ScaleMin {
  int scale;
  int min;
};
inline ScaleMin k_scale_min(const uint8_t* bytes, int run) {
  if (run < 4) return {bytes[run] & 63, bytes[run + 4] & 63};
  return {(bytes[run + 4] & 15) | (bytes[run - 4] >> 6) << 4, (bytes[run + 4] >> 4) | (bytes[run] >> 6) << 4};
}

/// Q4_K and Q5_K: low four bits of element l of run j.
inline int q4_k_code(const uint8_t* bytes, int run, int l) {
  return (bytes[32 * (run / 2) + l] >> (4 * (run % 2))) & 15;
}

/// IQ4_XS: the scale of run j (32 elements) of a whole block.
inline int iq4_xs_scale(const uint8_t* block, int run) {
  const int low = (block[4 + run / 2] >> (4 * (run % 2))) & 15;
  const int high = (u16_at(block + 2) >> (2 * run)) & 3;
  return (low | high << 4) - 32;
}

inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/// E2M1 times two, to stay whole.
inline constexpr int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// 2^(e - 128): half of the E8M0 scale, since the MXFP4 table is doubled. e < 2 gives subnormals.
inline float e8m0_half(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
}

}  // namespace gristmill::weights
