#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/merge_list.h"

namespace gristmill::text {

/// Byte-pair merges (Sennrich et al. 2016) by token id: which two neighbours become which token, and how early. A flat
/// open-addressing table of 16-byte slots at two thirds load, so that a look-up touches one or two cache lines.
/// Immutable, and then thread safe, after the last add().
class MergeTable {
 public:
  MergeTable() = default;
  explicit MergeTable(size_t merges);
  /// Adds the next merge; earlier merges rank higher. A pair given again keeps its first rank.
  void add(int32_t left, int32_t right, int32_t result);
  size_t size() const { return size_; }

  Merge find(int32_t left, int32_t right) const;

  /// Working memory of apply(), to be kept from call to call.
  struct Scratch {
    std::vector<Merge> merges;
    MergeList list;
  };
  /// Merges the symbols of one word until nothing merges any more: always the pair of the lowest rank, the leftmost of
  /// equals. O(n log n) for n symbols.
  void apply(std::vector<int32_t>& symbols, Scratch& scratch) const;

 private:
  struct Slot {
    int32_t left, right;
    uint32_t rank;
    int32_t result;
  };
  size_t slot_of(int32_t left, int32_t right) const;
  void apply_short(std::vector<int32_t>& symbols, Scratch& scratch) const;

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace gristmill::text
