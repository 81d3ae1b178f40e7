#pragma once
// What the attention kernels share and does not depend on the instruction set: include this outside target regions.
#include <cstddef>

#include "device/cpu/kernels.h"

namespace gristmill::device::cpu {

/// Addresses of one head's tiles and rows by key position.
struct KeyWalk {
  const KvLayout& layout;
  const KvHead& kv;
  size_t element;

  KeyWalk(const KvLayout& l, const KvHead& h) : layout(l), kv(h), element(size_of(l.dtype)) {}
  const std::byte* k_tile(int position) const {
    const int slot = position % layout.block_size;
    return kv.k + kv.blocks[position / layout.block_size] * kv.block_bytes +
           static_cast<size_t>(slot / layout.tile) * layout.k_dim * layout.tile * element;
  }
  /// Row of `position` in 32-dimension chunk `chunk`; the rows of a block follow each other.
  const std::byte* v_row(int position, int chunk) const {
    const int slot = position % layout.block_size;
    return kv.v + kv.blocks[position / layout.block_size] * kv.block_bytes +
           (static_cast<size_t>(chunk) * layout.block_size + slot) * 32 * element;
  }
};

/// Working memory of a prefill tile of `rows` rows.
struct TileScratch {
  float* q;        ///< [rows][head_dim]
  float* scores;   ///< [rows][kPartition]
  float* k;        ///< [k_dim][32]: keys of two vectors, expanded
  float* v;        ///< [kPartition][32]: two vectors of dimensions, expanded
  float* part;     ///< [rows][partial_floats]: this partition's results
  float* running;  ///< [rows][partial_floats]: all partitions' so far

  static TileScratch at(std::byte* scratch, const KvLayout& layout, int rows) {
    auto* const base = reinterpret_cast<float*>(scratch);
    const size_t r = static_cast<size_t>(rows), partial = static_cast<size_t>(partial_floats(layout));
    TileScratch s{};
    s.scores = base;
    s.k = s.scores + r * kPartition;
    s.v = s.k + static_cast<size_t>(layout.k_dim) * 32;
    s.part = s.v + static_cast<size_t>(kPartition) * 32;
    s.running = s.part + r * partial;
    s.q = s.running + r * partial;
    return s;
  }
  static size_t bytes(const KvLayout& layout, int rows) {
    const size_t r = static_cast<size_t>(rows);
    return sizeof(float) * (r * (kPartition + 2 * partial_floats(layout) + layout.head_dim) +
                            static_cast<size_t>(layout.k_dim + kPartition) * 32);
  }
};

}  // namespace gristmill::device::cpu
