#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace gristmill::device::cpu {

/// How one layer's K and V lie in a cache block: first K of all heads, then V of all heads, so that a block is one
/// contiguous piece.
///
/// K of a head: tiles of `tile` tokens whose scores are computed side by side: [d][tile] for f32 and f16,
/// [d / 2][tile][2] for bf16, which turns a 32-bit lane into two float32 without a shuffle. V of a head: chunks of 32
/// dimensions, [chunk][block_size][32]; bf16 stores dimension i of a chunk at 2i and i + 16 at 2i + 1, for the same
/// reason. Dimensions are padded (k_dim, v_dim) and padding is zero.
struct KvLayout {
  DType dtype = DType::bf16;
  int heads = 0;
  int head_dim = 0;
  int block_size = 0;
  int tile = 0;
  int k_dim = 0;
  int v_dim = 0;
  size_t k_head_bytes = 0;  ///< of one head in one block
  size_t v_head_bytes = 0;
  size_t block_bytes = 0;

  KvLayout() = default;
  KvLayout(DType dtype, int heads, int head_dim, int block_size);

  /// Stores K or V [head_dim] of the token at `slot` of the block at `block`, rounded to dtype.
  void write_k(std::byte* block, int head, int slot, const float* values) const;
  void write_v(std::byte* block, int head, int slot, const float* values) const;
};

/// One K/V head of one sequence: `k` and `v` point into block 0 of the layer's pool.
struct KvHead {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  size_t block_bytes = 0;
  const int32_t* blocks = nullptr;
};

}  // namespace gristmill::device::cpu
