#pragma once
// Linears of the float classes, written once over a vector class. Files for an instruction set include this inside
// their target region, after all other headers.
#include <algorithm>
#include <cstdint>

#include "device/cpu/elements.h"
#include "device/cpu/kernels.h"
#include "device/cpu/panel_ahead.h"
#include "device/cpu/register_tile.h"

namespace gristmill::device::cpu {

template <class V, class E>
void float_linear_as(const PackedWeight& w, int64_t first, int64_t panels, const float* x, int64_t x_stride, int rows,
                     float* y, int64_t y_stride) {
  constexpr int kAll = kFloatPanel / V::kLanes, kSlice = 2 * V::kLanes, kMost = V::kTileRows, kFew = 3;
  const int row_walks = (rows + kMost - 1) / kMost, walks = row_walks * (kFloatPanel / kSlice);
  for (int64_t i = 0; i < panels; ++i, y += kFloatPanel) {
    const std::byte* const panel = w.panel_data(first + i);
    if (kAll > 2 && rows <= kFew) {  // 12 accumulators are enough for the whole width
      tile_product_of<V, E, kAll, kFew>(rows, panel, kFloatPanel, 0, w.inputs, PanelAhead(w, panel, 1, 0), x, x_stride,
                                        y, y_stride);
      continue;
    }
    int walk = 0;
    for (int column = 0; column < kFloatPanel; column += kSlice) {
      for (int row = 0, left = row_walks; left > 0; --left, ++walk) {
        const int take = PanelAhead::rows_of(rows - row, left);
        tile_product_of<V, E, 2, kMost>(take, panel, kFloatPanel, column, w.inputs, PanelAhead(w, panel, walks, walk),
                                        x + row * x_stride, x_stride, y + row * y_stride + column, y_stride);
        row += take;
      }
    }
  }
}

/// y[rows][kFloatPanel] of one panel *= its outputs' scales.
template <class V>
void scale_outputs(const float* scales, int rows, float* y, int64_t y_stride) {
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < kFloatPanel; i += V::kLanes)
      V::store(y + r * y_stride + i, V::mul(V::load(y + r * y_stride + i), V::load(scales + i)));
}

/// Of a class with scales per group of inputs: over groups ascending, y = fma(the group's own sum, scale, y), from 0.
template <class V, class E>
void grouped_float_linear(const PackedWeight& w, int64_t first, int64_t panels, const float* x, int64_t x_stride,
                          int rows, float* y, int64_t y_stride) {
  constexpr int kSlice = 2 * V::kLanes, kMost = V::kTileRows;
  const int64_t group = w.group == 0 ? w.inputs : w.group;
  const int row_walks = (rows + kMost - 1) / kMost, walks = row_walks * (kFloatPanel / kSlice);
  float sums[kMost * kSlice];
  for (int64_t i = 0; i < panels; ++i, y += kFloatPanel) {
    const std::byte* const panel = w.panel_data(first + i);
    int walk = 0;
    for (int column = 0; column < kFloatPanel; column += kSlice) {
      for (int row = 0, left = row_walks; left > 0; --left, ++walk) {
        const int take = PanelAhead::rows_of(rows - row, left);
        float* const to = y + row * y_stride + column;
        const float* scales = w.scales(panel) + column;
        for (int64_t k = 0; k < w.inputs; k += group, scales += kFloatPanel) {
          const std::byte* const tile = panel + k * kFloatPanel * E::kBytes;
          tile_product_of<V, E, 2, kMost>(take, tile, kFloatPanel, column, std::min(group, w.inputs - k),
                                          PanelAhead(w, tile, walks, walk), x + row * x_stride + k, x_stride, sums,
                                          kSlice);
          for (int r = 0; r < take; ++r) {
            GRISTMILL_UNROLL
            for (int v = 0; v < kSlice; v += V::kLanes) {
              const V before = k == 0 ? V::zero() : V::load(to + r * y_stride + v);
              V::store(to + r * y_stride + v, V::fma(V::load(sums + r * kSlice + v), V::load(scales + v), before));
            }
          }
        }
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
    case ComputeClass::i8_float:
      float_linear_as<V, I8WeightElements>(w, first, panels, x, x_stride, rows, y, y_stride);
      for (int64_t i = 0; i < panels; ++i)
        scale_outputs<V>(w.scales(w.panel_data(first + i)), rows, y + i * kFloatPanel, y_stride);
      return;
    case ComputeClass::f8_float:
      return grouped_float_linear<V, E4m3Elements>(w, first, panels, x, x_stride, rows, y, y_stride);
    default:
      return float_linear_as<V, Bf16Elements>(w, first, panels, x, x_stride, rows, y, y_stride);
  }
}

}  // namespace gristmill::device::cpu
