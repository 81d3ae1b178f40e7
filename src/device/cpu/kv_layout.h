#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace gristmill::device::cpu {

/// How one layer's K and V lie in the cache. Blocks are grouped, kGroupTokens tokens to a group, and a group is
/// [layers][K heads][blocks], [V heads][blocks]: blocks that follow each other in a sequence and in the pool are one
/// stream in memory for each head, which memory reads twice as fast as pieces of a few kilobytes with gaps between
/// them, and a cache that is little used touches few (huge) pages.
///
/// Inside a block both are cut into tiles of up to 32 tokens, so that one walk through a tile serves a register tile of
/// scores or sums. K: [tile][d][tokens] for f32 and f16, [tile][d / 2][tokens][2] for bf16, which turns a 32-bit lane
/// into two float32 without a shuffle. V: [tile][chunk][tokens][dimensions of a chunk]; bf16 stores dimension i of
/// every 32 at 2i and i + 16 at 2i + 1, for the same reason. Dimensions are padded (k_dim, v_dim) and padding is zero.
///
/// int8 pairs what one instruction multiplies and adds: K is [tile][d / 2][tokens][2], V [tile][chunk][tokens / 2]
/// [dimensions of a chunk][2]; fp8_e4m3 lies as f32 does. Behind the codes of a tile of either is a float32 scale per
/// token, one for K and one for V of each head. A token's scale depends on its own values only, so that stored values
/// never depend on the schedule.
inline constexpr int kGroupShift = 10;
inline constexpr int kGroupTokens = 1 << kGroupShift;

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
  size_t k_tile_bytes = 0;  ///< of one head, with scales
  size_t v_tile_bytes = 0;
  size_t k_head_bytes = 0;  ///< of one head in one block
  size_t v_head_bytes = 0;

  KvLayout() = default;
  /// `wide_chunk`: dimensions of V that the kernels like to sum at once, 32 or 64.
  KvLayout(DType dtype, int heads, int head_dim, int block_size, int wide_chunk);

  /// Whether elements are codes with a scale per token.
  bool scaled() const { return size_of(dtype) == 1; }
  /// Of all heads in one block.
  size_t block_bytes() const { return heads * (k_head_bytes + v_head_bytes); }
  /// Logarithm of the blocks in a group.
  int group_shift() const { return kGroupShift - block_shift; }
  /// Of `block` from block 0, in a stream with `head_bytes` per block.
  size_t block_offset(int32_t block, size_t group_bytes, size_t head_bytes) const {
    const auto index = static_cast<size_t>(block), inside = index & ((size_t{1} << group_shift()) - 1);
    return (index >> group_shift()) * group_bytes + inside * head_bytes;
  }

  /// Stores K or V [head_dim] of the token at `slot` of the head's block at `block`. `values` are float for f32, and
  /// for the 16-bit types those rounded already.
  void write_k(std::byte* block, int slot, const float* values) const;
  void write_k(std::byte* block, int slot, const uint16_t* values) const;
  void write_v(std::byte* block, int slot, const float* values) const;
  void write_v(std::byte* block, int slot, const uint16_t* values) const;
  /// For the scaled types: codes and scale of Kernels::encode.
  void write_k(std::byte* block, int slot, const uint8_t* codes, float scale) const;
  void write_v(std::byte* block, int slot, const uint8_t* codes, float scale) const;
};

/// One K/V head: its K and V of block 0 of the pool, and the blocks of a sequence.
struct KvHead {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  const int32_t* blocks = nullptr;
  size_t group_bytes = 0;
};

/// A layer's part of the cache: `base` is where it starts in the first group.
struct KvPool {
  std::byte* base = nullptr;
  size_t group_bytes = 0;  ///< of all layers

  std::byte* k(const KvLayout& layout, int head, int32_t block) const {
    return base + layout.block_offset(block, group_bytes, layout.k_head_bytes) +
           (static_cast<size_t>(head) << layout.group_shift()) * layout.k_head_bytes;
  }
  std::byte* v(const KvLayout& layout, int head, int32_t block) const {
    return base + layout.block_offset(block, group_bytes, layout.v_head_bytes) +
           (static_cast<size_t>(layout.heads) << layout.group_shift()) * layout.k_head_bytes +
           (static_cast<size_t>(head) << layout.group_shift()) * layout.v_head_bytes;
  }
  KvHead head(const KvLayout& layout, int index, const int32_t* blocks) const {
    return {k(layout, index, 0), v(layout, index, 0), blocks, group_bytes};
  }
};

}  // namespace gristmill::device::cpu
