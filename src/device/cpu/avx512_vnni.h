#pragma once
// Include inside a target region with avx512f, avx512bw and avx512vnni.
#include <immintrin.h>

#include <cstdint>

namespace gristmill::device::cpu {
namespace {  // so that each file has kernels of its own, with its own instructions

/// The instructions of the linears of codes for AVX-512 with VNNI: the kernels name them through this class, so that
/// they can also be compiled over an emulation (tests/device/cpu/emulated_x86.h says what each of them does).
struct Avx512Vnni {
  static constexpr int kLanes = 16;
  using Ints = __m512i;
  using Floats = __m512;

  static Ints zero_ints() { return _mm512_setzero_si512(); }
  static Ints all_ints(int32_t x) { return _mm512_set1_epi32(x); }
  static Ints load_ints(const void* p) { return _mm512_loadu_si512(p); }
  static void store_ints(void* p, Ints a) { _mm512_storeu_si512(p, a); }
  static Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  static Ints sub(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
  static Ints low_nibbles(Ints a) { return _mm512_and_si512(a, _mm512_set1_epi8(0x0f)); }
  static Ints high_nibbles(Ints a) { return low_nibbles(_mm512_srli_epi16(a, 4)); }
  static Ints dot(Ints sums, Ints weights, Ints x) { return _mm512_dpbusd_epi32(sums, weights, x); }

  static Floats zero() { return _mm512_setzero_ps(); }
  static Floats all(float x) { return _mm512_set1_ps(x); }
  static Floats load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Floats a) { _mm512_storeu_ps(p, a); }
  static Floats halves(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
  static Floats floats(Ints a) { return _mm512_cvtepi32_ps(a); }
  static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats fnma(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }
};

}  // namespace
}  // namespace gristmill::device::cpu
