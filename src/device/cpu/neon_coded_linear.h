#pragma once
// Linears of the coded classes for AArch64. Include inside a target region with dotprod, and with i8mm for the matrix
// form.
//
// A panel is 8 outputs, one per 32-bit lane of two registers. sdot multiplies signed codes, four to a lane, and a lane
// of the other operand serves all outputs, so 16 bytes of activations are four steps. smmla multiplies two rows by two
// outputs over eight inputs: zipping the words of two steps gives its operand, and the panels stay the same for both.
#include <arm_neon.h>

#include <cstring>
#include <utility>

#include "device/cpu/kernels.h"
#include "device/cpu/panel_ahead.h"
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

/// Scales of a block, and what is added per sum of the activations: min - zero * scale.
struct NeonScales {
  float32x4_t scale[2], offset[2];

  template <bool kMin>
  static NeonScales of(const std::byte* table, float zero) {
    const auto halves = [](const std::byte* from) {
      uint16_t words[8];
      std::memcpy(words, from, sizeof words);
      return vreinterpretq_f16_u16(vld1q_u16(words));
    };
    const float16x8_t scales = halves(table);
    NeonScales out;
    out.scale[0] = vcvt_f32_f16(vget_low_f16(scales));
    out.scale[1] = vcvt_f32_f16(vget_high_f16(scales));
    float32x4_t min[2] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
    if constexpr (kMin) {
      const float16x8_t mins = halves(table + 16);
      min[0] = vcvt_f32_f16(vget_low_f16(mins));
      min[1] = vcvt_f32_f16(vget_high_f16(mins));
    }
    GRISTMILL_UNROLL
    for (int p = 0; p < 2; ++p) out.offset[p] = vfmsq_f32(min[p], vdupq_n_f32(zero), out.scale[p]);
    return out;
  }

  template <bool kOffset>
  void add(int32x4_t low, int32x4_t high, const GroupScale& x, float32x4_t (&acc)[2]) const {
    const int32x4_t sums[2] = {low, high};
    GRISTMILL_UNROLL
    for (int p = 0; p < 2; ++p) {
      if constexpr (kOffset) acc[p] = vfmaq_f32(acc[p], offset[p], vdupq_n_f32(x.scaled_sum));
      acc[p] = vfmaq_f32(acc[p], vcvtq_f32_s32(sums[p]), vmulq_f32(scale[p], vdupq_n_f32(x.scale)));
    }
  }
};

struct NeonPair {
  int32x4_t low, high;  ///< outputs 0 to 3, 4 to 7
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
  [[gnu::always_inline]] NeonPair of(int r) const {
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

/// Calls work<4>(row), work<2>(row) and work<1>(row) for all rows.
template <class Work>
void in_row_tiles(int rows, Work work) {
  int row = 0;
  for (; row + 4 <= rows; row += 4) work.template operator()<4>(row);
  if (row + 2 <= rows) {
    work.template operator()<2>(row);
    row += 2;
  }
  if (row < rows) work.template operator()<1>(row);
}

template <bool kNibbles, bool kMin, bool kOffset, int kRows>
void tile_neon(const PackedWeight& w, const std::byte* panel, const QuantizedBlock& x, int row, float* y,
               int64_t y_stride) {
  constexpr int kTable = kNibbles ? 128 : 256;
  const int8_t* codes = x.codes + row * kGroup;
  const GroupScale* scales = x.scales + row;
  float32x4_t acc[kRows][2];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = vdupq_n_f32(0.0f);
  for (int64_t left = w.inputs / kGroup; left > 0; --left) {
    __builtin_prefetch(panel + 1024);
    NeonSums<kRows> sums;
    sums.add(NeonGroup<kNibbles>(panel), codes);
    const NeonScales table = NeonScales::of<kMin>(panel + kTable, w.zero);
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const NeonPair sum = sums.of(r);
      table.add<kOffset>(sum.low, sum.high, scales[r], acc[r]);
    }
    panel += kTable + (kMin ? 32 : 16);
    codes += static_cast<int64_t>(x.rows) * kGroup;
    scales += x.rows;
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    vst1q_f32(y + r * y_stride, acc[r][0]);
    vst1q_f32(y + r * y_stride + 4, acc[r][1]);
  }
}

template <bool kNibbles, bool kMin, bool kOffset>
void coded_panels_neon(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                       int64_t y_stride) {
  for (int64_t i = 0; i < panels; ++i, y += 8) {
    const std::byte* const panel = w.panel_data(first + i);
    in_row_tiles(x.rows, [&]<int kRows>(int row) {
      tile_neon<kNibbles, kMin, kOffset, kRows>(w, panel, x, row, y + row * y_stride, y_stride);
    });
  }
}

void neon_coded_linear(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                       int64_t y_stride) {
  if (w.cls == ComputeClass::i4_group) {
    if (w.has_min) return coded_panels_neon<true, true, true>(w, first, panels, x, y, y_stride);
    if (w.zero != 0.0f) return coded_panels_neon<true, false, true>(w, first, panels, x, y, y_stride);
    return coded_panels_neon<true, false, false>(w, first, panels, x, y, y_stride);
  }
  if (w.has_min) return coded_panels_neon<false, true, true>(w, first, panels, x, y, y_stride);
  coded_panels_neon<false, false, false>(w, first, panels, x, y, y_stride);
}

}  // namespace
}  // namespace gristmill::device::cpu
