#pragma once
// Include inside a target region with sve, in a file that is compiled for vectors of 256 bits (CMakeLists.txt).
#include <arm_sve.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gristmill::device::cpu {
namespace {  // so that each file has kernels of its own, with its own instructions

using SveFloats = svfloat32_t __attribute__((arm_sve_vector_bits(256)));
using SveInts = svint32_t __attribute__((arm_sve_vector_bits(256)));
using SveBytes = svint8_t __attribute__((arm_sve_vector_bits(256)));

/// Eight float32 lanes in a 256-bit SVE register. PortableLanes says what the operations mean.
struct SveLanes {
  static constexpr int kLanes = 8;
  static constexpr int kTileRows = 12;  ///< 24 accumulators, 2 weights and a factor in 32 registers

  SveFloats v;

  static svbool_t every() { return svptrue_b32(); }
  static svbool_t first_lanes(int n) { return svwhilelt_b32_s32(0, n); }
  static SveLanes all(float x) { return {svdup_n_f32(x)}; }
  static SveLanes zero() { return all(0.0f); }
  static SveLanes load(const float* p) { return {svld1_f32(every(), p)}; }
  static SveLanes load_first(const float* p, int n) { return {svld1_f32(first_lanes(n), p)}; }
  static void store(float* p, SveLanes a) { svst1_f32(every(), p, a.v); }
  static void store_first(float* p, SveLanes a, int n) { svst1_f32(first_lanes(n), p, a.v); }

  static SveLanes add(SveLanes a, SveLanes b) { return {svadd_f32_x(every(), a.v, b.v)}; }
  static SveLanes sub(SveLanes a, SveLanes b) { return {svsub_f32_x(every(), a.v, b.v)}; }
  static SveLanes mul(SveLanes a, SveLanes b) { return {svmul_f32_x(every(), a.v, b.v)}; }
  static SveLanes div(SveLanes a, SveLanes b) { return {svdiv_f32_x(every(), a.v, b.v)}; }
  static SveLanes fma(SveLanes a, SveLanes b, SveLanes c) { return {svmla_f32_x(every(), c.v, a.v, b.v)}; }
  // Not svmax and svmin: those give NaN when either is one.
  static SveLanes max(SveLanes a, SveLanes b) { return {svsel_f32(svcmpgt_f32(every(), a.v, b.v), a.v, b.v)}; }
  static SveLanes min(SveLanes a, SveLanes b) { return {svsel_f32(svcmplt_f32(every(), a.v, b.v), a.v, b.v)}; }
  static SveLanes abs(SveLanes a) { return {svabs_f32_x(every(), a.v)}; }
  static SveLanes keep_from(SveLanes test, SveLanes limit, SveLanes x) {
    return {svsel_f32(svcmpge_f32(every(), test.v, limit.v), x.v, svdup_n_f32(0.0f))};
  }
  static SveLanes add_exponent(SveLanes p, SveLanes t) {
    const svuint32_t shifted = svlsl_n_u32_x(every(), svreinterpret_u32_f32(t.v), 23);
    return {svreinterpret_f32_u32(svadd_u32_x(every(), svreinterpret_u32_f32(p.v), shifted))};
  }
  static uint32_t equal_mask(SveLanes a, SveLanes b) {
    const svuint32_t bits = svlsl_u32_x(every(), svdup_n_u32(1), svindex_u32(0, 1));
    return static_cast<uint32_t>(svaddv_u32(svcmpeq_f32(every(), a.v, b.v), bits));
  }

  static float tree_sum(SveLanes a) {
    a = add(a, {svext_f32(a.v, a.v, 4)});
    a = add(a, {svext_f32(a.v, a.v, 2)});
    return first(add(a, {svext_f32(a.v, a.v, 1)}));
  }
  static float tree_max(SveLanes a) {
    a = max(a, {svext_f32(a.v, a.v, 4)});
    a = max(a, {svext_f32(a.v, a.v, 2)});
    return first(max(a, {svext_f32(a.v, a.v, 1)}));
  }
  static SveLanes max_magnitude(SveLanes a, SveLanes b) {
    return {
        svreinterpret_f32_u32(svmax_u32_x(every(), svreinterpret_u32_f32(abs(a).v), svreinterpret_u32_f32(abs(b).v)))};
  }
  static float tree_max_magnitude(SveLanes a) {
    return std::bit_cast<float>(svmaxv_u32(every(), svreinterpret_u32_f32(abs(a).v)));
  }
  static float first(SveLanes a) { return svlasta_f32(svpfalse_b(), a.v); }

  static SveLanes f16(const uint16_t* p) { return of_halves(svld1uh_u32(every(), p)); }
  struct Ints {
    SveInts v;
  };
  static Ints no_ints() { return {svdup_n_s32(0)}; }
  static Ints byte_pairs(const std::byte* p) {
    return {svreinterpret_s32_s16(svld1sb_s16(svptrue_b16(), reinterpret_cast<const int8_t*>(p)))};
  }
  static Ints word_pair(const int16_t* p) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return {svdup_n_s32(pair)};
  }
  static Ints dot_pairs(Ints acc, Ints a, Ints b) {
    const svint32_t lower = svmla_s32_x(every(), acc.v, svexth_s32_x(every(), a.v), svexth_s32_x(every(), b.v));
    return {svmla_s32_x(every(), lower, svasr_n_s32_x(every(), a.v, 16), svasr_n_s32_x(every(), b.v, 16))};
  }
  static SveLanes from_ints(Ints a) { return {svcvt_f32_s32_x(every(), a.v)}; }
  static void words(int16_t* p, SveLanes a) { svst1h_s32(every(), p, rounded(a)); }
  static SveLanes i8(const std::byte* p) {
    return {svcvt_f32_s32_x(every(), svld1sb_s32(every(), reinterpret_cast<const int8_t*>(p)))};
  }
  static SveLanes e4m3(const uint8_t* p) {
    // Sign extension puts the sign into the half's top two bits; the lower of them belongs to the exponent.
    const svint32_t codes = svld1sb_s32(every(), reinterpret_cast<const int8_t*>(p));
    const svuint32_t halves = svreinterpret_u32_s32(svlsl_n_s32_x(every(), codes, 7));
    return of_halves(svand_n_u32_x(every(), halves, 0xbfff));
  }
  static SveLanes bf16_even(const uint32_t* p) {
    return {svreinterpret_f32_u32(svlsl_n_u32_x(every(), svld1_u32(every(), p), 16))};
  }
  static SveLanes bf16_odd(const uint32_t* p) {
    return {svreinterpret_f32_u32(svand_n_u32_x(every(), svld1_u32(every(), p), 0xffff0000u))};
  }

  static void store_f16(uint16_t* p, SveLanes a) {
    svst1h_u32(every(), p, svreinterpret_u32_f16(svcvt_f16_f32_x(every(), a.v)));
  }
  static void store_bf16(uint16_t* p, SveLanes a) {
    const svuint32_t bits = svreinterpret_u32_f32(a.v), upper = svlsr_n_u32_x(every(), bits, 16);
    const svuint32_t odd = svand_n_u32_x(every(), upper, 1);
    const svuint32_t nearest =
        svlsr_n_u32_x(every(), svadd_u32_x(every(), bits, svadd_n_u32_x(every(), odd, 0x7fff)), 16);
    const svbool_t number = svcmpeq_f32(every(), a.v, a.v);
    svst1h_u32(every(), p, svsel_u32(number, nearest, svorr_n_u32_x(every(), upper, 0x40)));
  }

  static int32_t round_32(const SveLanes* values, int8_t* codes) {
    svint32_t sum = svdup_n_s32(0);
    for (int i = 0; i < 4; ++i) {
      const svint32_t code = rounded(values[i]);
      svst1b_s32(every(), codes + 8 * i, svmax_n_s32_x(every(), svmin_n_s32_x(every(), code, 127), -128));
      sum = svadd_s32_x(every(), sum, code);
    }
    return static_cast<int32_t>(svaddv_s32(every(), sum));
  }

 private:
  static SveLanes of_halves(svuint32_t halves) { return {svcvt_f32_f16_x(every(), svreinterpret_f16_u32(halves))}; }
  static svint32_t rounded(SveLanes a) { return svcvt_s32_f32_x(every(), svrintn_f32_x(every(), a.v)); }
};

}  // namespace
}  // namespace gristmill::device::cpu
