#pragma once
// The register tile of float32 products: kTileRows rows x 2 vectors of accumulators, one per output, over k ascending.
#include <cstdint>

#include "device/cpu/target.h"

namespace gristmill::device::cpu {

/// c[r][2 vectors] = sum over i < n of a[r * a_stride + i] * b[i * b_stride][2 vectors].
template <class V, int kRows>
void tile_product(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t n, float* c,
                  int64_t c_stride) {
  V sums[kRows][2];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = V::zero();
  for (int64_t i = 0; i < n; ++i, b += b_stride) {
    const V b0 = V::load(b), b1 = V::load(b + V::kLanes);
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const V x = V::all(a[r * a_stride + i]);
      sums[r][0] = V::fma(x, b0, sums[r][0]);
      sums[r][1] = V::fma(x, b1, sums[r][1]);
    }
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    V::store(c + r * c_stride, sums[r][0]);
    V::store(c + r * c_stride + V::kLanes, sums[r][1]);
  }
}

/// `rows` rows in register tiles. n_of(r) says how far the sum goes for a tile whose last row is r; a tile of n 0 is
/// left as it was.
template <class V, class Limit>
void tile_rows(int rows, const float* a, int64_t a_stride, const float* b, int64_t b_stride, float* c, int64_t c_stride,
               Limit n_of) {
  for (int r = 0; r < rows;) {
    const int left = rows - r;
    constexpr int kFull = V::kTileRows, kHalf = kFull / 2;
    const int take = left >= kFull ? kFull : left >= kHalf ? kHalf : left >= 2 ? 2 : 1;
    if (const int64_t n = n_of(r + take - 1); n > 0) {
      const float* const from = a + r * a_stride;
      float* const to = c + r * c_stride;
      if (take == kFull) {
        tile_product<V, kFull>(from, a_stride, b, b_stride, n, to, c_stride);
      } else if (take == kHalf) {
        tile_product<V, kHalf>(from, a_stride, b, b_stride, n, to, c_stride);
      } else if (take == 2) {
        tile_product<V, 2>(from, a_stride, b, b_stride, n, to, c_stride);
      } else {
        tile_product<V, 1>(from, a_stride, b, b_stride, n, to, c_stride);
      }
    }
    r += take;
  }
}

}  // namespace gristmill::device::cpu
