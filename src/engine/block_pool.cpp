#include "engine/block_pool.h"

#include <cassert>

namespace gristmill::engine {

BlockPool::BlockPool(int32_t blocks) : blocks_(static_cast<size_t>(blocks)), free_count_(blocks) {}

void BlockPool::push_back(List list, int32_t block) {
  Block& entry = blocks_[static_cast<size_t>(block)];
  entry.previous = tails_[list];
  entry.next = -1;
  if (tails_[list] >= 0) {
    blocks_[static_cast<size_t>(tails_[list])].next = block;
  } else {
    heads_[list] = block;
  }
  tails_[list] = block;
}

void BlockPool::push_front(List list, int32_t block) {
  Block& entry = blocks_[static_cast<size_t>(block)];
  entry.previous = -1;
  entry.next = heads_[list];
  if (heads_[list] >= 0) {
    blocks_[static_cast<size_t>(heads_[list])].previous = block;
  } else {
    tails_[list] = block;
  }
  heads_[list] = block;
}

void BlockPool::unlink(int32_t block) {
  Block& entry = blocks_[static_cast<size_t>(block)];
  const List list = entry.has_hash ? cached : plain;
  (entry.previous >= 0 ? blocks_[static_cast<size_t>(entry.previous)].next : heads_[list]) = entry.next;
  (entry.next >= 0 ? blocks_[static_cast<size_t>(entry.next)].previous : tails_[list]) = entry.previous;
  entry.previous = entry.next = -1;
}

int32_t BlockPool::allocate(std::optional<BlockHash>* evicted) {
  assert(free_count_ > 0);
  int32_t block = heads_[plain];
  if (block >= 0) {
    unlink(block);
  } else if (fresh_ < size()) {
    block = fresh_++;
  } else {
    block = heads_[cached];
    unlink(block);
    Block& entry = blocks_[static_cast<size_t>(block)];
    by_hash_.erase(entry.hash);
    if (evicted != nullptr) *evicted = entry.hash;
    entry.has_hash = false;
  }
  --free_count_;
  blocks_[static_cast<size_t>(block)].references = 1;
  return block;
}

void BlockPool::share(int32_t block) {
  Block& entry = blocks_[static_cast<size_t>(block)];
  if (entry.references++ == 0) {
    unlink(block);
    --free_count_;
  }
}

void BlockPool::release(int32_t block) {
  Block& entry = blocks_[static_cast<size_t>(block)];
  assert(entry.references > 0);
  if (--entry.references > 0) return;
  ++free_count_;
  // The block freed last is warm in the caches: hand it out next. Cached ones wait their turn.
  if (entry.has_hash) {
    push_back(cached, block);
  } else {
    push_front(plain, block);
  }
}

std::optional<int32_t> BlockPool::lookup(const BlockHash& hash) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return std::nullopt;
  return found->second;
}

void BlockPool::name(int32_t block, const BlockHash& hash) {
  Block& entry = blocks_[static_cast<size_t>(block)];
  assert(entry.references > 0);
  if (entry.has_hash || !by_hash_.emplace(hash, block).second) return;
  entry.has_hash = true;
  entry.hash = hash;
}

void BlockPool::forget_all() {
  while (heads_[cached] >= 0) {
    const int32_t block = heads_[cached];
    unlink(block);
    blocks_[static_cast<size_t>(block)].has_hash = false;
    push_back(plain, block);
  }
  for (Block& entry : blocks_) entry.has_hash = false;
  by_hash_.clear();
}

}  // namespace gristmill::engine
