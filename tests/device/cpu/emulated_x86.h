#pragma once
// What the instructions of the x86 linears do, in plain C++ after the operation sections of Intel's manual (Intel 64
// and IA-32 Architectures Software Developer's Manual, volume 2). The kernels are compiled over these classes once
// more, so that their tests run on any machine.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/half.h"

namespace gristmill::device::cpu {
namespace {  // as the kernels over them are

/// A register of kLanes 32-bit lanes, and the instructions that AVX2, AVX-VNNI and AVX-512 share. None of them is
/// inlined: the kernels' tiles are unrolled over them.
template <int kWidth>
struct EmulatedVector {
  static constexpr int kLanes = kWidth;
  static constexpr int kBytes = 4 * kWidth;
  struct Ints {
    uint32_t lane[kLanes];
  };
  struct Floats {
    float lane[kLanes];
  };

  template <class F>
  static Ints each(F f) {
    Ints out;
    for (int i = 0; i < kLanes; ++i) out.lane[i] = static_cast<uint32_t>(f(i));
    return out;
  }
  /// f(byte index) for each byte.
  template <class F>
  static Ints each_byte(F f) {
    Ints out = {};
    for (int i = 0; i < kBytes; ++i) out.lane[i / 4] |= static_cast<uint32_t>(f(i) & 0xff) << i % 4 * 8;
    return out;
  }
  /// f(word index) for each 16-bit word.
  template <class F>
  static Ints each_word(F f) {
    Ints out = {};
    for (int i = 0; i < 2 * kLanes; ++i) out.lane[i / 2] |= static_cast<uint32_t>(f(i) & 0xffff) << i % 2 * 16;
    return out;
  }
  template <class F>
  static Floats each_float(F f) {
    Floats out;
    for (int i = 0; i < kLanes; ++i) out.lane[i] = f(i);
    return out;
  }
  static int unsigned_byte(const Ints& a, int i) { return static_cast<int>(a.lane[i / 4] >> i % 4 * 8 & 0xff); }
  static int signed_byte(const Ints& a, int i) { return static_cast<int8_t>(unsigned_byte(a, i)); }
  static int signed_word(const Ints& a, int i) { return static_cast<int16_t>(a.lane[i / 2] >> i % 2 * 16 & 0xffff); }
  static int saturate_word(int x) { return std::clamp(x, -32768, 32767); }

  static Ints zero_ints() { return {}; }
  [[gnu::noinline]] static Ints all_ints(int32_t x) {
    return each([&](int) { return x; });
  }
  [[gnu::noinline]] static Ints load_ints(const void* p) {
    Ints out;
    std::memcpy(out.lane, p, sizeof out.lane);
    return out;
  }
  [[gnu::noinline]] static void store_ints(void* p, const Ints& a) { std::memcpy(p, a.lane, sizeof a.lane); }
  /// VPADDD, VPSUBD.
  [[gnu::noinline]] static Ints add(const Ints& a, const Ints& b) {
    return each([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  [[gnu::noinline]] static Ints sub(const Ints& a, const Ints& b) {
    return each([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  /// VPAND, and VPSRLW by 4 before it.
  [[gnu::noinline]] static Ints low_nibbles(const Ints& a) {
    return each([&](int i) { return a.lane[i] & 0x0f0f0f0f; });
  }
  [[gnu::noinline]] static Ints high_nibbles(const Ints& a) {
    return each([&](int i) { return a.lane[i] >> 4 & 0x0f0f0f0f; });
  }

  static Floats zero() { return {}; }
  [[gnu::noinline]] static Floats all(float x) {
    return each_float([&](int) { return x; });
  }
  [[gnu::noinline]] static Floats load(const float* p) {
    return each_float([&](int i) { return p[i]; });
  }
  [[gnu::noinline]] static void store(float* p, const Floats& a) { std::memcpy(p, a.lane, sizeof a.lane); }
  /// VCVTPH2PS.
  [[gnu::noinline]] static Floats halves(const void* p) {
    uint16_t words[kLanes];
    std::memcpy(words, p, sizeof words);
    return each_float([&](int i) { return f16_to_f32(words[i]); });
  }
  /// VCVTDQ2PS, to nearest even.
  [[gnu::noinline]] static Floats floats(const Ints& a) {
    return each_float([&](int i) { return static_cast<float>(static_cast<int32_t>(a.lane[i])); });
  }
  [[gnu::noinline]] static Floats mul(const Floats& a, const Floats& b) {
    return each_float([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  [[gnu::noinline]] static Floats fma(const Floats& a, const Floats& b, const Floats& c) {
    return each_float([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
  }
  [[gnu::noinline]] static Floats fnma(const Floats& a, const Floats& b, const Floats& c) {
    return each_float([&](int i) { return std::fma(-a.lane[i], b.lane[i], c.lane[i]); });
  }
};

/// AVX-512 VNNI and AVX-VNNI: VPDPBUSD. The four products are added without saturation.
template <int kWidth>
struct EmulatedVnni : EmulatedVector<kWidth> {
  using Base = EmulatedVector<kWidth>;
  using typename Base::Ints;
  static constexpr bool kDot = true;
  [[gnu::noinline]] static Ints dot(const Ints& sums, const Ints& weights, const Ints& x) {
    return Base::each([&](int i) {
      uint32_t sum = sums.lane[i];
      for (int j = 4 * i; j < 4 * i + 4; ++j)
        sum += static_cast<uint32_t>(Base::unsigned_byte(weights, j) * Base::signed_byte(x, j));
      return sum;
    });
  }
};

/// AVX2.
struct EmulatedAvx2 : EmulatedVector<8> {
  static constexpr bool kDot = false;
  /// VPMADDUBSW: pairs of unsigned times signed bytes, their sum saturated to 16 bits.
  [[gnu::noinline]] static Ints pairs(const Ints& weights, const Ints& x) {
    return each_word([&](int i) {
      return saturate_word(unsigned_byte(weights, 2 * i) * signed_byte(x, 2 * i) +
                           unsigned_byte(weights, 2 * i + 1) * signed_byte(x, 2 * i + 1));
    });
  }
  /// VPADDW wraps.
  [[gnu::noinline]] static Ints add_pairs(const Ints& a, const Ints& b) {
    return each_word([&](int i) { return signed_word(a, i) + signed_word(b, i); });
  }
  /// VPMADDWD with ones.
  [[gnu::noinline]] static Ints widen(const Ints& a) {
    return each([&](int i) { return signed_word(a, 2 * i) + signed_word(a, 2 * i + 1); });
  }
  /// VPABSB: |-128| is 128, unsigned.
  [[gnu::noinline]] static Ints sizes(const Ints& codes) {
    return each_byte([&](int i) { return std::abs(signed_byte(codes, i)); });
  }
  /// VPSIGNB: -(-128) is -128.
  [[gnu::noinline]] static Ints signed_like(const Ints& x, const Ints& codes) {
    return each_byte([&](int i) {
      const int code = signed_byte(codes, i);
      return code < 0 ? -signed_byte(x, i) : code == 0 ? 0 : signed_byte(x, i);
    });
  }
  /// VPCMPGTB with zero on the left.
  [[gnu::noinline]] static Ints negative(const Ints& codes) {
    return each_byte([&](int i) { return signed_byte(codes, i) < 0 ? 0xff : 0; });
  }
  [[gnu::noinline]] static Ints flip(const Ints& x, const Ints& mask) {
    return each([&](int i) { return x.lane[i] ^ mask.lane[i]; });
  }
  static void settle(Ints&) {}
};

/// AVX-512 BF16: VCVTNE2PS2BF16, to nearest even whatever the rounding mode; denormals become zero, NaN quiet.
struct EmulatedBf16 {
  static void round(const float* x, int count, uint16_t (&out)[32]) {
    for (int i = 0; i < 32; ++i) {
      const float value = i < count ? x[i] : 0.0f;
      const bool denormal = std::fabs(value) < std::numeric_limits<float>::min();
      out[i] = f32_to_bf16(denormal ? std::copysign(0.0f, value) : value);
    }
  }
};

}  // namespace
}  // namespace gristmill::device::cpu
