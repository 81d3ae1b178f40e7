#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/block_hash.h"

namespace gristmill::engine {

/// The cache blocks of one engine: which are in use, by how many sequences, and what the free ones still hold. A free
/// block keeps its contents and can be taken back by hash until it is handed out again. Handed out first: free blocks
/// without contents worth keeping (used ones before fresh ones, so memory stays small), then cached ones, least
/// recently used first.
class BlockPool {
 public:
  explicit BlockPool(int32_t blocks);

  int32_t size() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t free_count() const { return free_count_; }

  /// A block with one reference and no hash. There must be a free one. `evicted` becomes the name it had, if any.
  int32_t allocate(std::optional<BlockHash>* evicted = nullptr);
  /// One more reference to a block found by lookup(); takes it off the free list when it had none.
  void share(int32_t block);
  /// One reference less; at zero the block joins the free list.
  void release(int32_t block);

  /// The block with this content, if any. It may be free: share() it before anything is allocated.
  std::optional<int32_t> lookup(const BlockHash& hash) const;
  /// Names the content of a full block, from now on found by lookup(). Without effect when another block has the hash
  /// already or this one is named.
  void name(int32_t block, const BlockHash& hash);
  bool named(int32_t block) const { return blocks_[static_cast<size_t>(block)].has_hash; }
  int32_t references(int32_t block) const { return blocks_[static_cast<size_t>(block)].references; }
  /// Forgets all names. Blocks in use keep their references.
  void forget_all();

 private:
  enum List : uint8_t { plain, cached, lists };
  struct Block {
    int32_t references = 0;
    int32_t previous = -1, next = -1;
    bool has_hash = false;
    BlockHash hash{};
  };
  void push_back(List list, int32_t block);
  void push_front(List list, int32_t block);
  void unlink(int32_t block);

  std::vector<Block> blocks_;
  int32_t heads_[lists] = {-1, -1};
  int32_t tails_[lists] = {-1, -1};
  int32_t free_count_ = 0;
  int32_t fresh_ = 0;  ///< blocks from here on were never handed out and stand in no list
  std::unordered_map<BlockHash, int32_t, BlockHashKey> by_hash_;
};

}  // namespace gristmill::engine
