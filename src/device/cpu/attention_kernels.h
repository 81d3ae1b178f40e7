#pragma once
// Attention over the paged cache, written once over a vector class. Files for an instruction set include this inside
// their target region, after all other headers.
//
// Decode and prefill compute the same numbers in the same order: a score is one accumulator over d ascending, a
// partition's o one accumulator over keys ascending, and partitions are merged in ascending order. They differ in what
// they keep in registers: decode converts a K or V element once and uses it for all heads of the group; prefill expands
// K and V to float32 once for a whole tile of rows and runs register tiles of kTileRows x 2 vectors.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/cpu/attention_layout.h"
#include "device/cpu/elements.h"
#include "device/cpu/kernels.h"
#include "device/cpu/register_tile.h"
#include "device/cpu/row_kernels.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {

/// Scores of kVectors * kLanes keys that start at `position` for kHeads heads: scores + h * kPartition.
template <class V, class E, int kWidth, int kHeads, int kVectors>
void score_keys(const KeyWalk& walk, int position, const float* q, int head_dim, int k_dim, float* scores) {
  constexpr int kPerTile = kWidth / V::kLanes;
  const std::byte* tiles[kVectors];
  GRISTMILL_UNROLL
  for (int v = 0; v < kVectors; ++v) tiles[v] = walk.k_tile(position + v * V::kLanes);
  V sums[kHeads][kVectors];
  GRISTMILL_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[h][v] = V::zero();
  }
  for (int pair = 0; pair < k_dim / 2; ++pair) {
    V even[kHeads], odd[kHeads];
    GRISTMILL_UNROLL
    for (int h = 0; h < kHeads; ++h) even[h] = V::all(q[h * head_dim + 2 * pair]);
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const V k = E::template k<V, 0>(tiles[v], kWidth, pair, v % kPerTile * V::kLanes);
      GRISTMILL_UNROLL
      for (int h = 0; h < kHeads; ++h) sums[h][v] = V::fma(even[h], k, sums[h][v]);
    }
    if (2 * pair + 1 == head_dim) break;  // an odd head_dim has a padding dimension in K, but not in q
    GRISTMILL_UNROLL
    for (int h = 0; h < kHeads; ++h) odd[h] = V::all(q[h * head_dim + 2 * pair + 1]);
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const V k = E::template k<V, 1>(tiles[v], kWidth, pair, v % kPerTile * V::kLanes);
      GRISTMILL_UNROLL
      for (int h = 0; h < kHeads; ++h) sums[h][v] = V::fma(odd[h], k, sums[h][v]);
    }
  }
  GRISTMILL_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) V::store(scores + h * kPartition + v * V::kLanes, sums[h][v]);
  }
}

/// Scores of the first `keys` keys to p = exp2(score - max) in place, zero up to a multiple of 16; gives max and sum.
template <class V>
void softmax_partition(float* scores, int keys, float* largest, float* sum) {
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
}

/// o[kVectors * kLanes dimensions from vector `first` of `chunk`] = sum over keys of p * v, for kHeads heads.
template <class V, class E, int kHeads, int kVectors>
void weigh_values(const KeyWalk& walk, int position, int keys, int chunk, const float* p, float* out,
                  int64_t out_stride) {
  V sums[kHeads][kVectors];
  GRISTMILL_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[h][v] = V::zero();
  }
  const int block_size = walk.layout.block_size;
  constexpr int kPerChunk = 32 / V::kLanes;
  const size_t chunk_bytes = static_cast<size_t>(block_size) * 32 * walk.element;
  for (int done = 0; done < keys;) {
    const int count = std::min(keys - done, block_size - (position + done) % block_size);
    const std::byte* row = walk.v_row(position + done, chunk);
    for (int i = 0; i < count; ++i, row += 32 * walk.element) {
      V weight[kHeads];
      GRISTMILL_UNROLL
      for (int h = 0; h < kHeads; ++h) weight[h] = V::all(p[h * kPartition + done + i]);
      GRISTMILL_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const V value = E::template v<V>(row + v / kPerChunk * chunk_bytes, v % kPerChunk);
        GRISTMILL_UNROLL
        for (int h = 0; h < kHeads; ++h) sums[h][v] = V::fma(weight[h], value, sums[h][v]);
      }
    }
    done += count;
  }
  GRISTMILL_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) V::store(out + h * out_stride + chunk * 32 + v * V::kLanes, sums[h][v]);
  }
}

template <class V, class E, int kWidth, int kHeads>
void attend_heads(const KeyWalk& walk, const float* q, int partition, int keys, float* scores, float* out,
                  int64_t out_stride) {
  const KvLayout& layout = walk.layout;
  const int first = partition * kPartition;
  constexpr int kStep = 4 * V::kLanes < kWidth ? kWidth : 4 * V::kLanes;
  int done = 0;
  for (; done + kStep <= keys; done += kStep) {
    score_keys<V, E, kWidth, kHeads, kStep / V::kLanes>(walk, first + done, q, layout.head_dim, layout.k_dim,
                                                        scores + done);
  }
  for (; done < keys; done += kWidth) {
    score_keys<V, E, kWidth, kHeads, kWidth / V::kLanes>(walk, first + done, q, layout.head_dim, layout.k_dim,
                                                         scores + done);
  }
  GRISTMILL_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    float* const tail = out + h * out_stride + layout.v_dim;
    softmax_partition<V>(scores + h * kPartition, keys, tail, tail + 1);
  }
  // Two chunks at a time where a chunk is too few vectors to hide the latency of the FMA.
  constexpr int kChunks = V::kLanes == 8 ? 1 : 2, kVectors = 32 / V::kLanes;
  int chunk = 0;
  for (; chunk + kChunks <= layout.v_dim / 32; chunk += kChunks) {
    weigh_values<V, E, kHeads, kChunks * kVectors>(walk, first, keys, chunk, scores, out, out_stride);
  }
  for (; chunk < layout.v_dim / 32; ++chunk) {
    weigh_values<V, E, kHeads, kVectors>(walk, first, keys, chunk, scores, out, out_stride);
  }
}

template <class V, class E, int kWidth>
void attend_partition_as(const KvLayout& layout, const KvHead& kv, const AttentionQuery& query, int partition, int keys,
                         std::byte* scratch, float* out, int64_t out_stride) {
  const KeyWalk walk(layout, kv);
  auto* const scores = reinterpret_cast<float*>(scratch);
  for (int h = 0; h < query.group;) {
    const float* const q = query.q + h * layout.head_dim;
    float* const to = out + h * out_stride;
    switch (query.group - h) {
      case 1:
        attend_heads<V, E, kWidth, 1>(walk, q, partition, keys, scores, to, out_stride);
        return;
      case 2:
        attend_heads<V, E, kWidth, 2>(walk, q, partition, keys, scores, to, out_stride);
        return;
      case 4:
        attend_heads<V, E, kWidth, 2>(walk, q, partition, keys, scores, to, out_stride);
        h += 2;
        break;
      default:
        attend_heads<V, E, kWidth, 3>(walk, q, partition, keys, scores, to, out_stride);
        h += 3;
        break;
    }
  }
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

template <class V, class E, int kWidth>
void attend_tile_as(const KvLayout& layout, const KvHead& kv, const AttentionQuery& query, std::byte* scratch,
                    float* out, int64_t out_stride) {
  const KeyWalk walk(layout, kv);
  const int group = query.group, rows = query.queries * group;
  const int head_dim = layout.head_dim, v_dim = layout.v_dim;
  const int64_t part_stride = partial_floats(layout);
  const TileScratch s = TileScratch::at(scratch, layout, rows);
  for (int i = 0; i < query.queries; ++i) {
    std::memcpy(s.q + i * group * head_dim, query.q + i * query.q_stride, sizeof(float) * group * head_dim);
  }
  const int end = query.first_position + query.queries;  // keys that the last query sees
  const auto keys_of = [&](int row, int first) {
    return std::clamp(query.first_position + row / group + 1 - first, 0, kPartition);
  };
  constexpr int kStep = 2 * V::kLanes;
  for (int first = 0; first < end; first += kPartition) {
    const int keys = std::min(kPartition, end - first);
    for (int key = 0; key < keys; key += kStep) {
      // The last tile of the cache may end before the second vector does.
      const int vectors = key + V::kLanes < (keys + kWidth - 1) / kWidth * kWidth ? 2 : 1;
      for (int v = 0; v < vectors; ++v) {
        const int position = first + key + v * V::kLanes;
        const std::byte* const tile = walk.k_tile(position);
        const int lane = position % kWidth;
        for (int pair = 0; pair < layout.k_dim / 2; ++pair) {
          float* const to = s.k + (2 * pair * 2 + v) * V::kLanes;
          V::store(to, E::template k<V, 0>(tile, kWidth, pair, lane));
          V::store(to + 2 * V::kLanes, E::template k<V, 1>(tile, kWidth, pair, lane));
        }
      }
      tile_rows<V>(rows, s.q, head_dim, s.k, kStep, s.scores + key, kPartition, false,
                   [&](int last) { return keys_of(last, first) > key ? head_dim : 0; });
    }
    for (int r = 0; r < rows; ++r) {
      const int seen = keys_of(r, first);
      float* const scores = s.scores + r * kPartition;
      float* const tail = s.part + r * part_stride + v_dim;
      if (seen > 0) softmax_partition<V>(scores, seen, tail, tail + 1);
      const int written = (seen + 15) / 16 * 16;
      std::fill(scores + written, scores + std::max(written, keys), 0.0f);
    }
    for (int d = 0; d < v_dim; d += kStep) {
      for (int key = 0; key < keys;) {
        const int count = std::min(keys - key, layout.block_size - (first + key) % layout.block_size);
        const std::byte* row = walk.v_row(first + key, d / 32);
        for (int i = 0; i < count; ++i, row += 32 * walk.element) {
          float* const to = s.v + (key + i) * kStep;
          const int vector = d % 32 / V::kLanes;
          V::store(to, E::template v<V>(row, vector));
          V::store(to + V::kLanes, E::template v<V>(row, vector + 1));
        }
        key += count;
      }
      tile_rows<V>(rows, s.scores, kPartition, s.v, kStep, s.part + d, part_stride, false,
                   [&](int last) { return keys_of(last, first); });
    }
    for (int r = 0; r < rows; ++r) {
      if (keys_of(r, first) == 0) continue;
      float* const running = s.running + r * part_stride;
      const float* const part = s.part + r * part_stride;
      if (first == 0) {
        std::memcpy(running, part, sizeof(float) * (v_dim + 2));
      } else {
        merge_partial<V>(running, part, v_dim);
      }
    }
  }
  for (int r = 0; r < rows; ++r) {
    finish_row<V>(s.running + r * part_stride, v_dim, head_dim, out + r / group * out_stride + r % group * head_dim);
  }
}

/// `Narrow` has 8 lanes and serves blocks of 8 tokens.
template <class V, class Narrow>
void attend_partition(const KvLayout& layout, const KvHead& kv, const AttentionQuery& query, int partition, int keys,
                      std::byte* scratch, float* out, int64_t out_stride) {
  const auto run = [&]<class Lanes, class E, int kWidth>() {
    attend_partition_as<Lanes, E, kWidth>(layout, kv, query, partition, keys, scratch, out, out_stride);
  };
  const bool wide = layout.tile == 16;
  switch (layout.dtype) {
    case DType::f32:
      return wide ? run.template operator()<V, F32Elements, 16>() : run.template operator()<Narrow, F32Elements, 8>();
    case DType::f16:
      return wide ? run.template operator()<V, F16Elements, 16>() : run.template operator()<Narrow, F16Elements, 8>();
    default:
      return wide ? run.template operator()<V, Bf16Elements, 16>() : run.template operator()<Narrow, Bf16Elements, 8>();
  }
}

template <class V, class Narrow>
void attend_tile(const KvLayout& layout, const KvHead& kv, const AttentionQuery& query, std::byte* scratch, float* out,
                 int64_t out_stride) {
  const auto run = [&]<class Lanes, class E, int kWidth>() {
    attend_tile_as<Lanes, E, kWidth>(layout, kv, query, scratch, out, out_stride);
  };
  const bool wide = layout.tile == 16;
  switch (layout.dtype) {
    case DType::f32:
      return wide ? run.template operator()<V, F32Elements, 16>() : run.template operator()<Narrow, F32Elements, 8>();
    case DType::f16:
      return wide ? run.template operator()<V, F16Elements, 16>() : run.template operator()<Narrow, F16Elements, 8>();
    default:
      return wide ? run.template operator()<V, Bf16Elements, 16>() : run.template operator()<Narrow, Bf16Elements, 8>();
  }
}

}  // namespace gristmill::device::cpu
