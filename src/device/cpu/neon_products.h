#pragma once
// Integer products of codes for AArch64 with NEON. Include inside a target region with dotprod, after neon_lanes.h, and
// with i8mm for the matrix form (GRISTMILL_I8MM).
//
// A panel is 8 outputs, one per 32-bit lane of two registers. sdot multiplies signed codes, four to a lane, and a lane
// of the other operand serves all outputs, so 16 bytes of activations are four steps. smmla multiplies two rows by two
// outputs over eight inputs: zipping the words of two steps gives its operand, and the panels stay the same for both.
#include <arm_neon.h>

#include "device/cpu/kernels.h"
#include "device/cpu/neon_lanes.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {
namespace {

/// Eight outputs' words of one step.
struct NeonStep {
  int8x16_t low, high;
};

/// The eight steps of a group. 4-bit codes hold steps i and i + 4 in the halves of a byte.
template <bool kNibbles>
struct NeonGroup {
  NeonStep steps[8];

  explicit NeonGroup(const std::byte* block) {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(block);
    GRISTMILL_UNROLL
    for (int i = 0; i < (kNibbles ? 4 : 8); ++i) {
      const uint8x16_t low = vld1q_u8(bytes + 32 * i), high = vld1q_u8(bytes + 32 * i + 16);
      if constexpr (kNibbles) {
        const uint8x16_t mask = vdupq_n_u8(0x0f);
        steps[i] = {vreinterpretq_s8_u8(vandq_u8(low, mask)), vreinterpretq_s8_u8(vandq_u8(high, mask))};
        steps[i + 4] = {vreinterpretq_s8_u8(vshrq_n_u8(low, 4)), vreinterpretq_s8_u8(vshrq_n_u8(high, 4))};
      } else {
        steps[i] = {vreinterpretq_s8_u8(low), vreinterpretq_s8_u8(high)};
      }
    }
  }
};

/// Integer sums of kRows rows by the eight outputs of a panel. One row goes by sdot; with i8mm, pairs of rows by smmla.
template <int kRows>
struct NeonSums {
#if defined(GRISTMILL_I8MM)
  static constexpr bool kPairs = kRows % 2 == 0;
#else
  static constexpr bool kPairs = false;
#endif
  /// By sdot, of row r: [r][0, 1]. By smmla, of rows 2i and 2i + 1 and outputs 2j and 2j + 1: the first row's two, the
  /// second's two, at [2i + j / 2][j % 2].
  int32x4_t lanes[kRows][2];

  NeonSums() {
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) lanes[r][0] = lanes[r][1] = vdupq_n_s32(0);
  }

  /// Adds a group's products; the codes of row r are codes + r * kGroup.
  template <bool kNibbles>
  void add(const NeonGroup<kNibbles>& group, const int8_t* codes) {
    if constexpr (kPairs) {
#if defined(GRISTMILL_I8MM)
      GRISTMILL_UNROLL
      for (int step = 0; step < 8; step += 2) {
        int8x16_t outputs[4];
        zip(group.steps[step].low, group.steps[step + 1].low, outputs);
        zip(group.steps[step].high, group.steps[step + 1].high, outputs + 2);
        GRISTMILL_UNROLL
        for (int r = 0; r < kRows; r += 2) {
          const int8_t* const from = codes + r * kGroup + 4 * step;
          const int8x16_t rows = vcombine_s8(vld1_s8(from), vld1_s8(from + kGroup));
          GRISTMILL_UNROLL
          for (int j = 0; j < 4; ++j) {
            lanes[r + j / 2][j % 2] = vmmlaq_s32(lanes[r + j / 2][j % 2], rows, outputs[j]);
          }
        }
      }
#endif
    } else {
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        four_steps<0>(group, vld1q_s8(codes + r * kGroup), lanes[r]);
        four_steps<4>(group, vld1q_s8(codes + r * kGroup + 16), lanes[r]);
      }
    }
  }

  // Inlined always: g++ folds the equal code of two row counts into one function and then warns of its array's bounds.
  [[gnu::always_inline]] NeonLanes::Ints of(int r) const {
    if constexpr (!kPairs) return {lanes[r][0], lanes[r][1]};
    const auto& low = lanes[r / 2 * 2];
    const auto& high = lanes[r / 2 * 2 + 1];
    if (r % 2 == 0) {
      return {vcombine_s32(vget_low_s32(low[0]), vget_low_s32(low[1])),
              vcombine_s32(vget_low_s32(high[0]), vget_low_s32(high[1]))};
    }
    return {vcombine_s32(vget_high_s32(low[0]), vget_high_s32(low[1])),
            vcombine_s32(vget_high_s32(high[0]), vget_high_s32(high[1]))};
  }

 private:
  template <int kFirst, bool kNibbles>
  static void four_steps(const NeonGroup<kNibbles>& group, int8x16_t x, int32x4_t (&sums)[2]) {
    const auto step = [&]<int kLane>() {
      sums[0] = vdotq_laneq_s32(sums[0], group.steps[kFirst + kLane].low, x, kLane);
      sums[1] = vdotq_laneq_s32(sums[1], group.steps[kFirst + kLane].high, x, kLane);
    };
    step.template operator()<0>();
    step.template operator()<1>();
    step.template operator()<2>();
    step.template operator()<3>();
  }

  /// The words of two steps side by side, for outputs 0 and 1, and 2 and 3.
  static void zip(int8x16_t first, int8x16_t second, int8x16_t* outputs) {
    const int32x4_t a = vreinterpretq_s32_s8(first), b = vreinterpretq_s32_s8(second);
    outputs[0] = vreinterpretq_s8_s32(vzip1q_s32(a, b));
    outputs[1] = vreinterpretq_s8_s32(vzip2q_s32(a, b));
  }
};

/// What the linears of codes for AArch64 (arm_coded_linear.h) are written over.
struct NeonProducts {
  using Lanes = NeonLanes;
  using Ints = NeonLanes::Ints;
  template <bool kNibbles>
  using Group = NeonGroup<kNibbles>;
  template <int kRows>
  using Sums = NeonSums<kRows>;

  static Ints all(int32_t x) { return {vdupq_n_s32(x), vdupq_n_s32(x)}; }
  static Ints load(const int32_t* p) { return {vld1q_s32(p), vld1q_s32(p + 4)}; }
  static Ints add(Ints a, Ints b) { return {vaddq_s32(a.low, b.low), vaddq_s32(a.high, b.high)}; }
  static Ints sub(Ints a, Ints b) { return {vsubq_s32(a.low, b.low), vsubq_s32(a.high, b.high)}; }
};

}  // namespace
}  // namespace gristmill::device::cpu
