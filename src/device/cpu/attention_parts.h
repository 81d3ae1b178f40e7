#pragma once
// What the attention kernels of all element types have in common, written once over a vector class: softmax within a
// partition, partitions joined in ascending order. Files for an instruction set include this inside their target
// region, after all other headers.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/cpu/attention_layout.h"
#include "device/cpu/kernels.h"
#include "device/cpu/panel_ahead.h"
#include "device/cpu/row_kernels.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {

/// x[0 .. n) *= factors, n rounded up to whole vectors.
template <class V>
void multiply_row(float* x, const float* factors, int n) {
  for (int i = 0; i < n; i += V::kLanes) V::store(x + i, V::mul(V::load(x + i), V::load(factors + i)));
}

/// Scores of the first `keys` keys to p = exp2(score - max) in place, zero up to a multiple of 16; gives max and sum.
/// With kScaled p is multiplied by its value's scale afterwards, which the sum does not see.
template <class V, bool kScaled>
void softmax_partition(float* scores, const float* v_scale, int keys, float* largest, float* sum) {
  constexpr int kVirtual = 16, kVectors = kVirtual / V::kLanes;
  const int end = (keys + kVirtual - 1) / kVirtual * kVirtual;
  for (int i = keys; i < end; ++i) scores[i] = -std::numeric_limits<float>::infinity();
  V peak = V::load(scores);
  for (int i = V::kLanes; i < end; i += V::kLanes) peak = V::max(peak, V::load(scores + i));
  *largest = V::tree_max(peak);
  const V top = V::all(*largest);
  V sums[kVectors];
  GRISTMILL_UNROLL
  for (V& lane : sums) lane = V::zero();
  for (int i = 0; i < end; i += kVirtual) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const V p = exp2_lanes(V::sub(V::load(scores + i + v * V::kLanes), top));
      V::store(scores + i + v * V::kLanes, p);
      sums[v] = V::add(sums[v], p);
    }
  }
  *sum = tree_sum<V, kVectors>(sums);
  if constexpr (kScaled) multiply_row<V>(scores, v_scale, keys);
}

/// The running result of a row, o[v_dim] with m and l behind, takes in the next partition's.
template <class V>
void merge_partial(float* running, const float* next, int v_dim) {
  const float m = running[v_dim], next_m = next[v_dim];
  const float top = m > next_m ? m : next_m;
  const V a = exp2_lanes(V::all(m - top)), b = exp2_lanes(V::all(next_m - top));
  running[v_dim] = top;
  running[v_dim + 1] = std::fma(running[v_dim + 1], V::first(a), next[v_dim + 1] * V::first(b));
  for (int d = 0; d < v_dim; d += V::kLanes) {
    V::store(running + d, V::fma(V::load(running + d), a, V::mul(V::load(next + d), b)));
  }
}

template <class V>
void finish_row(const float* running, int v_dim, int head_dim, float* out) {
  const V factor = V::all(1.0f / running[v_dim + 1]);
  for (int d = 0; d < head_dim; d += V::kLanes) {
    V::store_first(out + d, V::mul(V::load(running + d), factor), lanes_left<V>(head_dim - d));
  }
}

template <class V>
void merge_partitions(float* partials, int64_t stride, int partitions, int v_dim, int head_dim, float* out) {
  for (int i = 1; i < partitions; ++i) merge_partial<V>(partials, partials + i * stride, v_dim);
  finish_row<V>(partials, v_dim, head_dim, out);
}

/// The rows of a prefill tile, query after query, all heads of the group for each.
template <int kMost>
struct RowTiles {
  const AttentionQuery& query;
  int rows;

  /// Of the partition that starts at key `first`, how many keys the row sees.
  int keys_of(int row, int first) const {
    return std::clamp(query.first_position + row / query.group + 1 - first, 0, kPartition);
  }
  /// Calls work(row, height, keys that the last of them sees) for register tiles of even height, at most kMost.
  template <class Work>
  void each(int first, Work work) const {
    for (int row = 0, tiles = (rows + kMost - 1) / kMost; tiles > 0; --tiles) {
      const int height = PanelAhead::rows_of(rows - row, tiles);
      work(row, height, keys_of(row + height - 1, first));
      row += height;
    }
  }
};

/// The rows' results of the partition at key `first` join their running ones.
template <class V, int kMost>
void merge_rows(const RowTiles<kMost>& tiles, const TileScratch& s, int first, const KvLayout& layout) {
  const int64_t stride = partial_floats(layout);
  for (int r = 0; r < tiles.rows; ++r) {
    if (tiles.keys_of(r, first) == 0) continue;
    if (first == 0) {
      std::memcpy(s.running + r * stride, s.part + r * stride, sizeof(float) * (layout.v_dim + 2));
    } else {
      merge_partial<V>(s.running + r * stride, s.part + r * stride, layout.v_dim);
    }
  }
}

template <class V>
void finish_rows(const TileScratch& s, const KvLayout& layout, const AttentionQuery& query, float* out,
                 int64_t out_stride) {
  for (int r = 0; r < query.queries * query.group; ++r) {
    finish_row<V>(s.running + r * partial_floats(layout), layout.v_dim, layout.head_dim,
                  out + r / query.group * out_stride + r % query.group * layout.head_dim);
  }
}

}  // namespace gristmill::device::cpu
