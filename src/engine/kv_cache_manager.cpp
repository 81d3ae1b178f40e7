#include "engine/kv_cache_manager.h"

#include <algorithm>

namespace gristmill::engine {

// Hashes are computed once per sequence and kept, so a waiting request that does not fit costs nothing to ask again.
const BlockHash& KvCacheManager::hash_of(Sequence& sequence, size_t block) const {
  while (sequence.hashes.size() <= block) {
    const size_t next = sequence.hashes.size();
    const KeyPart salt{KeySource::salt, sequence.request->cache_salt};
    const BlockHash parent = next == 0 ? root_hash(algorithm_, {&salt, 1}) : sequence.hashes[next - 1];
    sequence.hashes.push_back(block_hash(
        algorithm_, parent,
        std::span(sequence.tokens).subspan(next * static_cast<size_t>(block_size_), static_cast<size_t>(block_size_))));
  }
  return sequence.hashes[block];
}

const BlockHash& KvCacheManager::hash_at(Sequence& sequence, int32_t tokens) const {
  return hash_of(sequence, static_cast<size_t>(tokens / block_size_) - 1);
}

// Snapshots lie at multiples of the chunk of the recurrence and of the block.
int32_t KvCacheManager::snapshot_unit() const {
  return std::max(block_size_, state_chunk);
}

// Of `found` cached blocks, how many a snapshot lets us start after; pins that snapshot. Where the blocks go further,
// the sequence branches off from another there, and takes a snapshot for the next one.
size_t KvCacheManager::restorable(Sequence& sequence, size_t found) {
  const int32_t unit = snapshot_unit();
  const int32_t covered = static_cast<int32_t>(found) * block_size_ / unit * unit;
  for (int32_t at = covered; at > 0; at -= unit) {
    const auto slot = states_->pin(hash_at(sequence, at));
    if (!slot) continue;
    sequence.restore_from = *slot;
    if (at < covered) sequence.branch_point = covered;
    return static_cast<size_t>(at / block_size_);
  }
  sequence.branch_point = covered;
  return 0;
}

int32_t KvCacheManager::next_snapshot(Sequence& sequence) {
  int32_t next = INT32_MAX;
  if (!states_ || !prefix_caching_) return next;
  const int32_t unit = snapshot_unit();
  const auto consider = [&](int32_t at) {
    if (at > sequence.computed && at < next && at <= sequence.prompt_size() && at % unit == 0 &&
        !states_->contains(hash_at(sequence, at))) {
      next = at;
    }
  };
  for (int64_t at = 4 * int64_t{unit}; at <= sequence.prompt_size(); at *= 2) consider(static_cast<int32_t>(at));
  consider(sequence.prompt_size() / unit * unit);
  consider(sequence.branch_point);
  for (const int32_t end : sequence.message_ends) consider(end / unit * unit);
  return next;
}

std::optional<int32_t> KvCacheManager::take_snapshot(Sequence& sequence, int32_t tokens) {
  return states_->make_snapshot(hash_at(sequence, tokens));
}

void KvCacheManager::restored(Sequence& sequence) {
  if (sequence.restore_from < 0) return;
  states_->unpin(sequence.restore_from);
  sequence.restore_from = -1;
}

void KvCacheManager::forget_all() {
  pool_.forget_all();
  if (states_) states_->forget_all();
}

int32_t KvCacheManager::take_prefix(Sequence& sequence) {
  if (states_) sequence.state_slot = states_->acquire();
  // Log-probabilities of the prompt need every one of its rows computed.
  if (!prefix_caching_ || sequence.request->sampling.prompt_logprobs >= 0) return 0;
  const size_t most = static_cast<size_t>((sequence.size() - 1) / block_size_);
  size_t found = 0;
  for (; found < most; ++found) {
    const auto block = pool_.lookup(hash_of(sequence, found));
    if (!block) break;
    pool_.share(*block);
    sequence.blocks.push_back(*block);
  }
  sequence.found_tokens = static_cast<int32_t>(found) * block_size_;
  if (states_) {
    found = restorable(sequence, found);
    for (; sequence.blocks.size() > found; sequence.blocks.pop_back()) pool_.release(sequence.blocks.back());
  }
  sequence.named_blocks = found;
  sequence.computed = static_cast<int32_t>(found) * block_size_;
  return sequence.computed;
}

void KvCacheManager::count_lookup(const Sequence& sequence) {
  if (!prefix_caching_ || sequence.request->sampling.prompt_logprobs >= 0) return;
  queries_ += static_cast<uint64_t>(sequence.prompt_size());
  hits_ += static_cast<uint64_t>(sequence.cached_tokens);
  block_hits_ += static_cast<uint64_t>(sequence.found_tokens);
}

bool KvCacheManager::reserve(Sequence& sequence, int32_t tokens) {
  const size_t wanted = static_cast<size_t>((tokens + block_size_ - 1) / block_size_);
  if (wanted > sequence.blocks.size() && wanted - sequence.blocks.size() > static_cast<size_t>(pool_.free_count())) {
    return false;
  }
  while (sequence.blocks.size() < wanted) {
    std::optional<BlockHash> evicted;
    sequence.blocks.push_back(pool_.allocate(&evicted));
    if (evicted && states_) states_->forget(*evicted);  // a snapshot is of no use without the blocks before it
  }
  return true;
}

void KvCacheManager::name_full_blocks(Sequence& sequence, int32_t computed) {
  if (!prefix_caching_) return;
  const size_t full = static_cast<size_t>(std::min(computed, sequence.size()) / block_size_);
  for (size_t& block = sequence.named_blocks; block < full; ++block) {
    pool_.name(sequence.blocks[block], hash_of(sequence, block));
  }
}

void KvCacheManager::release(Sequence& sequence) {
  while (!sequence.blocks.empty()) {
    pool_.release(sequence.blocks.back());
    sequence.blocks.pop_back();
  }
  sequence.named_blocks = 0;
  if (sequence.state_slot < 0) return;
  restored(sequence);
  states_->release(sequence.state_slot);
  sequence.state_slot = -1;
}

}  // namespace gristmill::engine
