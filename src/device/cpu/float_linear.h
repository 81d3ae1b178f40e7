#pragma once
// Linears of the float classes, written once over a vector class. Files for an instruction set include this inside
// their target region, after all other headers.
#include <algorithm>
#include <cstdint>

#include "device/cpu/elements.h"
#include "device/cpu/kernels.h"
#include "device/cpu/register_tile.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {

/// A few rows straight from the panel: every weight is converted once and used for all rows.
template <class V, class E, int kRows>
void stream_panel(const std::byte* panel, int64_t inputs, const float* x, int64_t x_stride, float* y,
                  int64_t y_stride) {
  constexpr int kVectors = kFloatPanel / V::kLanes;
  V sums[kRows][kVectors];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[r][v] = V::zero();
  }
  const auto step = [&]<int kParity>(int64_t pair) {
    V a[kRows];
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) a[r] = V::all(x[r * x_stride + 2 * pair + kParity]);
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const V w = E::template k<V, kParity>(panel, kFloatPanel, pair, v * V::kLanes);
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) sums[r][v] = V::fma(a[r], w, sums[r][v]);
    }
  };
  for (int64_t pair = 0; pair < inputs / 2; ++pair) {
    E::template prefetch<V>(panel, kFloatPanel, pair);
    step.template operator()<0>(pair);
    step.template operator()<1>(pair);
  }
  if (inputs % 2 != 0) step.template operator()<0>(inputs / 2);
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) V::store(y + r * y_stride + v * V::kLanes, sums[r][v]);
  }
}

/// Many rows: a slice two vectors wide is expanded to float32 for a block of inputs and meets all rows in register
/// tiles; the accumulators rest in y between blocks.
template <class V, class E>
void tile_panel(const std::byte* panel, int64_t inputs, const float* x, int64_t x_stride, int rows, float* y,
                int64_t y_stride) {
  constexpr int64_t kInputs = 512;
  constexpr int kSlice = 2 * V::kLanes;
  alignas(64) float expanded[kInputs * kSlice];
  for (int column = 0; column < kFloatPanel; column += kSlice) {
    for (int64_t first = 0; first < inputs; first += kInputs) {
      const int64_t count = std::min(kInputs, inputs - first);
      for (int64_t k = 0; k < count; k += 2) {
        for (int v = 0; v < 2; ++v) {
          const int lane = column + v * V::kLanes;
          float* const to = expanded + k * kSlice + v * V::kLanes;
          V::store(to, E::template k<V, 0>(panel, kFloatPanel, (first + k) / 2, lane));
          if (k + 1 < count) V::store(to + kSlice, E::template k<V, 1>(panel, kFloatPanel, (first + k) / 2, lane));
        }
      }
      tile_rows<V>(rows, x + first, x_stride, expanded, kSlice, y + column, y_stride, first > 0,
                   [&](int) { return count; });
    }
  }
}

template <class V, class E>
void float_linear_as(const PackedWeight& w, int64_t first, int64_t panels, const float* x, int64_t x_stride, int rows,
                     float* y, int64_t y_stride) {
  constexpr int kStreamed = V::kLanes == 8 ? 3 : 6;  // 12 accumulators
  for (int64_t i = 0; i < panels; ++i, y += kFloatPanel) {
    const std::byte* const panel = w.panel_data(first + i);
    if (rows > 2 * kStreamed) {
      tile_panel<V, E>(panel, w.inputs, x, x_stride, rows, y, y_stride);
      continue;
    }
    for (int r = 0; r < rows;) {
      const float* const from = x + r * x_stride;
      float* const to = y + r * y_stride;
      const int take = rows - r >= kStreamed ? kStreamed : rows - r >= 2 ? 2 : 1;
      if (take == kStreamed) {
        stream_panel<V, E, kStreamed>(panel, w.inputs, from, x_stride, to, y_stride);
      } else if (take == 2) {
        stream_panel<V, E, 2>(panel, w.inputs, from, x_stride, to, y_stride);
      } else {
        stream_panel<V, E, 1>(panel, w.inputs, from, x_stride, to, y_stride);
      }
      r += take;
    }
  }
}

template <class V>
void float_linear(const PackedWeight& w, int64_t first, int64_t panels, const float* x, int64_t x_stride, int rows,
                  float* y, int64_t y_stride) {
  switch (w.cls) {
    case ComputeClass::f32:
      return float_linear_as<V, F32Elements>(w, first, panels, x, x_stride, rows, y, y_stride);
    case ComputeClass::f16:
      return float_linear_as<V, F16Elements>(w, first, panels, x, x_stride, rows, y, y_stride);
    default:
      return float_linear_as<V, Bf16Elements>(w, first, panels, x, x_stride, rows, y, y_stride);
  }
}

}  // namespace gristmill::device::cpu
