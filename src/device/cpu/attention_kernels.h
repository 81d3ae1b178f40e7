#pragma once
// Attention over the paged cache, written once over a vector class. Files for an instruction set include this inside
// their target region, after all other headers.
//
// Decode and prefill compute the same numbers in the same order: a score is one accumulator over d ascending, a
// partition's o one accumulator over keys ascending, and partitions are merged in ascending order. They differ in what
// they keep in registers: decode all heads of the group times a tile's keys or a chunk's dimensions, prefill register
// tiles of kTileRows rows x 2 vectors.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/cpu/attention_layout.h"
#include "device/cpu/attention_parts.h"
#include "device/cpu/elements.h"
#include "device/cpu/int8_attention.h"
#include "device/cpu/kernels.h"
#include "device/cpu/register_tile.h"
#include "device/cpu/row_kernels.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {

/// Scores of the keys of kTiles neighbouring tiles, kPerTile vectors each, for kHeads heads: scores + h * kPartition.
/// Codes give a sum of their own, which the key's scale multiplies once.
template <class V, class E, int kHeads, int kTiles, int kPerTile>
void score_tiles(const KeyWalk& walk, int position, const float* q, float* scores) {
  constexpr int kVectors = kTiles * kPerTile, kWidth = kPerTile * V::kLanes, kPairBytes = 2 * kWidth * E::kBytes;
  const int head_dim = walk.layout.head_dim, k_dim = walk.layout.k_dim;
  const std::byte* tiles[kTiles];
  const std::byte* ahead[kTiles];
  GRISTMILL_UNROLL
  for (int t = 0; t < kTiles; ++t) {
    tiles[t] = walk.k_tile(position + t * kWidth);
    ahead[t] = walk.ahead_of_k(position + t * kWidth);
  }
  V sums[kHeads][kVectors];
  GRISTMILL_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[h][v] = V::zero();
  }
  for (int pair = 0; pair < k_dim / 2; ++pair) {
    GRISTMILL_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      GRISTMILL_UNROLL
      for (int b = 0; b < kPairBytes; b += 64) __builtin_prefetch(ahead[t] + pair * kPairBytes + b);
    }
    V even[kHeads], odd[kHeads];
    GRISTMILL_UNROLL
    for (int h = 0; h < kHeads; ++h) even[h] = V::all(q[h * head_dim + 2 * pair]);
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const V k = E::template k<V, 0>(tiles[v / kPerTile], kWidth, pair, v % kPerTile * V::kLanes);
      GRISTMILL_UNROLL
      for (int h = 0; h < kHeads; ++h) sums[h][v] = V::fma(even[h], k, sums[h][v]);
    }
    if (2 * pair + 1 == head_dim) break;  // an odd head_dim has a padding dimension in K, but not in q
    GRISTMILL_UNROLL
    for (int h = 0; h < kHeads; ++h) odd[h] = V::all(q[h * head_dim + 2 * pair + 1]);
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const V k = E::template k<V, 1>(tiles[v / kPerTile], kWidth, pair, v % kPerTile * V::kLanes);
      GRISTMILL_UNROLL
      for (int h = 0; h < kHeads; ++h) sums[h][v] = V::fma(odd[h], k, sums[h][v]);
    }
  }
  if constexpr (E::kScaled) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const auto* const scales = reinterpret_cast<const float*>(tiles[v / kPerTile] + k_dim * kWidth);
      const V scale = V::load(scales + v % kPerTile * V::kLanes);
      GRISTMILL_UNROLL
      for (int h = 0; h < kHeads; ++h) sums[h][v] = V::mul(sums[h][v], scale);
    }
  }
  GRISTMILL_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) V::store(scores + h * kPartition + v * V::kLanes, sums[h][v]);
  }
}

/// One tile's share of o = sum over keys of p * v for the kVectors vectors of a chunk and kHeads heads; the
/// accumulators rest in `out` between tiles, so that memory is walked once, in order.
template <class V, class E, int kHeads, int kVectors>
void weigh_tile(const std::byte* rows, const std::byte* ahead, int keys, const float* p, bool first, float* out,
                int64_t out_stride) {
  constexpr int kRowBytes = kVectors * V::kLanes * E::kBytes;
  V sums[kHeads][kVectors];
  GRISTMILL_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[h][v] = first ? V::zero() : V::load(out + h * out_stride + v * V::kLanes);
  }
  for (int i = 0; i < keys; ++i, rows += kRowBytes, ahead += kRowBytes, ++p) {
    GRISTMILL_UNROLL
    for (int b = 0; b < kRowBytes; b += 64) __builtin_prefetch(ahead + b);
    V weight[kHeads];
    GRISTMILL_UNROLL
    for (int h = 0; h < kHeads; ++h) weight[h] = V::all(p[h * kPartition]);
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const V value = E::template v<V>(rows, v);
      GRISTMILL_UNROLL
      for (int h = 0; h < kHeads; ++h) sums[h][v] = V::fma(weight[h], value, sums[h][v]);
    }
  }
  GRISTMILL_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) V::store(out + h * out_stride + v * V::kLanes, sums[h][v]);
  }
}

template <class V, class E, int kHeads, int kVectors>
void weigh_values(const KeyWalk& walk, const float* p, float* out, int64_t out_stride) {
  constexpr int kChunk = kVectors * V::kLanes;
  const int tile = walk.layout.tile;
  for (int position = walk.first; position < walk.end; position += tile, p += tile) {
    const std::byte* rows = walk.v_tile(position);
    const std::byte* ahead = walk.ahead_of_v(position);
    for (int d = 0; d < walk.layout.v_dim; d += kChunk) {
      weigh_tile<V, E, kHeads, kVectors>(rows, ahead, std::min(walk.end - position, tile), p, position == walk.first,
                                         out + d, out_stride);
      rows += tile * kChunk * E::kBytes;
      ahead += tile * kChunk * E::kBytes;
    }
  }
}

template <class V, class E, int kWidth, int kHeads>
void attend_heads(const KeyWalk& walk, const float* q, float* v_scale, float* scores, float* out, int64_t out_stride) {
  constexpr int kPerTile = kWidth / V::kLanes, kTiles = kPerTile >= 2 ? 1 : 2;
  int position = walk.first;
  for (; position + kTiles * kWidth <= walk.end; position += kTiles * kWidth) {
    score_tiles<V, E, kHeads, kTiles, kPerTile>(walk, position, q, scores + position - walk.first);
  }
  for (; position < walk.end; position += kWidth) {
    score_tiles<V, E, kHeads, 1, kPerTile>(walk, position, q, scores + position - walk.first);
  }
  if constexpr (E::kScaled) walk.gather_scales(true, walk.first, walk.end - walk.first, v_scale);
  GRISTMILL_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    float* const tail = out + h * out_stride + walk.layout.v_dim;
    softmax_partition<V, E::kScaled>(scores + h * kPartition, v_scale, walk.end - walk.first, tail, tail + 1);
  }
  if (walk.layout.chunk == 64) {
    weigh_values<V, E, kHeads, 64 / V::kLanes>(walk, scores, out, out_stride);
  } else {
    weigh_values<V, E, kHeads, 32 / V::kLanes>(walk, scores, out, out_stride);
  }
}

template <class V, class E, int kWidth>
void attend_partition_as(const KvLayout& layout, const KvHead& kv, const AttentionQuery& query, int partition, int keys,
                         std::byte* scratch, float* out, int64_t out_stride) {
  const KeyWalk walk(layout, kv, partition * kPartition, keys, query.first_position + query.queries);
  const TileScratch s = TileScratch::at(scratch, layout, query.group);
  float* const scores = s.scores;
  if constexpr (E::kScaled) walk.prefetch_scales(true);
  for (int h = 0; h < query.group;) {
    const float* const q = query.q + h * layout.head_dim;
    float* const to = out + h * out_stride;
    switch (query.group - h) {
      case 1:
        attend_heads<V, E, kWidth, 1>(walk, q, s.v_scale, scores, to, out_stride);
        return;
      case 2:
        attend_heads<V, E, kWidth, 2>(walk, q, s.v_scale, scores, to, out_stride);
        return;
      case 4:
        attend_heads<V, E, kWidth, 2>(walk, q, s.v_scale, scores, to, out_stride);
        h += 2;
        break;
      default:
        attend_heads<V, E, kWidth, 3>(walk, q, s.v_scale, scores, to, out_stride);
        h += 3;
        break;
    }
  }
}

/// o[kRows][2 vectors from dimension d] = sum over the first `keys` keys of the partition of p * v.
template <class V, class E, int kRows>
void weigh_rows(const KeyWalk& walk, int partition_start, int keys, int d, const float* p, float* out,
                int64_t out_stride) {
  const KvLayout& layout = walk.layout;
  const int row_bytes = layout.chunk * E::kBytes, vector = d % layout.chunk / V::kLanes;
  V sums[kRows][2];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = V::zero();
  for (int key = 0; key < keys; key += layout.tile) {
    const std::byte* row = walk.v_tile(partition_start + key) + d / layout.chunk * layout.tile * row_bytes;
    const int count = std::min(layout.tile, keys - key);
    for (int i = 0; i < count; ++i, row += row_bytes, ++p) {
      const V v0 = E::template v<V>(row, vector), v1 = E::template v<V>(row, vector + 1);
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const V weight = V::all(p[r * kPartition]);
        sums[r][0] = V::fma(weight, v0, sums[r][0]);
        sums[r][1] = V::fma(weight, v1, sums[r][1]);
      }
    }
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    V::store(out + r * out_stride + d, sums[r][0]);
    V::store(out + r * out_stride + d + V::kLanes, sums[r][1]);
  }
}

template <class V, class E, int kMost>
void weigh_rows_of(int rows, const KeyWalk& walk, int partition_start, int keys, int d, const float* p, float* out,
                   int64_t out_stride) {
  if constexpr (kMost > 1) {
    if (rows < kMost) {
      return weigh_rows_of<V, E, kMost - 1>(rows, walk, partition_start, keys, d, p, out, out_stride);
    }
  }
  weigh_rows<V, E, kMost>(walk, partition_start, keys, d, p, out, out_stride);
}

/// Tiles of kWidth keys from `position` on, side by side as one tile of kWide; those from `end` on are left out.
template <class V, class E, int kWidth, int kWide>
void join_tiles(const KeyWalk& walk, int position, int end, std::byte* out) {
  constexpr int kRowBytes = 2 / E::kRowsPerPair * kWidth * E::kBytes;
  const int rows = walk.layout.k_dim / 2 * E::kRowsPerPair;
  for (int i = 0; i < kWide / kWidth && position + i * kWidth < end; ++i) {
    const std::byte* from = walk.k_tile(position + i * kWidth);
    std::byte* to = out + i * kRowBytes;
    for (int row = 0; row < rows; ++row, from += kRowBytes, to += kWide / kWidth * kRowBytes) {
      std::memcpy(to, from, kRowBytes);
    }
  }
}

template <class V, class E, int kWidth>
void attend_tile_as(const KvLayout& layout, const KvHead& kv, const AttentionQuery& query, std::byte* scratch,
                    float* out, int64_t out_stride) {
  const int all_keys = query.first_position + query.queries;
  const KeyWalk walk(layout, kv, 0, all_keys, all_keys);
  const int group = query.group, rows = query.queries * group;
  const int head_dim = layout.head_dim, v_dim = layout.v_dim;
  const int64_t part_stride = partial_floats(layout);
  const TileScratch s = TileScratch::at(scratch, layout, rows);
  for (int i = 0; i < query.queries; ++i) {
    std::memcpy(s.q + i * group * head_dim, query.q + i * query.q_stride, sizeof(float) * group * head_dim);
  }
  const RowTiles<V::kTileRows> tiles{query, rows};
  constexpr int kStep = 2 * V::kLanes, kWide = kWidth < kStep ? kStep : kWidth;
  for (int first = 0; first < walk.end; first += kPartition) {
    const int keys = std::min(kPartition, walk.end - first);
    for (int key = 0; key < keys; key += kStep) {
      if constexpr (kWidth < kStep) join_tiles<V, E, kWidth, kWide>(walk, first + key, first + keys, s.k);
      const std::byte* const tile = kWidth < kStep ? s.k : walk.k_tile(first + key);
      tiles.each(first, [&](int row, int height, int seen) {
        if (seen <= key) return;
        tile_product_of<V, E, 2, V::kTileRows>(height, tile, kWide, key % kWide, head_dim, PanelAhead::none(tile),
                                               s.q + row * head_dim, head_dim, s.scores + row * kPartition + key,
                                               kPartition);
      });
    }
    if constexpr (E::kScaled) {
      walk.gather_scales(false, first, keys, s.k_scale);
      walk.gather_scales(true, first, keys, s.v_scale);
    }
    for (int r = 0; r < rows; ++r) {
      const int seen = tiles.keys_of(r, first);
      float* const scores = s.scores + r * kPartition;
      float* const tail = s.part + r * part_stride + v_dim;
      if constexpr (E::kScaled) multiply_row<V>(scores, s.k_scale, seen);
      if (seen > 0) softmax_partition<V, E::kScaled>(scores, s.v_scale, seen, tail, tail + 1);
      const int written = (seen + 15) / 16 * 16;
      std::fill(scores + written, scores + std::max(written, keys), 0.0f);
    }
    for (int d = 0; d < v_dim; d += 2 * V::kLanes) {
      tiles.each(first, [&](int row, int height, int seen) {
        if (seen == 0) return;
        weigh_rows_of<V, E, V::kTileRows>(height, walk, first, seen, d, s.scores + row * kPartition,
                                          s.part + row * part_stride, part_stride);
      });
    }
    merge_rows<V>(tiles, s, first, layout);
  }
  finish_rows<V>(s, layout, query, out, out_stride);
}

/// Calls run with the element type and the tile width of the layout, and with `Narrow`, which has 8 lanes, where a tile
/// is too small for V.
template <class V, class Narrow, class Run>
void with_layout(const KvLayout& layout, Run run) {
  const auto with_width = [&]<class E>() {
    switch (layout.tile) {
      case 32:
        return run.template operator()<V, E, 32>();
      case 16:
        return run.template operator()<V, E, 16>();
      default:
        return run.template operator()<Narrow, E, 8>();
    }
  };
  switch (layout.dtype) {
    case DType::f32:
      return with_width.template operator()<F32Elements>();
    case DType::f16:
      return with_width.template operator()<F16Elements>();
    case DType::i8:
      return with_width.template operator()<I8Elements>();
    case DType::fp8_e4m3:
      return with_width.template operator()<E4m3Elements>();
    default:
      return with_width.template operator()<Bf16Elements>();
  }
}

template <class V, class Narrow>
void attend_partition(const KvLayout& layout, const KvHead& kv, const AttentionQuery& query, int partition, int keys,
                      std::byte* scratch, float* out, int64_t out_stride) {
  with_layout<V, Narrow>(layout, [&]<class Lanes, class E, int kWidth>() {
    if constexpr (E::kIntegers) {
      int8_attend_partition<Lanes, kWidth>(layout, kv, query, partition, keys, scratch, out, out_stride);
    } else {
      attend_partition_as<Lanes, E, kWidth>(layout, kv, query, partition, keys, scratch, out, out_stride);
    }
  });
}

template <class V, class Narrow>
void attend_tile(const KvLayout& layout, const KvHead& kv, const AttentionQuery& query, std::byte* scratch, float* out,
                 int64_t out_stride) {
  with_layout<V, Narrow>(layout, [&]<class Lanes, class E, int kWidth>() {
    if constexpr (E::kIntegers) {
      int8_attend_tile<Lanes, kWidth>(layout, kv, query, scratch, out, out_stride);
    } else {
      attend_tile_as<Lanes, E, kWidth>(layout, kv, query, scratch, out, out_stride);
    }
  });
}

}  // namespace gristmill::device::cpu
