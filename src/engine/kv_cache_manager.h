#pragma once
#include <cstdint>

#include "engine/block_pool.h"
#include "engine/sequence.h"

namespace gristmill::engine {

/// Block tables of sequences over one BlockPool, and prefix reuse among them.
class KvCacheManager {
 public:
  KvCacheManager(int32_t blocks, int32_t block_size, bool prefix_caching,
                 HashAlgorithm algorithm = HashAlgorithm::sha256)
      : pool_(blocks), block_size_(block_size), prefix_caching_(prefix_caching), algorithm_(algorithm) {}

  /// Gives a sequence without blocks the cached blocks of its longest known prefix, at most size() - 1 tokens: the last
  /// token is always computed, since its logits are wanted. Returns the tokens found and sets computed to them.
  int32_t take_prefix(Sequence& sequence);
  /// Makes the block table cover `tokens`. False, with nothing changed, when there are not enough free blocks.
  bool reserve(Sequence& sequence, int32_t tokens);
  /// Names the blocks that lie within the first `computed` tokens and whose tokens are known.
  void name_full_blocks(Sequence& sequence, int32_t computed);
  /// Gives all blocks back, the last first, so that a prefix is evicted from its end.
  void release(Sequence& sequence);
  void forget_all() { pool_.forget_all(); }

  const BlockPool& pool() const { return pool_; }
  int32_t block_size() const { return block_size_; }
  uint64_t queries() const { return queries_; }
  uint64_t hits() const { return hits_; }

 private:
  const BlockHash& hash_of(Sequence& sequence, size_t block) const;
  BlockPool pool_;
  int32_t block_size_;
  bool prefix_caching_;
  HashAlgorithm algorithm_;
  uint64_t queries_ = 0;
  uint64_t hits_ = 0;
};

}  // namespace gristmill::engine
