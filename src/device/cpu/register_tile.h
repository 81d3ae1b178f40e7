#pragma once
// The register tile of the float kernels: rows x vectors of outputs, one accumulator per output, over k ascending.
// Stored elements are converted as they are read, once per tile: with 6 or 12 rows that is cheaper than writing a
// float32 copy first, and a tile of all rows of a small batch reads memory once.
#include <cstdint>

#include "device/cpu/elements.h"
#include "device/cpu/panel_ahead.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {

/// y[r][v vectors] = sum over k < inputs of x[r][k] * tile[k][lane ...]; the tile is [inputs][width]
/// (device/cpu/elements.h).
template <class V, class E, int kRows, int kVectors>
void tile_product(const std::byte* tile, int width, int lane, int64_t inputs, PanelAhead ahead, const float* x,
                  int64_t x_stride, float* y, int64_t y_stride) {
  V sums[kRows][kVectors];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[r][v] = V::zero();
  }
  const auto step = [&]<int kParity>(int64_t pair) {
    V w[kVectors];
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) w[v] = E::template k<V, kParity>(tile, width, pair, lane + v * V::kLanes);
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const V a = V::all(x[r * x_stride + 2 * pair + kParity]);
      GRISTMILL_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[r][v] = V::fma(a, w[v], sums[r][v]);
    }
  };
  const int pair_bytes = 2 * width * E::kBytes;
  for (int64_t pair = 0; pair < inputs / 2; ++pair) {
    if (ahead.next()) {
      for (int i = 0; i < pair_bytes; i += 64) __builtin_prefetch(ahead.data + i);
    }
    ahead.data += pair_bytes;
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

/// The tile for `rows` rows, 1 <= rows <= kMost.
template <class V, class E, int kVectors, int kMost>
void tile_product_of(int rows, const std::byte* tile, int width, int lane, int64_t inputs, const PanelAhead& ahead,
                     const float* x, int64_t x_stride, float* y, int64_t y_stride) {
  if constexpr (kMost > 1) {
    if (rows < kMost) {
      return tile_product_of<V, E, kVectors, kMost - 1>(rows, tile, width, lane, inputs, ahead, x, x_stride, y,
                                                        y_stride);
    }
  }
  tile_product<V, E, kMost, kVectors>(tile, width, lane, inputs, ahead, x, x_stride, y, y_stride);
}

}  // namespace gristmill::device::cpu
