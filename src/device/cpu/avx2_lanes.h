#pragma once
// Include inside a target region with avx2, fma and f16c.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gristmill::device::cpu {
namespace {  // so that each file has kernels of its own, with its own instructions

alignas(32) const uint32_t kUpperHalves[8] = {0xffff0000u, 0xffff0000u, 0xffff0000u, 0xffff0000u,
                                              0xffff0000u, 0xffff0000u, 0xffff0000u, 0xffff0000u};

/// Eight float32 lanes in an AVX2 register. PortableLanes says what the operations mean.
struct Avx2Lanes {
  static constexpr int kLanes = 8;
  static constexpr int kTileRows = 6;

  __m256 v;

  static Avx2Lanes all(float x) { return {_mm256_set1_ps(x)}; }
  static Avx2Lanes zero() { return {_mm256_setzero_ps()}; }
  static Avx2Lanes load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static __m256i first_mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Avx2Lanes load_first(const float* p, int n) { return {_mm256_maskload_ps(p, first_mask(n))}; }
  static void store(float* p, Avx2Lanes a) { _mm256_storeu_ps(p, a.v); }
  static void store_first(float* p, Avx2Lanes a, int n) { _mm256_maskstore_ps(p, first_mask(n), a.v); }

  static Avx2Lanes add(Avx2Lanes a, Avx2Lanes b) { return {_mm256_add_ps(a.v, b.v)}; }
  static Avx2Lanes sub(Avx2Lanes a, Avx2Lanes b) { return {_mm256_sub_ps(a.v, b.v)}; }
  static Avx2Lanes mul(Avx2Lanes a, Avx2Lanes b) { return {_mm256_mul_ps(a.v, b.v)}; }
  static Avx2Lanes div(Avx2Lanes a, Avx2Lanes b) { return {_mm256_div_ps(a.v, b.v)}; }
  static Avx2Lanes fma(Avx2Lanes a, Avx2Lanes b, Avx2Lanes c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  static Avx2Lanes max(Avx2Lanes a, Avx2Lanes b) { return {_mm256_max_ps(a.v, b.v)}; }
  static Avx2Lanes min(Avx2Lanes a, Avx2Lanes b) { return {_mm256_min_ps(a.v, b.v)}; }
  static Avx2Lanes abs(Avx2Lanes a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
  static Avx2Lanes keep_from(Avx2Lanes test, Avx2Lanes limit, Avx2Lanes x) {
    return {_mm256_and_ps(_mm256_cmp_ps(test.v, limit.v, _CMP_GE_OQ), x.v)};
  }
  static Avx2Lanes add_exponent(Avx2Lanes p, Avx2Lanes t) {
    const __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(t.v), 23);
    return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p.v), shifted))};
  }
  static uint32_t equal_mask(Avx2Lanes a, Avx2Lanes b) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)));
  }

  static float tree_sum(Avx2Lanes a) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
  }
  static float tree_max(Avx2Lanes a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
  }
  static Avx2Lanes max_magnitude(Avx2Lanes a, Avx2Lanes b) {
    return {_mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(abs(a).v), _mm256_castps_si256(abs(b).v)))};
  }
  static float tree_max_magnitude(Avx2Lanes a) {
    const __m256i bits = _mm256_castps_si256(abs(a).v);
    __m128i x = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(x));
  }
  static float first(Avx2Lanes a) { return _mm256_cvtss_f32(a.v); }

  static Avx2Lanes f16(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  using Ints = __m256i;
  static Ints no_ints() { return _mm256_setzero_si256(); }
  static Ints byte_pairs(const std::byte* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Ints word_pair(const int16_t* p) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return _mm256_set1_epi32(pair);
  }
  static Ints dot_pairs(Ints acc, Ints a, Ints b) {
#if defined(GRISTMILL_AVXVNNI)
    asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(acc) : "x"(a), "x"(b));  // not the intrinsic: avx512_lanes.h
    return acc;
#else
    return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
#endif
  }
  static Avx2Lanes from_ints(Ints a) { return {_mm256_cvtepi32_ps(a)}; }
  static void words(int16_t* p, Avx2Lanes a) {
    const __m256i ints = _mm256_cvtps_epi32(a.v);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(ints, ints), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }
  static Avx2Lanes i8(const std::byte* p) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
  }
  static Avx2Lanes e4m3(const uint8_t* p) {
    // Sign extension puts the sign into the half's top two bits; the lower of them belongs to the exponent.
    const __m128i codes = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m128i halves = _mm_and_si128(_mm_slli_epi16(codes, 7), _mm_set1_epi16(static_cast<short>(0xbfff)));
    return {_mm256_cvtph_ps(halves)};
  }
  static Avx2Lanes bf16_even(const uint32_t* p) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), 16))};
  }
  static Avx2Lanes bf16_odd(const uint32_t* p) {
    // Load and mask are one asm with a mask in memory: attention keeps 12 accumulators and 3 factors in the 16
    // registers, and a compiler that keeps the mask, or the words from bf16_even, in one of them spills an accumulator.
    __m256i words;
    asm("vmovdqu %1, %0\n\tvpand %2, %0, %0"
        : "=x"(words)
        : "m"(*reinterpret_cast<const __m256i_u*>(p)), "m"(kUpperHalves));
    return {_mm256_castsi256_ps(words)};
  }

  static void store_f16(uint16_t* p, Avx2Lanes a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store_bf16(uint16_t* p, Avx2Lanes a) {
    const __m256i bits = _mm256_castps_si256(a.v), upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(rounded, quiet, nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }

  static int32_t round_32(const Avx2Lanes* values, int8_t* codes) {
    const auto part = [&](int i) { return _mm256_cvtps_epi32(values[i].v); };
    const __m256i low = _mm256_packs_epi32(part(0), part(1)), high = _mm256_packs_epi32(part(2), part(3));
    // The packs work within 128-bit halves: their dwords come out in the order 0 2 4 6 1 3 5 7.
    const __m256i packed =
        _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), packed);
    const __m256i words = _mm256_add_epi16(low, high);  // 16 sums of two codes
    const __m256i sums = _mm256_madd_epi16(words, _mm256_set1_epi16(1));
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
  }
};

}  // namespace
}  // namespace gristmill::device::cpu
