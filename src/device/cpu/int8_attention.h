#pragma once
// Attention over an int8 cache, written once over a vector class. Files for an instruction set include this inside
// their target region, after all other headers.
//
// Codes are multiplied as integers: queries become 16-bit codes per row, and so do the weights of a partition, which
// are p times the scale of the key's V. Products of 16 and 8 bits are summed exactly in 32 (dimensions of K up to 512,
// keys up to kPartition), two at a time in a lane, and a finished sum meets its scales once: half the multiplications
// of the float kernels, no conversion of the cache, and the same bits whatever the order. 16 bits keep what is lost
// below the error of the cache's own 8.
#include <algorithm>
#include <cstring>

#include "device/cpu/attention_layout.h"
#include "device/cpu/attention_parts.h"
#include "device/cpu/kernels.h"
#include "device/cpu/row_kernels.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {

/// x (with kFactors: x * factors) to 16-bit codes: code = round(x * (32767 / max)), and what codes are to be multiplied
/// by, max / 32767. NaN counts as nothing in the maximum, and all is zero where that is below 1e-30. Whole vectors are
/// written, zeros behind n; `out` may be where x is.
template <class V, bool kFactors>
float words_of(const float* x, const float* factors, int n, int16_t* out) {
  const auto whole = [&](int i) { return kFactors ? V::mul(V::load(x + i), V::load(factors + i)) : V::load(x + i); };
  const int even = n / V::kLanes * V::kLanes, left = n - even;
  V tail = V::load_first(x + even, left);
  if constexpr (kFactors) tail = V::mul(tail, V::load_first(factors + even, left));
  V peak = V::max(V::abs(tail), V::zero());
  for (int i = 0; i < even; i += V::kLanes) peak = V::max(V::abs(whole(i)), peak);
  const float largest = V::tree_max(peak);
  const bool any = largest >= 1e-30f;
  const V inverse = V::all(any ? 32767.0f / largest : 0.0f);
  for (int i = 0; i < even; i += V::kLanes) V::words(out + i, V::mul(whole(i), inverse));
  if (left > 0) V::words(out + even, V::mul(tail, inverse));
  return any ? largest / 32767.0f : 0.0f;
}

/// All rows of a query to codes: s.q_words and s.q_scale.
template <class V>
void int8_queries(const KvLayout& layout, const AttentionQuery& query, const TileScratch& s) {
  for (int r = 0; r < query.queries * query.group; ++r) {
    const float* const row = query.q + r / query.group * query.q_stride + r % query.group * layout.head_dim;
    // What is written behind a row is zero, as an odd head_dim needs, or the next row's place.
    s.q_scale[r] = words_of<V, false>(row, nullptr, layout.head_dim, s.q_words + r * layout.k_dim);
  }
}

/// Scores of the keys of kTiles neighbouring tiles, kPerTile vectors each, for kHeads heads: scores + h * kPartition.
template <class V, int kHeads, int kTiles, int kPerTile>
void int8_score_tiles(const KeyWalk& walk, int position, const int16_t* q, const float* q_scale, float* scores) {
  constexpr int kVectors = kTiles * kPerTile, kWidth = kPerTile * V::kLanes, kPairBytes = 2 * kWidth;
  const int k_dim = walk.layout.k_dim;
  const std::byte* tiles[kTiles];
  const std::byte* ahead[kTiles];
  GRISTMILL_UNROLL
  for (int t = 0; t < kTiles; ++t) {
    tiles[t] = walk.k_tile(position + t * kWidth);
    ahead[t] = walk.ahead_of_k(position + t * kWidth);
  }
  typename V::Ints sums[kHeads][kVectors];
  GRISTMILL_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[h][v] = V::no_ints();
  }
  for (int pair = 0; pair < k_dim / 2; ++pair) {
    GRISTMILL_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      if (pair * kPairBytes % 64 == 0) __builtin_prefetch(ahead[t] + pair * kPairBytes);
    }
    typename V::Ints words[kHeads];
    GRISTMILL_UNROLL
    for (int h = 0; h < kHeads; ++h) words[h] = V::word_pair(q + h * k_dim + 2 * pair);
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const auto k = V::byte_pairs(tiles[v / kPerTile] + pair * kPairBytes + v % kPerTile * V::kLanes * 2);
      GRISTMILL_UNROLL
      for (int h = 0; h < kHeads; ++h) sums[h][v] = V::dot_pairs(sums[h][v], k, words[h]);
    }
  }
  GRISTMILL_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const auto* const k_scale = reinterpret_cast<const float*>(tiles[v / kPerTile] + k_dim * kWidth);
    const V scale = V::load(k_scale + v % kPerTile * V::kLanes);
    GRISTMILL_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      V::store(scores + h * kPartition + v * V::kLanes,
               V::mul(V::from_ints(sums[h][v]), V::mul(scale, V::all(q_scale[h]))));
    }
  }
}

/// Scores of one row in place to the codes of its weights, zero from `keys` to `end`; m and l go to tail, the codes'
/// scale to tail[2].
template <class V>
void int8_weights(float* scores, const float* v_scale, int keys, int end, float* tail) {
  softmax_partition<V, false>(scores, nullptr, keys, tail, tail + 1);
  auto* const words = reinterpret_cast<int16_t*>(scores);
  tail[2] = words_of<V, true>(scores, v_scale, keys, words);
  if (end > keys) std::memset(words + keys, 0, sizeof(int16_t) * static_cast<size_t>(end - keys));
}

/// o[kRows][kVectors from dimension d] = sum over the first `keys` keys of the partition; row r has its codes at words
/// + r * 2 * kPartition and goes to out + r * out_stride.
template <class V, int kRows, int kVectors, bool kAhead>
void int8_weigh(const KeyWalk& walk, int first, int keys, int d, const int16_t* words, float* out, int64_t out_stride) {
  const KvLayout& layout = walk.layout;
  const int row_bytes = 2 * layout.chunk,
            offset = d / layout.chunk * layout.chunk * layout.tile + 2 * (d % layout.chunk);
  typename V::Ints sums[kRows][kVectors];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[r][v] = V::no_ints();
  }
  for (int key = 0; key < keys; key += layout.tile) {
    const std::byte* row = walk.v_tile(first + key) + offset;
    const std::byte* ahead = kAhead ? walk.ahead_of_v(first + key) + offset : row;
    const int pairs = (std::min(layout.tile, keys - key) + 1) / 2;
    for (int i = 0; i < pairs; ++i, row += row_bytes, ahead += row_bytes, words += 2) {
      if constexpr (kAhead) {
        GRISTMILL_UNROLL
        for (int b = 0; b < kVectors * V::kLanes * 2; b += 64) __builtin_prefetch(ahead + b);
      }
      typename V::Ints weights[kRows];
      if constexpr (kRows <= 4) {
        GRISTMILL_UNROLL
        for (int r = 0; r < kRows; ++r) weights[r] = V::word_pair(words + r * 2 * kPartition);
      }
      typename V::Ints value[kVectors];
      GRISTMILL_UNROLL
      for (int v = 0; v < kVectors; ++v) value[v] = V::byte_pairs(row + v * V::kLanes * 2);
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const auto weight = kRows <= 4 ? weights[r] : V::word_pair(words + r * 2 * kPartition);
        GRISTMILL_UNROLL
        for (int v = 0; v < kVectors; ++v) sums[r][v] = V::dot_pairs(sums[r][v], value[v], weight);
      }
    }
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    float* const to = out + r * out_stride;
    const V scale = V::all(to[layout.v_dim + 2]);
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) V::store(to + d + v * V::kLanes, V::mul(V::from_ints(sums[r][v]), scale));
  }
}

template <class V, int kWidth, int kHeads>
void int8_attend_heads(const KeyWalk& walk, const int16_t* q, const float* q_scale, float* v_scale, float* scores,
                       float* out, int64_t out_stride) {
  constexpr int kPerTile = kWidth / V::kLanes, kTiles = std::max(1, (V::kLanes == 16 ? 4 : 2) / kPerTile);
  const int keys = walk.end - walk.first;
  int position = walk.first;
  for (; position + kTiles * kWidth <= walk.end; position += kTiles * kWidth) {
    int8_score_tiles<V, kHeads, kTiles, kPerTile>(walk, position, q, q_scale, scores + position - walk.first);
  }
  for (; position < walk.end; position += kWidth) {
    int8_score_tiles<V, kHeads, 1, kPerTile>(walk, position, q, q_scale, scores + position - walk.first);
  }
  walk.gather_scales(true, walk.first, keys, v_scale);
  GRISTMILL_UNROLL
  for (int h = 0; h < kHeads; ++h) {
    int8_weights<V>(scores + h * kPartition, v_scale, keys, keys + keys % 2, out + h * out_stride + walk.layout.v_dim);
  }
  const auto* const words = reinterpret_cast<const int16_t*>(scores);
  // Four vectors of one head_dim in the registers of AVX-512, two elsewhere.
  if (V::kLanes == 16 && walk.layout.chunk == 64) {
    for (int d = 0; d < walk.layout.v_dim; d += 4 * V::kLanes) {
      int8_weigh<V, kHeads, 4, true>(walk, walk.first, keys, d, words, out, out_stride);
    }
    return;
  }
  for (int d = 0; d < walk.layout.v_dim; d += 2 * V::kLanes) {
    int8_weigh<V, kHeads, 2, true>(walk, walk.first, keys, d, words, out, out_stride);
  }
}

template <class V, int kWidth>
void int8_attend_partition(const KvLayout& layout, const KvHead& kv, const AttentionQuery& query, int partition,
                           int keys, std::byte* scratch, float* out, int64_t out_stride) {
  const KeyWalk walk(layout, kv, partition * kPartition, keys, query.first_position + query.queries);
  const TileScratch s = TileScratch::at(scratch, layout, query.group);
  walk.prefetch_scales(true);
  int8_queries<V>(layout, query, s);
  for (int h = 0; h < query.group;) {
    const int16_t* const q = s.q_words + h * layout.k_dim;
    float* const to = out + h * out_stride;
    switch (query.group - h) {
      case 1:
        int8_attend_heads<V, kWidth, 1>(walk, q, s.q_scale + h, s.v_scale, s.scores, to, out_stride);
        return;
      case 2:
        int8_attend_heads<V, kWidth, 2>(walk, q, s.q_scale + h, s.v_scale, s.scores, to, out_stride);
        return;
      case 4:
        int8_attend_heads<V, kWidth, 2>(walk, q, s.q_scale + h, s.v_scale, s.scores, to, out_stride);
        h += 2;
        break;
      default:
        int8_attend_heads<V, kWidth, 3>(walk, q, s.q_scale + h, s.v_scale, s.scores, to, out_stride);
        h += 3;
        break;
    }
  }
}

/// Scores of kRows rows for the keys of two vectors, which lie at low and high in tiles of kWidth.
template <class V, int kWidth, int kRows>
void int8_score_rows(const std::byte* low, const std::byte* high, int k_dim, const int16_t* q, const float* q_scale,
                     const float* k_scale, float* scores) {
  typename V::Ints sums[kRows][2];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = V::no_ints();
  for (int pair = 0; pair < k_dim / 2; ++pair, low += 2 * kWidth, high += 2 * kWidth) {
    const auto k0 = V::byte_pairs(low), k1 = V::byte_pairs(high);
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const auto words = V::word_pair(q + r * k_dim + 2 * pair);
      sums[r][0] = V::dot_pairs(sums[r][0], k0, words);
      sums[r][1] = V::dot_pairs(sums[r][1], k1, words);
    }
  }
  const V scale0 = V::load(k_scale), scale1 = V::load(k_scale + V::kLanes);
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const V factor = V::all(q_scale[r]);
    float* const to = scores + r * kPartition;
    V::store(to, V::mul(V::from_ints(sums[r][0]), V::mul(scale0, factor)));
    V::store(to + V::kLanes, V::mul(V::from_ints(sums[r][1]), V::mul(scale1, factor)));
  }
}

/// Calls run with the number of rows, 1 <= rows <= kMost, as a constant.
template <int kMost, class Run>
void with_rows(int rows, Run run) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return with_rows<kMost - 1>(rows, run);
  }
  run.template operator()<kMost>();
}

template <class V, int kWidth>
void int8_attend_tile(const KvLayout& layout, const KvHead& kv, const AttentionQuery& query, std::byte* scratch,
                      float* out, int64_t out_stride) {
  const int all_keys = query.first_position + query.queries;
  const KeyWalk walk(layout, kv, 0, all_keys, all_keys);
  const int rows = query.queries * query.group, v_dim = layout.v_dim;
  const int64_t part_stride = partial_floats(layout);
  const TileScratch s = TileScratch::at(scratch, layout, rows);
  int8_queries<V>(layout, query, s);
  const RowTiles<V::kTileRows> tiles{query, rows};
  constexpr int kStep = 2 * V::kLanes;
  for (int first = 0; first < walk.end; first += kPartition) {
    const int keys = std::min(kPartition, walk.end - first);
    walk.gather_scales(false, first, keys, s.k_scale);
    walk.gather_scales(true, first, keys, s.v_scale);
    for (int key = 0; key < keys; key += kStep) {
      const std::byte* const low = walk.k_tile(first + key) + key % kWidth * 2;
      // Where a tile holds one vector, the second is the next tile's, or any where there is none.
      const bool one = kWidth < kStep, more = key + V::kLanes < keys;
      const std::byte* const high = !one ? low + 2 * V::kLanes : more ? walk.k_tile(first + key + V::kLanes) : low;
      tiles.each(first, [&](int row, int height, int seen) {
        if (seen <= key) return;
        with_rows<V::kTileRows>(height, [&]<int kRows>() {
          int8_score_rows<V, kWidth, kRows>(low, high, layout.k_dim, s.q_words + row * layout.k_dim, s.q_scale + row,
                                            s.k_scale + key, s.scores + row * kPartition + key);
        });
      });
    }
    for (int r = 0; r < rows; ++r) {
      const int seen = tiles.keys_of(r, first);
      float* const scores = s.scores + r * kPartition;
      if (seen > 0) {
        int8_weights<V>(scores, s.v_scale, seen, keys + keys % 2, s.part + r * part_stride + v_dim);
      } else {
        std::memset(scores, 0, sizeof(int16_t) * static_cast<size_t>(keys + keys % 2));
        s.part[r * part_stride + v_dim + 2] = 0;
      }
    }
    for (int d = 0; d < v_dim; d += kStep) {
      tiles.each(first, [&](int row, int height, int seen) {
        if (seen == 0) return;
        with_rows<V::kTileRows>(height, [&]<int kRows>() {
          int8_weigh<V, kRows, 2, false>(walk, first, seen, d,
                                         reinterpret_cast<const int16_t*>(s.scores + row * kPartition),
                                         s.part + row * part_stride, part_stride);
        });
      });
    }
    merge_rows<V>(tiles, s, first, layout);
  }
  finish_rows<V>(s, layout, query, out, out_stride);
}

}  // namespace gristmill::device::cpu
