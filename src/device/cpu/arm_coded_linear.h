#pragma once
// Linears of the coded classes for AArch64. Include inside a target region. `P` has the instructions: how a group's
// products are summed for some rows and the eight outputs of a panel, and eight lanes (neon_products.h,
// sve_products.h).
#include <utility>

#include "device/cpu/kernels.h"
#include "device/cpu/panel_ahead.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {
namespace {

constexpr int kArmPanel = 8;

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

template <class P, bool kNibbles, bool kMin, bool kOffset, int kRows>
void tile_arm(const PackedWeight& w, const std::byte* panel, const QuantizedBlock& x, int row, float* y,
              int64_t y_stride) {
  using V = typename P::Lanes;
  constexpr int kTable = kNibbles ? 128 : 256;
  const V minus_zero = V::all(-w.zero);
  const int8_t* codes = x.codes + row * kGroup;
  const GroupScale* scales = x.scales + row;
  V acc[kRows];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) acc[r] = V::zero();
  for (int64_t left = w.inputs / kGroup; left > 0; --left) {
    __builtin_prefetch(panel + 1024);
    typename P::template Sums<kRows> sums;
    sums.add(typename P::template Group<kNibbles>(panel), codes);
    const auto* const table = reinterpret_cast<const uint16_t*>(panel + kTable);
    const V scale = V::f16(table), min = kMin ? V::f16(table + kArmPanel) : V::zero();
    const V offset = V::fma(minus_zero, scale, min);
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if constexpr (kOffset) acc[r] = V::fma(offset, V::all(scales[r].scaled_sum), acc[r]);
      acc[r] = V::fma(V::from_ints(sums.of(r)), V::mul(scale, V::all(scales[r].scale)), acc[r]);
    }
    panel += kTable + (kMin ? 32 : 16);
    codes += static_cast<int64_t>(x.rows) * kGroup;
    scales += x.rows;
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) V::store(y + r * y_stride, acc[r]);
}

template <class P, bool kNibbles, bool kMin, bool kOffset>
void coded_panels_arm(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                      int64_t y_stride) {
  for (int64_t i = 0; i < panels; ++i, y += kArmPanel) {
    const std::byte* const panel = w.panel_data(first + i);
    in_row_tiles(x.rows, [&]<int kRows>(int row) {
      tile_arm<P, kNibbles, kMin, kOffset, kRows>(w, panel, x, row, y + row * y_stride, y_stride);
    });
  }
}

template <class P>
void arm_coded_linear(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                      int64_t y_stride) {
  if (w.cls == ComputeClass::i4_group) {
    if (w.has_min) return coded_panels_arm<P, true, true, true>(w, first, panels, x, y, y_stride);
    if (w.zero != 0.0f) return coded_panels_arm<P, true, false, true>(w, first, panels, x, y, y_stride);
    return coded_panels_arm<P, true, false, false>(w, first, panels, x, y, y_stride);
  }
  if (w.has_min) return coded_panels_arm<P, false, true, true>(w, first, panels, x, y, y_stride);
  coded_panels_arm<P, false, false, false>(w, first, panels, x, y, y_stride);
}

}  // namespace
}  // namespace gristmill::device::cpu
