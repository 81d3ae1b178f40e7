#pragma once
// Linears of the channel classes for AArch64. Include inside a target region, after neon_coded_linear.h, whose panels
// and products these are. Codes are signed; the 8 that 4-bit codes are stored with is taken back by the sum of the
// activation codes.
#include <arm_neon.h>

#include <algorithm>

#include "device/cpu/kernels.h"
#include "device/cpu/neon_coded_linear.h"

namespace gristmill::device::cpu {
namespace {

template <bool kNibbles, int kRows>
void tile_channel_neon(const PackedWeight& w, const std::byte* panel, const TokenBlock& x, int row, float* y,
                       int64_t y_stride) {
  constexpr int kBlockBytes = kNibbles ? 128 : 256;
  const float* const scales = w.scales(panel);
  const TokenScale* const tokens = x.scales + row;
  const int8_t* codes = x.codes + row * kGroup;
  const int32x4_t start[2] = {vld1q_s32(w.addends(panel)), vld1q_s32(w.addends(panel) + 4)};
  NeonSums<kRows> sums;
  for (int64_t left = w.blocks(); left > 0; --left) {
    __builtin_prefetch(panel + 1024);
    sums.add(NeonGroup<kNibbles>(panel), codes);
    panel += kBlockBytes;
    codes += static_cast<int64_t>(x.rows) * kGroup;
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const int32x4_t added = vdupq_n_s32(kNibbles ? 8 * tokens[r].sum : 0);
    const NeonPair sum = sums.of(r);
    GRISTMILL_UNROLL
    for (int p = 0; p < 2; ++p) {
      const int32x4_t whole = vaddq_s32(vsubq_s32(start[p], added), p == 0 ? sum.low : sum.high);
      const float32x4_t value = vmulq_f32(vcvtq_f32_s32(whole), vld1q_f32(scales + 4 * p));
      vst1q_f32(y + r * y_stride + 4 * p, vmulq_n_f32(value, tokens[r].scale));
    }
  }
}

/// 4-bit codes with a scale per group of a multiple of 32 inputs.
template <int kRows>
void tile_grouped_neon(const PackedWeight& w, const std::byte* panel, const TokenBlock& x, int row, float* y,
                       int64_t y_stride) {
  const float* scales = w.scales(panel);
  const TokenScale* const tokens = x.scales + row;
  const int8_t* codes = x.codes + row * kGroup;
  const int32_t* block_sums = x.sums + row;
  float32x4_t acc[kRows][2];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = vdupq_n_f32(0.0f);
  const int64_t groups = w.scale_groups(), all = w.blocks(), per_group = w.group / kGroup;
  int64_t done = 0;
  for (int64_t group = 0; group < groups; ++group, scales += w.panel) {
    NeonSums<kRows> sums;
    int32_t added[kRows] = {};
    for (const int64_t end = std::min(all, done + per_group); done < end; ++done) {
      __builtin_prefetch(panel + 1024);
      sums.add(NeonGroup<true>(panel), codes);
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) added[r] += 8 * block_sums[r];
      panel += 128;
      codes += static_cast<int64_t>(x.rows) * kGroup;
      block_sums += x.rows;
    }
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const NeonPair sum = sums.of(r);
      const int32x4_t back = vdupq_n_s32(added[r]);
      acc[r][0] = vfmaq_f32(acc[r][0], vcvtq_f32_s32(vsubq_s32(sum.low, back)), vld1q_f32(scales));
      acc[r][1] = vfmaq_f32(acc[r][1], vcvtq_f32_s32(vsubq_s32(sum.high, back)), vld1q_f32(scales + 4));
    }
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    vst1q_f32(y + r * y_stride, vmulq_n_f32(acc[r][0], tokens[r].scale));
    vst1q_f32(y + r * y_stride + 4, vmulq_n_f32(acc[r][1], tokens[r].scale));
  }
}

void neon_channel_linear(const PackedWeight& w, int64_t first, int64_t panels, const TokenBlock& x, float* y,
                         int64_t y_stride) {
  const bool nibbles = w.cls == ComputeClass::i4_channel;
  if (w.group != 0 && (!nibbles || w.group % kGroup != 0)) {
    return portable_channel_linear(w, first, panels, x, y, y_stride);
  }
  for (int64_t i = 0; i < panels; ++i, y += 8) {
    const std::byte* const panel = w.panel_data(first + i);
    in_row_tiles(x.rows, [&]<int kRows>(int row) {
      float* const to = y + row * y_stride;
      if (w.group != 0) {
        tile_grouped_neon<kRows>(w, panel, x, row, to, y_stride);
      } else if (nibbles) {
        tile_channel_neon<true, kRows>(w, panel, x, row, to, y_stride);
      } else {
        tile_channel_neon<false, kRows>(w, panel, x, row, to, y_stride);
      }
    });
  }
}

}  // namespace
}  // namespace gristmill::device::cpu
