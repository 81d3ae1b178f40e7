#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace gristmill::device::cpu {

// How stored elements come into lanes. `k` reads a tile [k][width] (bf16: [k / 2][width][2]) of the K cache or of a
// panel of weights: lanes lane, lane + 1, ... of row 2 * pair + parity. `v` reads vector `i` of a row of dimensions
// of the V cache (device/cpu/kv_layout.h).
struct F32Elements {
  static constexpr int kBytes = 4;
  static constexpr int kRowsPerPair = 2;  ///< of the tile in memory, for two of k
  static constexpr bool kIntegers = false;
  static constexpr bool kScaled = false;  ///< whether a token's values share a stored scale
  template <class V, int kParity>
  static V k(const std::byte* tile, int width, int64_t pair, int lane) {
    return V::load(reinterpret_cast<const float*>(tile) + (2 * pair + kParity) * width + lane);
  }
  template <class V>
  static V v(const std::byte* row, int i) {
    return V::load(reinterpret_cast<const float*>(row) + i * V::kLanes);
  }
};
struct F16Elements {
  static constexpr int kBytes = 2;
  static constexpr int kRowsPerPair = 2;
  static constexpr bool kIntegers = false;
  static constexpr bool kScaled = false;
  template <class V, int kParity>
  static V k(const std::byte* tile, int width, int64_t pair, int lane) {
    return V::f16(reinterpret_cast<const uint16_t*>(tile) + (2 * pair + kParity) * width + lane);
  }
  template <class V>
  static V v(const std::byte* row, int i) {
    return V::f16(reinterpret_cast<const uint16_t*>(row) + i * V::kLanes);
  }
};
/// int8 codes of a cache are not read into float lanes: device/cpu/int8_attention.h.
struct I8Elements {
  static constexpr bool kIntegers = true;
};
/// Codes without their scales, which belong to a token and are applied to scores and weights.
struct E4m3Elements {
  static constexpr int kBytes = 1;
  static constexpr int kRowsPerPair = 2;
  static constexpr bool kIntegers = false;
  static constexpr bool kScaled = true;
  template <class V, int kParity>
  static V k(const std::byte* tile, int width, int64_t pair, int lane) {
    return V::e4m3(reinterpret_cast<const uint8_t*>(tile) + (2 * pair + kParity) * width + lane);
  }
  template <class V>
  static V v(const std::byte* row, int i) {
    return V::e4m3(reinterpret_cast<const uint8_t*>(row) + i * V::kLanes);
  }
};
/// Weights alone: codes of i8_float, whose scales are behind the panel.
struct I8WeightElements {
  static constexpr int kBytes = 1;
  template <class V, int kParity>
  static V k(const std::byte* tile, int width, int64_t pair, int lane) {
    return V::i8(tile + (2 * pair + kParity) * width + lane);
  }
};
struct Bf16Elements {
  static constexpr int kBytes = 2;
  static constexpr int kRowsPerPair = 1;
  static constexpr bool kIntegers = false;
  static constexpr bool kScaled = false;
  template <class V, int kParity>
  static V k(const std::byte* tile, int width, int64_t pair, int lane) {
    const auto* const words = reinterpret_cast<const uint32_t*>(tile) + pair * width + lane;
    return kParity == 0 ? V::bf16_even(words) : V::bf16_odd(words);
  }
  template <class V>
  static V v(const std::byte* row, int i) {
    // 32 dimensions are kUnit vectors: first the lower, then the upper halves of the same words.
    constexpr int kUnit = 32 / V::kLanes, kHalf = kUnit / 2;
    const auto* const words = reinterpret_cast<const uint32_t*>(row) + i / kUnit * 16 + i % kHalf * V::kLanes;
    return i % kUnit < kHalf ? V::bf16_even(words) : V::bf16_odd(words);
  }
};

}  // namespace gristmill::device::cpu
