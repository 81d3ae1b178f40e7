#pragma once
#include <cstdint>

#include "engine/block_pool.h"
#include "engine/sequence.h"
#include "engine/state_slots.h"

namespace gristmill::engine {

/// Block tables of sequences over one BlockPool, and prefix reuse among them.
class KvCacheManager {
 public:
  KvCacheManager(int32_t blocks, int32_t block_size, bool prefix_caching,
                 HashAlgorithm algorithm = HashAlgorithm::sha256)
      : pool_(blocks), block_size_(block_size), prefix_caching_(prefix_caching), algorithm_(algorithm) {}

  /// For models with recurrent state: every sequence gets a slot, and a prefix is reusable up to where both its blocks
  /// and a snapshot are there. Once, before any sequence.
  void add_states(int32_t running, int32_t snapshots) { states_.emplace(running, snapshots); }

  /// Gives a sequence without blocks the cached blocks of its longest known prefix, at most size() - 1 tokens: the last
  /// token is always computed, since its logits are wanted. Returns the tokens found and sets computed to them.
  int32_t take_prefix(Sequence& sequence);
  /// The sequence is admitted for the first time: its lookup enters queries() and hits(), however often it was tried.
  void count_lookup(const Sequence& sequence);
  /// Makes the block table cover `tokens`. False, with nothing changed, when there are not enough free blocks.
  bool reserve(Sequence& sequence, int32_t tokens);
  /// Names the blocks that lie within the first `computed` tokens and whose tokens are known.
  void name_full_blocks(Sequence& sequence, int32_t computed);
  /// Gives all blocks back, the last first, so that a prefix is evicted from its end.
  void release(Sequence& sequence);
  void forget_all();

  /// The next position after sequence.computed where a chunk shall end so that a snapshot can be taken; INT32_MAX:
  /// none.
  int32_t next_snapshot(Sequence& sequence);
  /// The slot to copy the sequence's state into now that it has `tokens` tokens; none when no snapshot is wanted there.
  std::optional<int32_t> take_snapshot(Sequence& sequence, int32_t tokens);
  /// The snapshot to start from has been copied.
  void restored(Sequence& sequence);
  int32_t snapshots() const { return states_ ? states_->snapshots() : 0; }

  const BlockPool& pool() const { return pool_; }
  int32_t block_size() const { return block_size_; }
  uint64_t queries() const { return queries_; }  ///< prompt tokens of admitted sequences
  uint64_t hits() const { return hits_; }        ///< of those, tokens found
  /// Of queries(), tokens whose blocks are cached. hits() are fewer where a recurrent model has no state to go on from.
  uint64_t block_hits() const { return block_hits_; }

 private:
  const BlockHash& hash_of(Sequence& sequence, size_t block) const;
  const BlockHash& hash_at(Sequence& sequence, int32_t tokens) const;
  size_t restorable(Sequence& sequence, size_t found);
  int32_t snapshot_unit() const;
  BlockPool pool_;
  std::optional<StateSlots> states_;
  int32_t block_size_;
  bool prefix_caching_;
  HashAlgorithm algorithm_;
  uint64_t queries_ = 0;
  uint64_t hits_ = 0;
  uint64_t block_hits_ = 0;
};

}  // namespace gristmill::engine
