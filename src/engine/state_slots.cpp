#include "engine/state_slots.h"

#include <algorithm>
#include <cassert>

namespace gristmill::engine {

StateSlots::StateSlots(int32_t running, int32_t snapshots)
    : running_(running), snapshots_(snapshots), pins_(static_cast<size_t>(running + snapshots)) {
  for (int32_t slot = running; slot-- > 0;) free_running_.push_back(slot);
  for (int32_t slot = running + snapshots; slot-- > running;) free_snapshots_.push_back(slot);
}

int32_t StateSlots::acquire() {
  assert(!free_running_.empty());
  const int32_t slot = free_running_.back();
  free_running_.pop_back();
  return slot;
}

void StateSlots::release(int32_t slot) {
  free_running_.push_back(slot);
}

std::optional<int32_t> StateSlots::pin(const BlockHash& hash) {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return std::nullopt;
  oldest_first_.splice(oldest_first_.end(), oldest_first_, found->second.age);
  ++pins_[static_cast<size_t>(found->second.slot)];
  return found->second.slot;
}

void StateSlots::unpin(int32_t slot) {
  --pins_[static_cast<size_t>(slot)];
}

std::optional<int32_t> StateSlots::make_snapshot(const BlockHash& hash) {
  if (by_hash_.contains(hash)) return std::nullopt;
  if (free_snapshots_.empty()) {
    const auto victim = std::find_if(oldest_first_.begin(), oldest_first_.end(), [&](const BlockHash& name) {
      return pins_[static_cast<size_t>(by_hash_.at(name).slot)] == 0;
    });
    if (victim == oldest_first_.end()) return std::nullopt;
    const BlockHash name = *victim;
    forget(name);
  }
  const int32_t slot = free_snapshots_.back();
  free_snapshots_.pop_back();
  by_hash_[hash] = {slot, oldest_first_.insert(oldest_first_.end(), hash)};
  return slot;
}

void StateSlots::forget(const BlockHash& hash) {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end() || pins_[static_cast<size_t>(found->second.slot)] > 0) return;
  free_snapshots_.push_back(found->second.slot);
  oldest_first_.erase(found->second.age);
  by_hash_.erase(found);
}

void StateSlots::forget_all() {
  const std::list<BlockHash> names = oldest_first_;
  for (const BlockHash& name : names) forget(name);
}

}  // namespace gristmill::engine
