#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace gristmill::device::cpu {

/// How one layer's K and V lie in its part of the cache: [K heads][blocks], then [V heads][blocks]. Blocks that follow
/// each other in a sequence and in the pool are one stream in memory for each head, which memory reads twice as fast as
/// pieces of a few kilobytes with gaps between them.
///
/// Inside a block both are cut into tiles of up to 32 tokens, so that one walk through a tile serves a register tile of
/// scores or sums. K: [tile][d][tokens] for f32 and f16, [tile][d / 2][tokens][2] for bf16, which turns a 32-bit lane
/// into two float32 without a shuffle. V: [tile][chunk][tokens][dimensions of a chunk]; bf16 stores dimension i of
/// every 32 at 2i and i + 16 at 2i + 1, for the same reason. Dimensions are padded (k_dim, v_dim) and padding is zero.
struct KvLayout {
  DType dtype = DType::bf16;
  int heads = 0;
  int head_dim = 0;
  int block_size = 0;   ///< a power of two, at least 8
  int block_shift = 0;  ///< its logarithm
  int tile = 0;         ///< tokens of a tile
  int chunk = 0;        ///< dimensions of a chunk of V
  int k_dim = 0;
  int v_dim = 0;
  size_t k_head_bytes = 0;  ///< of one head in one block
  size_t v_head_bytes = 0;

  KvLayout() = default;
  /// `wide_chunk`: dimensions of V that the kernels like to sum at once, 32 or 64.
  KvLayout(DType dtype, int heads, int head_dim, int block_size, int wide_chunk);

  /// Of all heads in one block.
  size_t block_bytes() const { return heads * (k_head_bytes + v_head_bytes); }

  /// Stores K or V [head_dim] of the token at `slot` of the head's block at `block`. `values` are float for f32, and
  /// for the 16-bit types those rounded already.
  void write_k(std::byte* block, int slot, const float* values) const;
  void write_k(std::byte* block, int slot, const uint16_t* values) const;
  void write_v(std::byte* block, int slot, const float* values) const;
  void write_v(std::byte* block, int slot, const uint16_t* values) const;
};

/// One K/V head: its K and V of block 0 of the pool, and the blocks of a sequence.
struct KvHead {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  const int32_t* blocks = nullptr;
};

/// A layer's part of a cache of `num_blocks` blocks, from `base` on.
struct KvPool {
  std::byte* base = nullptr;
  size_t num_blocks = 0;

  std::byte* k(const KvLayout& layout, int head, int32_t block) const {
    return base + (static_cast<size_t>(head) * num_blocks + static_cast<size_t>(block)) * layout.k_head_bytes;
  }
  std::byte* v(const KvLayout& layout, int head, int32_t block) const {
    return base + layout.heads * num_blocks * layout.k_head_bytes +
           (static_cast<size_t>(head) * num_blocks + static_cast<size_t>(block)) * layout.v_head_bytes;
  }
  KvHead head(const KvLayout& layout, int index, const int32_t* blocks) const {
    return {k(layout, index, 0), v(layout, index, 0), blocks};
  }
};

}  // namespace gristmill::device::cpu
