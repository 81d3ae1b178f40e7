#pragma once
#include <cstdint>
#include <limits>

#include "device/cpu/packed_weight.h"

namespace gristmill::device::cpu {

/// Rows that do not fit one register tile walk through a panel several times. A single walk prefetches what it will
/// need shortly; of several, each prefetches its share of the next panel, so that memory works while this one's rows
/// are computed instead of waiting between the panels.
struct PanelAhead {
  const std::byte* data;  ///< where the current group's counterpart lies
  int walks;
  int until_next;

  PanelAhead(const PackedWeight& w, const std::byte* panel, int walk_count, int walk)
      : data(panel + (walk_count == 1 ? kShortly : w.panel_stride)), walks(walk_count), until_next(walk) {}

  /// Nothing is prefetched: what is read is in the cache already, or the machine's prefetchers see it coming.
  static PanelAhead none(const std::byte* tile) { return PanelAhead(tile); }

  /// Once per group: whether this walk prefetches this group.
  bool next() {
    if (until_next-- > 0) return false;
    until_next = walks - 1;
    return true;
  }
  /// Rows are shared evenly among the walks that are left.
  static int rows_of(int rows_left, int walks_left) { return (rows_left + walks_left - 1) / walks_left; }

 private:
  explicit PanelAhead(const std::byte* tile) : data(tile), walks(0), until_next(std::numeric_limits<int>::max()) {}
  static constexpr size_t kShortly = 4096;
};

}  // namespace gristmill::device::cpu
