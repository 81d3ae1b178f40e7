#pragma once
#include <arm_neon.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gristmill::device::cpu {
namespace {  // so that each file has kernels of its own, with its own instructions

/// Eight float32 lanes in two NEON registers. PortableLanes says what the operations mean.
struct NeonLanes {
  static constexpr int kLanes = 8;
  static constexpr int kTileRows = 6;  ///< 24 accumulators, 4 weights and a factor in 32 registers

  float32x4_t low, high;

  static NeonLanes all(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
  static NeonLanes zero() { return all(0.0f); }
  static NeonLanes load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
  static NeonLanes load_first(const float* p, int n) {
    float lanes[kLanes] = {};
    std::memcpy(lanes, p, sizeof(float) * static_cast<size_t>(n));
    return load(lanes);
  }
  static void store(float* p, NeonLanes a) {
    vst1q_f32(p, a.low);
    vst1q_f32(p + 4, a.high);
  }
  static void store_first(float* p, NeonLanes a, int n) {
    float lanes[kLanes];
    store(lanes, a);
    std::memcpy(p, lanes, sizeof(float) * static_cast<size_t>(n));
  }

  static NeonLanes add(NeonLanes a, NeonLanes b) { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
  static NeonLanes sub(NeonLanes a, NeonLanes b) { return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)}; }
  static NeonLanes mul(NeonLanes a, NeonLanes b) { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
  static NeonLanes div(NeonLanes a, NeonLanes b) { return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)}; }
  static NeonLanes fma(NeonLanes a, NeonLanes b, NeonLanes c) {
    return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
  }
  // Not vmaxq and vminq: those give NaN when either is one.
  static NeonLanes max(NeonLanes a, NeonLanes b) {
    return {vbslq_f32(vcgtq_f32(a.low, b.low), a.low, b.low), vbslq_f32(vcgtq_f32(a.high, b.high), a.high, b.high)};
  }
  static NeonLanes min(NeonLanes a, NeonLanes b) {
    return {vbslq_f32(vcltq_f32(a.low, b.low), a.low, b.low), vbslq_f32(vcltq_f32(a.high, b.high), a.high, b.high)};
  }
  static NeonLanes abs(NeonLanes a) { return {vabsq_f32(a.low), vabsq_f32(a.high)}; }
  static NeonLanes keep_from(NeonLanes test, NeonLanes limit, NeonLanes x) {
    const auto keep = [](float32x4_t t, float32x4_t l, float32x4_t v) {
      return vreinterpretq_f32_u32(vandq_u32(vcgeq_f32(t, l), vreinterpretq_u32_f32(v)));
    };
    return {keep(test.low, limit.low, x.low), keep(test.high, limit.high, x.high)};
  }
  static NeonLanes add_exponent(NeonLanes p, NeonLanes t) {
    const auto shifted = [](float32x4_t a, float32x4_t b) {
      return vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(a), vshlq_n_u32(vreinterpretq_u32_f32(b), 23)));
    };
    return {shifted(p.low, t.low), shifted(p.high, t.high)};
  }
  static uint32_t equal_mask(NeonLanes a, NeonLanes b) {
    const uint16x8_t equal = vcombine_u16(vmovn_u32(vceqq_f32(a.low, b.low)), vmovn_u32(vceqq_f32(a.high, b.high)));
    const uint16_t bits[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    return vaddvq_u16(vandq_u16(equal, vld1q_u16(bits)));
  }

  static float tree_sum(NeonLanes a) {
    const float32x4_t four = vaddq_f32(a.low, a.high);
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }
  static float tree_max(NeonLanes a) {
    const float32x4_t four = vbslq_f32(vcgtq_f32(a.low, a.high), a.low, a.high);
    const float32x2_t low_two = vget_low_f32(four), high_two = vget_high_f32(four);
    const float32x2_t two = vbsl_f32(vcgt_f32(low_two, high_two), low_two, high_two);
    const float x = vget_lane_f32(two, 0), y = vget_lane_f32(two, 1);
    return x > y ? x : y;
  }
  static NeonLanes max_magnitude(NeonLanes a, NeonLanes b) {
    const auto larger = [](float32x4_t x, float32x4_t y) {
      return vreinterpretq_f32_u32(vmaxq_u32(vreinterpretq_u32_f32(vabsq_f32(x)), vreinterpretq_u32_f32(vabsq_f32(y))));
    };
    return {larger(a.low, b.low), larger(a.high, b.high)};
  }
  static float tree_max_magnitude(NeonLanes a) {
    return std::bit_cast<float>(vmaxvq_u32(vreinterpretq_u32_f32(max_magnitude(a, {a.high, a.low}).low)));
  }
  static float first(NeonLanes a) { return vgetq_lane_f32(a.low, 0); }

  static NeonLanes f16(const uint16_t* p) {
    const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(p));
    return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_f32_f16(vget_high_f16(halves))};
  }
  struct Ints {
    int32x4_t low, high;
  };
  static Ints no_ints() { return {vdupq_n_s32(0), vdupq_n_s32(0)}; }
  static Ints byte_pairs(const std::byte* p) {
    const int8x16_t bytes = vld1q_s8(reinterpret_cast<const int8_t*>(p));
    return {vreinterpretq_s32_s16(vmovl_s8(vget_low_s8(bytes))), vreinterpretq_s32_s16(vmovl_high_s8(bytes))};
  }
  static Ints word_pair(const int16_t* p) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return {vdupq_n_s32(pair), vdupq_n_s32(pair)};
  }
  static Ints dot_pairs(Ints acc, Ints a, Ints b) {
    const auto dot = [](int32x4_t sum, int32x4_t x, int32x4_t y) {
      const int16x8_t u = vreinterpretq_s16_s32(x), v = vreinterpretq_s16_s32(y);
      return vaddq_s32(sum, vpaddq_s32(vmull_s16(vget_low_s16(u), vget_low_s16(v)), vmull_high_s16(u, v)));
    };
    return {dot(acc.low, a.low, b.low), dot(acc.high, a.high, b.high)};
  }
  static NeonLanes from_ints(Ints a) { return {vcvtq_f32_s32(a.low), vcvtq_f32_s32(a.high)}; }
  static void words(int16_t* p, NeonLanes a) {
    vst1q_s16(p, vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(a.low)), vqmovn_s32(vcvtnq_s32_f32(a.high))));
  }
  static NeonLanes i8(const std::byte* p) {
    const int16x8_t words = vmovl_s8(vld1_s8(reinterpret_cast<const int8_t*>(p)));
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(words)))};
  }
  static NeonLanes e4m3(const uint8_t* p) {
    // Sign extension puts the sign into the half's top two bits; the lower of them belongs to the exponent.
    const uint16x8_t codes = vreinterpretq_u16_s16(vshll_n_s8(vreinterpret_s8_u8(vld1_u8(p)), 7));
    const float16x8_t halves = vreinterpretq_f16_u16(vandq_u16(codes, vdupq_n_u16(0xbfff)));
    return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_f32_f16(vget_high_f16(halves))};
  }
  static NeonLanes bf16_even(const uint32_t* p) {
    return {vreinterpretq_f32_u32(vshlq_n_u32(vld1q_u32(p), 16)),
            vreinterpretq_f32_u32(vshlq_n_u32(vld1q_u32(p + 4), 16))};
  }
  static NeonLanes bf16_odd(const uint32_t* p) {
    const uint32x4_t upper = vdupq_n_u32(0xffff0000u);
    return {vreinterpretq_f32_u32(vandq_u32(vld1q_u32(p), upper)),
            vreinterpretq_f32_u32(vandq_u32(vld1q_u32(p + 4), upper))};
  }

  static void store_f16(uint16_t* p, NeonLanes a) {
    vst1q_u16(p, vreinterpretq_u16_f16(vcombine_f16(vcvt_f16_f32(a.low), vcvt_f16_f32(a.high))));
  }
  static void store_bf16(uint16_t* p, NeonLanes a) {
    const auto rounded = [](float32x4_t x) {
      const uint32x4_t bits = vreinterpretq_u32_f32(x), upper = vshrq_n_u32(bits, 16);
      const uint32x4_t odd = vandq_u32(upper, vdupq_n_u32(1));
      const uint32x4_t nearest = vshrq_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
      return vmovn_u32(vbslq_u32(vceqq_f32(x, x), nearest, vorrq_u32(upper, vdupq_n_u32(0x40))));
    };
    vst1q_u16(p, vcombine_u16(rounded(a.low), rounded(a.high)));
  }

  static int32_t round_32(const NeonLanes* values, int8_t* codes) {
    int32_t sum = 0;
    for (int i = 0; i < 4; i += 2) {
      const auto part = [](NeonLanes x) {
        return vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(x.low)), vqmovn_s32(vcvtnq_s32_f32(x.high)));
      };
      const int16x8_t a = part(values[i]), b = part(values[i + 1]);
      vst1q_s8(codes + 8 * i, vcombine_s8(vqmovn_s16(a), vqmovn_s16(b)));
      sum += vaddlvq_s16(a) + vaddlvq_s16(b);
    }
    return sum;
  }
};

}  // namespace
}  // namespace gristmill::device::cpu
