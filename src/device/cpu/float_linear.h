#pragma once
// Linears of the float classes, written once over a vector class. Files for an instruction set include this inside
// their target region, after all other headers.
//
// Register tiles of rows x vectors of outputs, one accumulator per output, over the inputs in ascending order. A weight
// is converted once per tile: with 6 or 12 rows that is cheaper than a float32 copy of the panel, and a tile of all
// rows of a small batch reads memory once.
#include <cstdint>

#include "device/cpu/elements.h"
#include "device/cpu/kernels.h"
#include "device/cpu/panel_ahead.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {

/// Outputs [column, column + kVectors vectors) of a panel for kRows rows.
template <class V, class E, int kRows, int kVectors>
void tile_floats(const std::byte* panel, int column, int64_t inputs, PanelAhead ahead, const float* x, int64_t x_stride,
                 float* y, int64_t y_stride) {
  constexpr int kPairBytes = 2 * kFloatPanel * E::kBytes;
  V sums[kRows][kVectors];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[r][v] = V::zero();
  }
  const auto step = [&]<int kParity>(int64_t pair) {
    V w[kVectors];
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      w[v] = E::template k<V, kParity>(panel, kFloatPanel, pair, column + v * V::kLanes);
    }
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const V a = V::all(x[r * x_stride + 2 * pair + kParity]);
      GRISTMILL_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[r][v] = V::fma(a, w[v], sums[r][v]);
    }
  };
  for (int64_t pair = 0; pair < inputs / 2; ++pair) {
    if (ahead.next()) {
      GRISTMILL_UNROLL
      for (int i = 0; i < kPairBytes; i += 64) __builtin_prefetch(ahead.data + i);
    }
    ahead.data += kPairBytes;
    step.template operator()<0>(pair);
    step.template operator()<1>(pair);
  }
  if (inputs % 2 != 0) step.template operator()<0>(inputs / 2);
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) V::store(y + r * y_stride + column + v * V::kLanes, sums[r][v]);
  }
}

template <class V, class E, int kVectors, int kRows>
void tile_floats_of(int rows, const std::byte* panel, int column, int64_t inputs, const PanelAhead& ahead,
                    const float* x, int64_t x_stride, float* y, int64_t y_stride) {
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      return tile_floats_of<V, E, kVectors, kRows - 1>(rows, panel, column, inputs, ahead, x, x_stride, y, y_stride);
    }
  }
  tile_floats<V, E, kRows, kVectors>(panel, column, inputs, ahead, x, x_stride, y, y_stride);
}

template <class V, class E>
void float_linear_as(const PackedWeight& w, int64_t first, int64_t panels, const float* x, int64_t x_stride, int rows,
                     float* y, int64_t y_stride) {
  constexpr int kAll = kFloatPanel / V::kLanes, kSlice = 2 * V::kLanes, kMost = V::kTileRows, kFew = 3;
  const int row_walks = (rows + kMost - 1) / kMost, walks = row_walks * (kFloatPanel / kSlice);
  for (int64_t i = 0; i < panels; ++i, y += kFloatPanel) {
    const std::byte* const panel = w.panel_data(first + i);
    if (kAll > 2 && rows <= kFew) {  // 12 accumulators are enough for the whole width
      tile_floats_of<V, E, kAll, kFew>(rows, panel, 0, w.inputs, PanelAhead(w, panel, 1, 0), x, x_stride, y, y_stride);
      continue;
    }
    int walk = 0;
    for (int column = 0; column < kFloatPanel; column += kSlice) {
      for (int row = 0, left = row_walks; left > 0; --left, ++walk) {
        const int take = PanelAhead::rows_of(rows - row, left);
        tile_floats_of<V, E, 2, kMost>(take, panel, column, w.inputs, PanelAhead(w, panel, walks, walk),
                                       x + row * x_stride, x_stride, y + row * y_stride, y_stride);
        row += take;
      }
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
