#pragma once
// Include inside a target region with avx512f, avx512bw, avx512dq, avx512vl and avx512vnni.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gristmill::device::cpu {
namespace {  // so that each file has kernels of its own, with its own instructions

/// Sixteen float32 lanes in an AVX-512 register. PortableLanes says what the operations mean.
struct Avx512Lanes {
  static constexpr int kLanes = 16;
  static constexpr int kTileRows = 12;

  __m512 v;

  static Avx512Lanes all(float x) { return {_mm512_set1_ps(x)}; }
  static Avx512Lanes zero() { return {_mm512_setzero_ps()}; }
  static Avx512Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static __mmask16 first_mask(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  static Avx512Lanes load_first(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_mask(n), p)}; }
  static void store(float* p, Avx512Lanes a) { _mm512_storeu_ps(p, a.v); }
  static void store_first(float* p, Avx512Lanes a, int n) { _mm512_mask_storeu_ps(p, first_mask(n), a.v); }

  static Avx512Lanes add(Avx512Lanes a, Avx512Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
  static Avx512Lanes sub(Avx512Lanes a, Avx512Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
  static Avx512Lanes mul(Avx512Lanes a, Avx512Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
  static Avx512Lanes div(Avx512Lanes a, Avx512Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
  static Avx512Lanes fma(Avx512Lanes a, Avx512Lanes b, Avx512Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  static Avx512Lanes max(Avx512Lanes a, Avx512Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }
  static Avx512Lanes min(Avx512Lanes a, Avx512Lanes b) { return {_mm512_min_ps(a.v, b.v)}; }
  static Avx512Lanes abs(Avx512Lanes a) { return {_mm512_abs_ps(a.v)}; }
  static Avx512Lanes keep_from(Avx512Lanes test, Avx512Lanes limit, Avx512Lanes x) {
    return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(test.v, limit.v, _CMP_GE_OQ), x.v)};
  }
  static Avx512Lanes add_exponent(Avx512Lanes p, Avx512Lanes t) {
    const __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(t.v), 23);
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p.v), shifted))};
  }
  static uint32_t equal_mask(Avx512Lanes a, Avx512Lanes b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ); }

  static float tree_sum(Avx512Lanes a) {
    const __m256 y = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
  }
  static float tree_max(Avx512Lanes a) {
    const __m256 y = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
  }
  static Avx512Lanes max_magnitude(Avx512Lanes a, Avx512Lanes b) {
    return {_mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(abs(a).v), _mm512_castps_si512(abs(b).v)))};
  }
  static float tree_max_magnitude(Avx512Lanes a) {
    const __m512i bits = _mm512_castps_si512(abs(a).v);
    const __m256i y = _mm256_max_epi32(_mm512_castsi512_si256(bits), _mm512_extracti32x8_epi32(bits, 1));
    __m128i x = _mm_max_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
    x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(x));
  }
  static float first(Avx512Lanes a) { return _mm512_cvtss_f32(a.v); }

  static Avx512Lanes f16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  using Ints = __m512i;
  static Ints no_ints() { return _mm512_setzero_si512(); }
  static Ints byte_pairs(const std::byte* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Ints word_pair(const int16_t* p) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
  }
  static Ints dot_pairs(Ints acc, Ints a, Ints b) {
    // g++ 12 copies the accumulator around the intrinsic, twice an instruction, and in large tiles to memory.
    asm("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
  }
  static Avx512Lanes from_ints(Ints a) { return {_mm512_cvtepi32_ps(a)}; }
  static void words(int16_t* p, Avx512Lanes a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a.v)));
  }
  static Avx512Lanes i8(const std::byte* p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
  }
  static Avx512Lanes e4m3(const uint8_t* p) {
    const __m256i codes = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(codes, 7), _mm256_set1_epi16(static_cast<short>(0xbfff)));
    return {_mm512_cvtph_ps(halves)};
  }
  static Avx512Lanes bf16_even(const uint32_t* p) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))};
  }
  static Avx512Lanes bf16_odd(const uint32_t* p) {
    return {
        _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
  }

  static void store_f16(uint16_t* p, Avx512Lanes a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store_bf16(uint16_t* p, Avx512Lanes a) {
    const __m512i bits = _mm512_castps_si512(a.v), upper = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
    const __m512i words = _mm512_mask_or_epi32(rounded, nan, upper, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(words));
  }

  static int32_t round_32(const Avx512Lanes* values, int8_t* codes) {
    const __m512i low = _mm512_cvtps_epi32(values[0].v), high = _mm512_cvtps_epi32(values[1].v);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtsepi32_epi8(low));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 16), _mm512_cvtsepi32_epi8(high));
    return _mm512_reduce_add_epi32(_mm512_add_epi32(low, high));
  }
};

}  // namespace
}  // namespace gristmill::device::cpu
