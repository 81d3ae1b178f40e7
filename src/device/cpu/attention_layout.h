#pragma once
// What the attention kernels share and does not depend on the instruction set: include this outside target regions.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "device/cpu/kernels.h"

namespace gristmill::device::cpu {

/// How far ahead decode prefetches, in bytes of K or V: memory takes about this long to answer, and the machine's own
/// prefetchers stop where the next block of a sequence lies elsewhere.
inline constexpr size_t kBytesAhead = 8192;

/// Addresses of one head's tiles by key position, for keys [first, end).
struct KeyWalk {
  const KvLayout& layout;
  const KvHead& kv;
  int first, end;
  int last;   ///< keys of the sequence: what decode reads behind `end`
  int ahead;  ///< keys that decode prefetches ahead, whole tiles

  KeyWalk(const KvLayout& l, const KvHead& h, int first_key, int keys, int all_keys)
      : layout(l),
        kv(h),
        first(first_key),
        end(first_key + keys),
        last(all_keys),
        ahead(std::clamp(static_cast<int>((kBytesAhead + l.k_tile_bytes / 2) / l.k_tile_bytes), 1, 4 * 32 / l.tile) *
              l.tile) {}

  size_t block_offset(int position, size_t head_bytes) const {
    return layout.block_offset(kv.blocks[position >> layout.block_shift], kv.group_bytes, head_bytes);
  }
  size_t tile(int position) const {
    return static_cast<size_t>(position & (layout.block_size - 1)) >> (layout.tile == 32   ? 5
                                                                       : layout.tile == 16 ? 4
                                                                                           : 3);
  }
  const std::byte* k_tile(int position) const {
    return kv.k + block_offset(position, layout.k_head_bytes) + tile(position) * layout.k_tile_bytes;
  }
  const std::byte* v_tile(int position) const {
    return kv.v + block_offset(position, layout.v_head_bytes) + tile(position) * layout.v_tile_bytes;
  }

  /// The scales of `keys` keys from `first_key` on, of the scaled types.
  void gather_scales(bool of_v, int first_key, int keys, float* out) const {
    const int dim = of_v ? layout.v_dim : layout.k_dim;
    for (int i = 0; i < keys; i += layout.tile) {
      const std::byte* const at = of_v ? v_tile(first_key + i) : k_tile(first_key + i);
      std::memcpy(out + i, at + dim * layout.tile, sizeof(float) * std::min(layout.tile, keys - i));
    }
  }

  void prefetch_scales(bool of_v) const {
    const int dim = of_v ? layout.v_dim : layout.k_dim;
    for (int position = first; position < end; position += layout.tile) {
      const std::byte* const at = (of_v ? v_tile(position) : k_tile(position)) + dim * layout.tile;
      for (size_t i = 0; i < sizeof(float) * static_cast<size_t>(layout.tile); i += 64) __builtin_prefetch(at + i);
    }
  }

  /// The tile that decode needs `ahead` keys later: of K to the end, then of V from the start; of V to the end, then
  /// of the next partition's K.
  const std::byte* ahead_of_k(int position) const {
    const int target = position + ahead;
    if (target < end) return k_tile(target);
    return v_tile(std::min(target - end + first, end - 1));
  }
  const std::byte* ahead_of_v(int position) const {
    const int target = position + ahead;
    if (target < end) return v_tile(target);
    return target < last ? k_tile(target) : v_tile(position);
  }
};

/// Working memory of a prefill tile of `rows` rows.
struct TileScratch {
  float* q;          ///< [rows][head_dim]
  int16_t* q_words;  ///< [rows][k_dim], of int8, in place of q
  float* q_scale;    ///< [rows]
  float* k_scale;    ///< [kPartition], of the scaled types
  float* v_scale;    ///< [kPartition]
  float* scores;     ///< [rows][kPartition]
  std::byte* k;      ///< [k_dim][32]: narrow tiles of keys side by side
  float* part;       ///< [rows][partial_floats]: this partition's results
  float* running;    ///< [rows][partial_floats]: all partitions' so far

  static TileScratch at(std::byte* scratch, const KvLayout& layout, int rows) {
    auto* const base = reinterpret_cast<float*>(scratch);
    const size_t r = static_cast<size_t>(rows), partial = static_cast<size_t>(partial_floats(layout));
    TileScratch s{};
    s.k_scale = base;
    s.v_scale = base + kPartition;
    s.scores = base + 2 * kPartition;
    float* const keys = s.scores + r * kPartition;
    s.k = reinterpret_cast<std::byte*>(keys);
    s.part = keys + static_cast<size_t>(layout.k_dim) * 32;
    s.running = s.part + r * partial;
    s.q_scale = s.running + r * partial;
    s.q = s.q_scale + r;
    s.q_words = reinterpret_cast<int16_t*>(s.q);
    return s;
  }
  static size_t bytes(const KvLayout& layout, int rows) {
    const size_t r = static_cast<size_t>(rows);
    return sizeof(float) *
           (2 * kPartition + r * static_cast<size_t>(kPartition + 2 * partial_floats(layout) + layout.head_dim + 1) +
            static_cast<size_t>(layout.k_dim) * 32 + 16);
  }
};

}  // namespace gristmill::device::cpu
