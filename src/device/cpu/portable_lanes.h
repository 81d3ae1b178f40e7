#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace gristmill::device::cpu {
namespace {  // so that each file has kernels of its own, with its own instructions

/// float32 lanes in plain C++: the meaning of every operation that the vector classes of the instruction sets offer.
/// Kernels written over such a class give the same bits with each of them, for 8 lanes and for 16.
template <int kWidth>
struct PortableLanesOf {
  using PortableLanes = PortableLanesOf;
  static constexpr int kLanes = kWidth;
  static constexpr int kTileRows = kWidth == 16 ? 12 : 6;  ///< rows of a register tile two vectors wide

  float v[kLanes];

  template <class F>
  static PortableLanes each(F f) {
    PortableLanes out;
    for (int i = 0; i < kLanes; ++i) out.v[i] = f(i);
    return out;
  }
  static PortableLanes all(float x) {
    return each([&](int) { return x; });
  }
  static PortableLanes zero() { return all(0.0f); }
  static PortableLanes load(const float* p) {
    return each([&](int i) { return p[i]; });
  }
  /// The first `n` lanes, 0 <= n <= kLanes; zeros behind.
  static PortableLanes load_first(const float* p, int n) {
    return each([&](int i) { return i < n ? p[i] : 0.0f; });
  }
  static void store(float* p, PortableLanes a) { std::memcpy(p, a.v, sizeof(a.v)); }
  static void store_first(float* p, PortableLanes a, int n) {
    for (int i = 0; i < n; ++i) p[i] = a.v[i];
  }

  static PortableLanes add(PortableLanes a, PortableLanes b) {
    return each([&](int i) { return a.v[i] + b.v[i]; });
  }
  static PortableLanes sub(PortableLanes a, PortableLanes b) {
    return each([&](int i) { return a.v[i] - b.v[i]; });
  }
  static PortableLanes mul(PortableLanes a, PortableLanes b) {
    return each([&](int i) { return a.v[i] * b.v[i]; });
  }
  static PortableLanes div(PortableLanes a, PortableLanes b) {
    return each([&](int i) { return a.v[i] / b.v[i]; });
  }
  /// a * b + c, rounded once.
  static PortableLanes fma(PortableLanes a, PortableLanes b, PortableLanes c) {
    return each([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
  }
  /// a > b ? a : b, which is b when either is NaN.
  static PortableLanes max(PortableLanes a, PortableLanes b) {
    return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static PortableLanes min(PortableLanes a, PortableLanes b) {
    return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  static PortableLanes abs(PortableLanes a) {
    return each([&](int i) { return std::fabs(a.v[i]); });
  }
  /// x where test >= limit, else 0.
  static PortableLanes keep_from(PortableLanes test, PortableLanes limit, PortableLanes x) {
    return each([&](int i) { return test.v[i] >= limit.v[i] ? x.v[i] : 0.0f; });
  }
  /// The bits of p plus the low bits of t moved into the exponent.
  static PortableLanes add_exponent(PortableLanes p, PortableLanes t) {
    return each([&](int i) {
      return std::bit_cast<float>(std::bit_cast<uint32_t>(p.v[i]) + (std::bit_cast<uint32_t>(t.v[i]) << 23));
    });
  }
  /// Bit i is set where lane i of a equals lane i of b.
  static uint32_t equal_mask(PortableLanes a, PortableLanes b) {
    uint32_t mask = 0;
    for (int i = 0; i < kLanes; ++i) mask |= a.v[i] == b.v[i] ? 1u << i : 0u;
    return mask;
  }

  /// Lane i + lane i + half of the lanes, and so on down to + 1.
  static float tree_sum(PortableLanes a) {
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) a.v[i] += a.v[i + half];
    }
    return a.v[0];
  }
  static float tree_max(PortableLanes a) {
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
    }
    return a.v[0];
  }
  /// The larger by the bits without sign: NaN is above all.
  static PortableLanes max_magnitude(PortableLanes a, PortableLanes b) {
    return each([&](int i) {
      return std::bit_cast<float>(
          std::max(std::bit_cast<uint32_t>(a.v[i]) & 0x7fffffffu, std::bit_cast<uint32_t>(b.v[i]) & 0x7fffffffu));
    });
  }
  static float tree_max_magnitude(PortableLanes a) {
    PortableLanes largest = all(0.0f);
    for (int i = 0; i < kLanes; ++i) largest = max_magnitude(largest, all(a.v[i]));
    return largest.v[0];
  }
  static float first(PortableLanes a) { return a.v[0]; }

  static PortableLanes f16(const uint16_t* p) {
    return each([&](int i) { return f16_to_f32(p[i]); });
  }
  /// One 32-bit integer per lane.
  struct Ints {
    int32_t v[kLanes];
  };
  static Ints no_ints() { return {}; }
  /// kLanes pairs of bytes, and one pair of words for all lanes.
  static Ints byte_pairs(const std::byte* p) {
    Ints out;
    for (int i = 0; i < kLanes; ++i) {
      out.v[i] = pair(static_cast<int8_t>(p[2 * i]), static_cast<int8_t>(p[2 * i + 1]));
    }
    return out;
  }
  static Ints word_pair(const int16_t* p) {
    Ints out;
    for (int32_t& lane : out.v) lane = pair(p[0], p[1]);
    return out;
  }
  /// acc + the products of the lower and of the upper halves.
  static Ints dot_pairs(Ints acc, Ints a, Ints b) {
    for (int i = 0; i < kLanes; ++i) {
      acc.v[i] += static_cast<int16_t>(a.v[i]) * static_cast<int16_t>(b.v[i]) + (a.v[i] >> 16) * (b.v[i] >> 16);
    }
    return acc;
  }
  static PortableLanes from_ints(Ints a) {
    return each([&](int i) { return static_cast<float>(a.v[i]); });
  }
  /// Rounded to nearest even, |a| < 32768.
  static void words(int16_t* p, PortableLanes a) {
    for (int i = 0; i < kLanes; ++i) {
      p[i] = static_cast<int16_t>(std::bit_cast<int32_t>(a.v[i] + 0x1.8p23f) - std::bit_cast<int32_t>(0x1.8p23f));
    }
  }
  /// kLanes signed bytes.
  static PortableLanes i8(const std::byte* p) {
    return each([&](int i) { return static_cast<float>(static_cast<int8_t>(p[i])); });
  }
  /// 2^-8 times the E4M3 values: as halves they have the same mantissas, and exponents that count from 15 in place
  /// of 7.
  static PortableLanes e4m3(const uint8_t* p) {
    return each([&](int i) { return f16_to_f32(static_cast<uint16_t>((p[i] & 0x80) << 8 | (p[i] & 0x7f) << 7)); });
  }
  /// The lower and upper bfloat16 of kLanes 32-bit pairs.
  static PortableLanes bf16_even(const uint32_t* p) {
    return each([&](int i) { return std::bit_cast<float>(p[i] << 16); });
  }
  static PortableLanes bf16_odd(const uint32_t* p) {
    return each([&](int i) { return std::bit_cast<float>(p[i] & 0xffff0000u); });
  }

  /// Rounded to nearest even, kLanes halves.
  static void store_f16(uint16_t* p, PortableLanes a) {
    for (int i = 0; i < kLanes; ++i) p[i] = f32_to_f16(a.v[i]);
  }
  static void store_bf16(uint16_t* p, PortableLanes a) {
    for (int i = 0; i < kLanes; ++i) p[i] = f32_to_bf16(a.v[i]);
  }

  /// Codes of 32 values, rounded with ties to even, -128 to 127; returns their sum.
  static int32_t round_32(const PortableLanes* values, int8_t* codes) {
    int32_t sum = 0;
    for (int i = 0; i < 32; ++i) {
      // Adding 1.5 * 2^23 leaves no fraction bits: the addition does the rounding.
      const float value = values[i / kLanes].v[i % kLanes];
      const int32_t code = std::bit_cast<int32_t>(value + 0x1.8p23f) - std::bit_cast<int32_t>(0x1.8p23f);
      codes[i] = static_cast<int8_t>(code);
      sum += code;
    }
    return sum;
  }

 private:
  static int32_t pair(int16_t low, int16_t high) {
    return static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint16_t>(high)) << 16 | static_cast<uint16_t>(low));
  }
};

using PortableLanes = PortableLanesOf<8>;

}  // namespace
}  // namespace gristmill::device::cpu
