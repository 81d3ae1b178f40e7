#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "device/backend.h"
#include "device/reference/reserved_memory.h"

namespace gristmill::device::reference {

/// K and V of all layers in blocks of CacheOptions::block_size tokens. Within a block, layer by layer: K of all its
/// tokens, then V, each [token][kv_head][head_dim] in the cache's element type; for int8 and fp8_e4m3 a float32 scale
/// follows each head's codes, unused where an attention has scales of its own (CacheScales).
class PagedCache {
 public:
  /// Throws Error for a block size that it cannot hold.
  PagedCache(const std::vector<CacheDecl>& layers, const CacheOptions& options);

  size_t bytes_per_block() const { return block_bytes_; }
  int blocks() const { return blocks_; }
  int block_size() const { return block_size_; }
  /// Reserves the address space of `blocks` blocks.
  void reserve(int blocks);

  /// Stores one token's K and V ([kv_heads][head_dim] each) in the attention's layer at `position` of a sequence.
  void store(const Attention& attention, std::span<const int32_t> table, int32_t position, const float* k,
             const float* v);

  /// out = softmax(scale * q K') V over positions 0 .. position of a sequence, as stored. q and out are
  /// [heads][head_dim]; `scores` has room for position + 1.
  void attend(const Attention& attention, std::span<const int32_t> table, int32_t position, const float* q,
              float* scores, float* out) const;

 private:
  struct Layer {
    size_t offset = 0;  ///< of its K in a block, in bytes
    int kv_heads = 0;
    int head_dim = 0;
  };
  size_t head_bytes(int head_dim) const;
  /// The stored bytes of K (or V) of one head of a token.
  std::byte* head(const Layer& layer, std::span<const int32_t> table, int32_t position, bool value, int index) const;
  /// The stored bytes of K (or V) of one token.
  std::byte* token(const Layer& layer, std::span<const int32_t> table, int32_t position, bool value) const;
  /// Whether an int8 cache takes its scales from the attention.
  bool is_static(const Attention& attention) const { return dtype_ == DType::i8 && attention.cache_scales; }
  void store_static(const CacheScales& scales, const Layer& layer, std::span<const int32_t> table, int32_t position,
                    const float* k, const float* v);
  void attend_static(const Attention& attention, std::span<const int32_t> table, int32_t position, const float* q,
                     float* scores, float* out) const;
  template <class Element>
  void attend_as(const Attention& attention, std::span<const int32_t> table, int32_t position, const float* q,
                 float* scores, float* out) const;

  std::vector<Layer> layers_;
  DType dtype_;
  int block_size_;
  size_t block_bytes_ = 0;
  int blocks_ = 0;
  ReservedMemory memory_;
};

}  // namespace gristmill::device::reference
