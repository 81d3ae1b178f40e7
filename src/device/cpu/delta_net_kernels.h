#pragma once
// Kernels of Gated DeltaNet, written once over a vector class (device/cpu/portable_lanes.h says what its operations
// mean). Files for an instruction set include this inside their target region, after all other headers.
#include <cmath>
#include <cstdint>

#include "device/cpu/kernels.h"
#include "device/cpu/row_kernels.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {

template <class V>
void conv_silu_row(const float* const* inputs, const float* const* taps, int count, int64_t n, float* out) {
  map_row<V>(n, out, [=](auto at) {
    V sum = V::zero();
    for (int j = 0; j < count; ++j) sum = V::fma(at(taps[j]), at(inputs[j]), sum);
    return silu_mul_lanes(sum, V::all(1.0f));
  });
}

template <class V>
void l2_norm_row(float* x, float factor, int64_t n) {
  const float scale = 1.0f / std::sqrt(sum_of_squares<V>(x, n) + 1e-6f) * factor;
  map_row<V>(n, x, [=](auto at) { return V::mul(at(x), V::all(scale)); });
}

template <class V>
void exp_row(const float* x, int64_t n, float* out) {
  map_row<V>(n, out, [=](auto at) { return exp2_lanes(V::mul(at(x), V::all(0x1.715476p+0f))); });  // log2(e)
}

template <class V, int kRows>
void key_products_of(const float* keys, const float* x, int64_t x_stride, int k_dim, float* out, int64_t out_stride) {
  constexpr int kVectors = kDeltaChunk / V::kLanes;
  V sums[kRows][kVectors];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[r][v] = V::zero();
  }
  for (int k = 0; k < k_dim; ++k) {
    V key[kVectors];
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) key[v] = V::load(keys + k * kDeltaChunk + v * V::kLanes);
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const V a = V::all(x[r * x_stride + k]);
      GRISTMILL_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[r][v] = V::fma(a, key[v], sums[r][v]);
    }
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) V::store(out + r * out_stride + v * V::kLanes, sums[r][v]);
  }
}

template <class V>
void key_products(const float* keys, const float* x, int64_t x_stride, int rows, int k_dim, float* out,
                  int64_t out_stride) {
  constexpr int kTile = 4;
  int row = 0;
  for (; row + kTile <= rows; row += kTile)
    key_products_of<V, kTile>(keys, x + row * x_stride, x_stride, k_dim, out + row * out_stride, out_stride);
  for (; row < rows; ++row)
    key_products_of<V, 1>(keys, x + row * x_stride, x_stride, k_dim, out + row * out_stride, out_stride);
}

/// `kVectors` vectors of columns of delta_net_rows, from `column` on.
template <class V, int kVectors>
void delta_net_columns(const DeltaNetRows& r, int column) {
  for (int t = 0; t < r.count; ++t) {
    const int i = r.first + t;
    V write[kVectors], read[kVectors];
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const int at = column + v * V::kLanes, left = lanes_left<V>(r.v_dim - at);
      const V value = V::load_first(r.values + t * r.value_stride + at, left);
      write[v] = V::fma(V::all(-r.kept[t]), V::load(r.key_reads + t * r.padded + at), value);
      read[v] = V::mul(V::all(r.kept[t]), V::load(r.query_reads + t * r.padded + at));
    }
    for (int j = 0; j < i; ++j) {
      const V key = V::all(-r.key_weights[t * kDeltaChunk + j]), query = V::all(r.query_weights[t * kDeltaChunk + j]);
      GRISTMILL_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const V earlier = V::load(r.writes + j * r.padded + column + v * V::kLanes);
        write[v] = V::fma(key, earlier, write[v]);
        read[v] = V::fma(query, earlier, read[v]);
      }
    }
    const V beta = V::all(r.beta[t]), query = V::all(r.query_weights[t * kDeltaChunk + i]);
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const int at = column + v * V::kLanes;
      write[v] = V::mul(write[v], beta);
      V::store(r.writes + i * r.padded + at, write[v]);
      V::store(r.query_reads + t * r.padded + at, V::fma(query, write[v], read[v]));
    }
  }
}

template <class V>
void delta_net_rows(const DeltaNetRows& r) {
  constexpr int kPanelVectors = kFloatPanel / V::kLanes;
  int column = 0;
  if constexpr (kPanelVectors < 4) {
    for (; column + 4 * V::kLanes <= r.padded; column += 4 * V::kLanes) delta_net_columns<V, 4>(r, column);
  }
  for (; column < r.padded; column += kFloatPanel) delta_net_columns<V, kPanelVectors>(r, column);
}

template <class V, int kRows>
void fold_tile(float kept, const float* weighted_keys, const float* writes, int64_t write_stride, float* state) {
  constexpr int kVectors = 2;
  V sums[kRows][kVectors];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = V::mul(V::all(kept), V::load(state + r * kFloatPanel + v * V::kLanes));
  }
  for (int j = 0; j < kDeltaChunk; ++j) {
    V write[kVectors];
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) write[v] = V::load(writes + j * write_stride + v * V::kLanes);
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const V key = V::all(weighted_keys[r * kDeltaChunk + j]);
      GRISTMILL_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[r][v] = V::fma(key, write[v], sums[r][v]);
    }
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) V::store(state + r * kFloatPanel + v * V::kLanes, sums[r][v]);
  }
}

template <class V>
void fold_writes(float kept, const float* weighted_keys, const float* writes, int padded, int k_dim, float* folded) {
  constexpr int kTile = 4;
  for (int panel = 0; panel < padded; panel += kFloatPanel, folded += k_dim * kFloatPanel) {
    for (int column = 0; column < kFloatPanel; column += 2 * V::kLanes) {
      const float* const from = writes + panel + column;
      int k = 0;
      for (; k + kTile <= k_dim; k += kTile)
        fold_tile<V, kTile>(kept, weighted_keys + k * kDeltaChunk, from, padded, folded + k * kFloatPanel + column);
      for (; k < k_dim; ++k)
        fold_tile<V, 1>(kept, weighted_keys + k * kDeltaChunk, from, padded, folded + k * kFloatPanel + column);
    }
  }
}

template <class V>
constexpr DeltaNetKernels delta_net_kernels() {
  return {.conv_silu = conv_silu_row<V>,
          .l2_norm = l2_norm_row<V>,
          .exp = exp_row<V>,
          .key_products = key_products<V>,
          .rows = delta_net_rows<V>,
          .fold = fold_writes<V>};
}

}  // namespace gristmill::device::cpu
