#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace gristmill::text {

/// What two neighbouring symbols become. The lowest rank goes first.
struct Merge {
  uint32_t rank;  ///< `no_merge` when the two do not merge
  int32_t result;
};
inline constexpr uint32_t no_merge = UINT32_MAX;

/// Merges neighbours in a row of symbols until nothing merges any more: always the pair of the lowest rank, the
/// leftmost of equals. O(n log n) for n symbols: a linked list of positions and a heap of (rank, left position). Heap
/// entries are not taken out when a neighbour changes: one counts only while its rank is that of the pair at its
/// position. Symbols are known by their position; merging makes the left one the joint symbol. An object is reusable
/// memory.
class MergeList {
 public:
  /// `find(left, right)` gives the Merge of two neighbouring positions, `join(left, right, result)` takes one.
  template <class Find, class Join>
  void run(size_t count, Find&& find, Join&& join) {
    merges_.assign(count, Merge{no_merge, -1});
    next_.resize(count);
    previous_.resize(count);
    heap_.clear();
    for (size_t i = 0; i < count; ++i) {
      next_[i] = i + 1 < count ? static_cast<int32_t>(i + 1) : -1;
      previous_[i] = static_cast<int32_t>(i) - 1;
    }
    for (size_t i = 0; i + 1 < count; ++i) {
      merges_[i] = find(i, i + 1);
      if (merges_[i].rank != no_merge) heap_.push_back(entry(merges_[i].rank, i));
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto refresh = [&](size_t left, size_t right) {
      merges_[left] = find(left, right);
      if (merges_[left].rank == no_merge) return;
      heap_.push_back(entry(merges_[left].rank, left));
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    };
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const uint64_t top = heap_.back();
      heap_.pop_back();
      const size_t left = static_cast<size_t>(top & UINT32_MAX);
      if (merges_[left].rank != static_cast<uint32_t>(top >> 32)) continue;
      const size_t right = static_cast<size_t>(next_[left]);
      const int32_t result = merges_[left].result;
      merges_[left] = merges_[right] = {no_merge, -1};
      next_[left] = next_[right];
      join(left, right, result);
      if (next_[left] >= 0) {
        previous_[static_cast<size_t>(next_[left])] = static_cast<int32_t>(left);
        refresh(left, static_cast<size_t>(next_[left]));
      }
      if (previous_[left] >= 0) refresh(static_cast<size_t>(previous_[left]), left);
    }
  }
  /// The position behind `position` in the row as it is now, or -1.
  int32_t next(size_t position) const { return next_[position]; }

 private:
  static uint64_t entry(uint32_t rank, size_t position) { return static_cast<uint64_t>(rank) << 32 | position; }

  std::vector<Merge> merges_;  // of a position and the next one
  std::vector<int32_t> next_, previous_;
  std::vector<uint64_t> heap_;
};

}  // namespace gristmill::text
