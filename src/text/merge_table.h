#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/merge_list.h"

namespace gristmill::text {

/// Byte-pair merges (Sennrich et al. 2016) by token id: which two neighbours become which token, and how early. A flat
/// open-addressing table at two thirds load whose slots are 8 bytes, both ids and the rank, so that a look-up touches
/// one cache line; what a merge makes stands in a list by rank. Immutable, and then thread safe, after the last add().
class MergeTable {
 public:
  MergeTable() = default;
  /// Throws Error for more merges than a slot can rank.
  explicit MergeTable(size_t merges);
  /// Adds the next merge; earlier merges rank higher. A pair given again keeps its first rank. Throws Error for an id
  /// that a slot cannot hold.
  void add(int32_t left, int32_t right, int32_t result);
  size_t size() const { return results_.size(); }

  Merge find(int32_t left, int32_t right) const;
  /// Calls pair(left, right, rank) for each merge, in no particular order.
  template <class Pair>
  void for_each(Pair pair) const {
    for (const uint64_t slot : slots_) {
      if (slot == kEmpty) continue;
      pair(static_cast<int32_t>(slot >> (kRankBits + kIdBits)), static_cast<int32_t>(slot >> kRankBits & kMostIds),
           static_cast<uint32_t>(slot & kMostRanks));
    }
  }

  /// Working memory of apply(), to be kept from call to call.
  struct Scratch {
    std::vector<uint32_t> ranks;
    MergeList list;
  };
  /// Merges the symbols of one word until nothing merges any more: always the pair of the lowest rank, the leftmost of
  /// equals. O(n log n) for n symbols.
  void apply(std::vector<int32_t>& symbols, Scratch& scratch) const;

 private:
  static constexpr int kIdBits = 20, kRankBits = 24;
  static constexpr uint64_t kMostIds = (1 << kIdBits) - 1, kMostRanks = (1 << kRankBits) - 1, kEmpty = UINT64_MAX;

  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << kIdBits | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t pair) const;
  uint32_t rank_of(int32_t left, int32_t right) const;
  void apply_short(std::vector<int32_t>& symbols, Scratch& scratch) const;

  std::vector<uint64_t> slots_;   // left id, right id, rank
  std::vector<int32_t> results_;  // by rank
};

}  // namespace gristmill::text
