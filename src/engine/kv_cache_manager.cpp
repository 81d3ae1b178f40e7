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

int32_t KvCacheManager::take_prefix(Sequence& sequence) {
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
  sequence.named_blocks = found;
  sequence.computed = static_cast<int32_t>(found) * block_size_;
  if (sequence.cached_tokens < 0) {
    queries_ += static_cast<uint64_t>(sequence.size());
    hits_ += static_cast<uint64_t>(sequence.computed);
  }
  return sequence.computed;
}

bool KvCacheManager::reserve(Sequence& sequence, int32_t tokens) {
  const size_t wanted = static_cast<size_t>((tokens + block_size_ - 1) / block_size_);
  if (wanted > sequence.blocks.size() && wanted - sequence.blocks.size() > static_cast<size_t>(pool_.free_count())) {
    return false;
  }
  while (sequence.blocks.size() < wanted) sequence.blocks.push_back(pool_.allocate());
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
}

}  // namespace gristmill::engine
