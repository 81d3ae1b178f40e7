#pragma once
// Include inside a target region with avx2, fma and f16c.
#include <immintrin.h>

#include <cstdint>

namespace gristmill::device::cpu {
namespace {  // so that each file has kernels of its own, with its own instructions

/// The instructions of the linears of codes that AVX2 and AVX-VNNI share. The kernels name them through classes, so
/// that they can also be compiled over an emulation (tests/device/cpu/emulated_x86.h says what each of them does).
struct Avx2Common {
  static constexpr int kLanes = 8;
  using Ints = __m256i;
  using Floats = __m256;

  static Ints zero_ints() { return _mm256_setzero_si256(); }
  static Ints all_ints(int32_t x) { return _mm256_set1_epi32(x); }
  static Ints load_ints(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
  static Ints sub(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
  static Ints low_nibbles(Ints a) { return _mm256_and_si256(a, _mm256_set1_epi8(0x0f)); }
  static Ints high_nibbles(Ints a) { return low_nibbles(_mm256_srli_epi16(a, 4)); }

  static Floats zero() { return _mm256_setzero_ps(); }
  static Floats all(float x) { return _mm256_set1_ps(x); }
  static Floats load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Floats a) { _mm256_storeu_ps(p, a); }
  static Floats halves(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
  static Floats floats(Ints a) { return _mm256_cvtepi32_ps(a); }
  static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats fnma(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }
};

struct Avx2Dot : Avx2Common {
  static constexpr bool kDot = false;  ///< pairs of products are added in 16 bits, and those to a 32-bit lane
  static Ints pairs(Ints weights, Ints x) { return _mm256_maddubs_epi16(weights, x); }
  static Ints add_pairs(Ints a, Ints b) { return _mm256_add_epi16(a, b); }
  static Ints widen(Ints a) { return _mm256_madd_epi16(a, _mm256_set1_epi16(1)); }
  static Ints sizes(Ints codes) { return _mm256_abs_epi8(codes); }
  static Ints signed_like(Ints x, Ints codes) { return _mm256_sign_epi8(x, codes); }
  static Ints negative(Ints codes) { return _mm256_cmpgt_epi8(_mm256_setzero_si256(), codes); }
  static Ints flip(Ints x, Ints mask) { return _mm256_xor_si256(x, mask); }
  /// Keeps the sums of a step in registers from here on: left alone, g++ multiplies all steps first and spills the
  /// products.
  static void settle(Ints& sums) { asm volatile("" : "+x"(sums)); }
};

}  // namespace
}  // namespace gristmill::device::cpu
