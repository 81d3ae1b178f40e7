#pragma once
// Kernels of Gated DeltaNet, written once over a vector class (device/cpu/portable_lanes.h says what its operations
// mean). Files for an instruction set include this inside their target region, after all other headers.
#include <cmath>
#include <cstdint>

#include "device/cpu/kernels.h"
#include "device/cpu/row_kernels.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {

/// body(0) to body(count - 1); unrolled where the count is known (kCount is not 0).
template <int kCount, class Body>
inline void for_each(int count, Body body) {
  if constexpr (kCount == 0) {
    for (int j = 0; j < count; ++j) body(j);
  } else {
    GRISTMILL_UNROLL
    for (int j = 0; j < kCount; ++j) body(j);
  }
}

/// `kVectors` vectors of channels, or the first `left` channels of one; kWidth 0 takes the width from `r`. The window
/// of inputs stays in registers, so that each is read once, before its row is overwritten.
template <class V, int kVectors, int kWidth>
void conv_silu_channels(const ConvRows& r, int64_t channel, int left) {
  const int width = kWidth == 0 ? r.width : kWidth, earlier = width - 1;
  const auto load = [&](const float* p, int v) {
    return kVectors == 1 ? V::load_first(p + channel, left) : V::load(p + channel + v * V::kLanes);
  };
  const auto store = [&](float* p, int v, V value) {
    kVectors == 1 ? V::store_first(p + channel, value, left) : V::store(p + channel + v * V::kLanes, value);
  };
  V window[kWidth == 0 ? kMostConvWidth : kWidth][kVectors];
  for (int j = 0; j < earlier; ++j) {
    const int32_t position = r.position - earlier + j;
    for (int v = 0; v < kVectors; ++v)
      window[j][v] = position < 0 ? V::zero() : load(r.earlier + position % earlier * r.earlier_stride, v);
  }
  for (int t = 0; t < r.rows; ++t) {
    V sums[kVectors];
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = V::zero();
      window[earlier][v] = load(r.x + t * r.x_stride, v);
    }
    for_each<kWidth>(width, [&](int j) {
      GRISTMILL_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[v] = V::fma(load(r.taps + j * r.tap_stride, v), window[j][v], sums[v]);
    });
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) store(r.out + t * r.out_stride, v, silu_mul_lanes(sums[v], V::all(1.0f)));
    for_each<kWidth == 0 ? 0 : kWidth - 1>(earlier, [&](int j) {
      GRISTMILL_UNROLL
      for (int v = 0; v < kVectors; ++v) window[j][v] = window[j + 1][v];
    });
  }
  for (int j = 0; j < earlier; ++j) {
    const int32_t position = r.position + r.rows - earlier + j;
    if (position < r.position) continue;  // is there already
    for (int v = 0; v < kVectors; ++v) store(r.earlier + position % earlier * r.earlier_stride, v, window[j][v]);
  }
}

template <class V, int kWidth>
void conv_silu_of(const ConvRows& r) {
  constexpr int kVectors = 2;
  int64_t channel = 0;
  for (; channel + kVectors * V::kLanes <= r.n; channel += kVectors * V::kLanes)
    conv_silu_channels<V, kVectors, kWidth>(r, channel, 0);
  for (; channel < r.n; channel += V::kLanes)
    conv_silu_channels<V, 1, kWidth>(r, channel, lanes_left<V>(r.n - channel));
}

template <class V>
void conv_silu(const ConvRows& r) {
  r.width == 4 ? conv_silu_of<V, 4>(r) : conv_silu_of<V, 0>(r);
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

template <class V>
void scale_keys(const float* keys, const float* factors, int k_dim, float* out) {
  constexpr int kVectors = kDeltaChunk / V::kLanes;
  for (int k = 0; k < k_dim; ++k, keys += kDeltaChunk, out += kDeltaChunk) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v)
      V::store(out + v * V::kLanes, V::mul(V::load(factors + v * V::kLanes), V::load(keys + v * V::kLanes)));
  }
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
  constexpr int kTile = V::kTileRows > 8 ? 8 : 4;
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
  return {.conv_silu = conv_silu<V>,
          .l2_norm = l2_norm_row<V>,
          .exp = exp_row<V>,
          .key_products = key_products<V>,
          .rows = delta_net_rows<V>,
          .scale_keys = scale_keys<V>,
          .fold = fold_writes<V>};
}

}  // namespace gristmill::device::cpu
