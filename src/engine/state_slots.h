#pragma once
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/block_hash.h"

namespace gristmill::engine {

/// Recurrent state can be resumed at multiples of this many tokens (docs/architecture.md, Gated DeltaNet).
inline constexpr int32_t state_chunk = 16;

/// Slots of recurrent state: one for each running sequence, and a budget of snapshots, named like the cache block that
/// ends where they were taken. A snapshot is never written again; the least recently used one makes room for a new one.
class StateSlots {
 public:
  StateSlots(int32_t running, int32_t snapshots);

  int32_t size() const { return running_ + snapshots_; }
  int32_t snapshots() const { return static_cast<int32_t>(by_hash_.size()); }

  /// A slot for a running sequence; there is one for every sequence that may run.
  int32_t acquire();
  void release(int32_t slot);

  bool contains(const BlockHash& hash) const { return by_hash_.contains(hash); }
  /// The snapshot of that name, kept from eviction until unpin().
  std::optional<int32_t> pin(const BlockHash& hash);
  void unpin(int32_t slot);
  /// The slot to copy a new snapshot into; none when it exists already or everything is pinned.
  std::optional<int32_t> make_snapshot(const BlockHash& hash);
  void forget(const BlockHash& hash);
  void forget_all();

 private:
  struct Snapshot {
    int32_t slot = 0;
    std::list<BlockHash>::iterator age;
  };
  int32_t running_;
  int32_t snapshots_;
  std::vector<int32_t> free_running_;
  std::vector<int32_t> free_snapshots_;
  std::vector<int32_t> pins_;  ///< per slot
  std::list<BlockHash> oldest_first_;
  std::unordered_map<BlockHash, Snapshot, BlockHashKey> by_hash_;
};

}  // namespace gristmill::engine
