#pragma once
// Linears of the channel classes for AArch64. Include inside a target region, after arm_coded_linear.h, whose panels
// and products these are. Codes are signed; the 8 that 4-bit codes are stored with is taken back by the sum of the
// activation codes.
#include <algorithm>

#include "device/cpu/arm_coded_linear.h"
#include "device/cpu/kernels.h"

namespace gristmill::device::cpu {
namespace {

template <class P, bool kNibbles, int kRows>
void tile_channel_arm(const PackedWeight& w, const std::byte* panel, const TokenBlock& x, int row, float* y,
                      int64_t y_stride) {
  using V = typename P::Lanes;
  constexpr int kBlockBytes = kNibbles ? 128 : 256;
  const V scale = V::load(w.scales(panel));
  const TokenScale* const tokens = x.scales + row;
  const int8_t* codes = x.codes + row * kGroup;
  const typename P::Ints start = P::load(w.addends(panel));
  typename P::template Sums<kRows> sums;
  for (int64_t left = w.blocks(); left > 0; --left) {
    __builtin_prefetch(panel + 1024);
    sums.add(typename P::template Group<kNibbles>(panel), codes);
    panel += kBlockBytes;
    codes += static_cast<int64_t>(x.rows) * kGroup;
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const typename P::Ints from = P::sub(start, P::all(kNibbles ? 8 * tokens[r].sum : 0));
    const V value = V::mul(V::from_ints(P::add(from, sums.of(r))), scale);
    V::store(y + r * y_stride, V::mul(value, V::all(tokens[r].scale)));
  }
}

/// 4-bit codes with a scale per group of a multiple of 32 inputs.
template <class P, int kRows>
void tile_grouped_arm(const PackedWeight& w, const std::byte* panel, const TokenBlock& x, int row, float* y,
                      int64_t y_stride) {
  using V = typename P::Lanes;
  const float* scales = w.scales(panel);
  const TokenScale* const tokens = x.scales + row;
  const int8_t* codes = x.codes + row * kGroup;
  const int32_t* block_sums = x.sums + row;
  V acc[kRows];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) acc[r] = V::zero();
  const int64_t groups = w.scale_groups(), all = w.blocks(), per_group = w.group / kGroup;
  int64_t done = 0;
  for (int64_t group = 0; group < groups; ++group, scales += kArmPanel) {
    typename P::template Sums<kRows> sums;
    int32_t added[kRows] = {};
    for (const int64_t end = std::min(all, done + per_group); done < end; ++done) {
      __builtin_prefetch(panel + 1024);
      sums.add(typename P::template Group<true>(panel), codes);
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) added[r] += 8 * block_sums[r];
      panel += 128;
      codes += static_cast<int64_t>(x.rows) * kGroup;
      block_sums += x.rows;
    }
    const V scale = V::load(scales);
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) acc[r] = V::fma(V::from_ints(P::sub(sums.of(r), P::all(added[r]))), scale, acc[r]);
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) V::store(y + r * y_stride, V::mul(acc[r], V::all(tokens[r].scale)));
}

template <class P>
void arm_channel_linear(const PackedWeight& w, int64_t first, int64_t panels, const TokenBlock& x, float* y,
                        int64_t y_stride) {
  const bool nibbles = w.cls == ComputeClass::i4_channel;
  if (w.group != 0 && (!nibbles || w.group % kGroup != 0)) {
    return portable_channel_linear(w, first, panels, x, y, y_stride);
  }
  for (int64_t i = 0; i < panels; ++i, y += kArmPanel) {
    const std::byte* const panel = w.panel_data(first + i);
    in_row_tiles(x.rows, [&]<int kRows>(int row) {
      float* const to = y + row * y_stride;
      if (w.group != 0) {
        tile_grouped_arm<P, kRows>(w, panel, x, row, to, y_stride);
      } else if (nibbles) {
        tile_channel_arm<P, true, kRows>(w, panel, x, row, to, y_stride);
      } else {
        tile_channel_arm<P, false, kRows>(w, panel, x, row, to, y_stride);
      }
    });
  }
}

}  // namespace
}  // namespace gristmill::device::cpu
