#include "text/merge_table.h"

#include "text/wide_multiply.h"

namespace gristmill::text {
namespace {

// Up to here a scan for the lowest rank is cheaper than a heap: words of natural text have fewer than 20 bytes.
constexpr size_t short_word = 48;

}  // namespace

MergeTable::MergeTable(size_t merges) : slots_(merges + merges / 2 + 8, Slot{-1, -1, no_merge, -1}) {}

size_t MergeTable::slot_of(int32_t left, int32_t right) const {
  const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  return static_cast<size_t>(
      multiply_high(multiply_fold(key ^ 0x9E3779B97F4A7C15u, 0xD6E8FEB86659FD93u), slots_.size()));
}

void MergeTable::add(int32_t left, int32_t right, int32_t result) {
  size_t at = slot_of(left, right);
  while (slots_[at].left >= 0) {
    if (slots_[at].left == left && slots_[at].right == right) return;
    if (++at == slots_.size()) at = 0;
  }
  slots_[at] = {left, right, static_cast<uint32_t>(size_++), result};
}

Merge MergeTable::find(int32_t left, int32_t right) const {
  if (slots_.empty()) return {no_merge, -1};
  size_t at = slot_of(left, right);
  while (slots_[at].left >= 0) {
    if (slots_[at].left == left && slots_[at].right == right) return {slots_[at].rank, slots_[at].result};
    if (++at == slots_.size()) at = 0;
  }
  return {no_merge, -1};
}

void MergeTable::apply(std::vector<int32_t>& symbols, Scratch& scratch) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= short_word) {
    apply_short(symbols, scratch);
  } else {
    scratch.list.run(
        symbols.size(), [&](size_t left, size_t right) { return find(symbols[left], symbols[right]); },
        [&](size_t left, size_t, int32_t result) { symbols[left] = result; });
    size_t out = 0;
    for (int32_t i = 0; i >= 0; i = scratch.list.next(static_cast<size_t>(i))) {
      symbols[out++] = symbols[static_cast<size_t>(i)];
    }
    symbols.resize(out);
  }
}

void MergeTable::apply_short(std::vector<int32_t>& symbols, Scratch& scratch) const {
  auto& merges = scratch.merges;  // merges[i] is that of symbols i and i + 1
  size_t count = symbols.size();
  merges.resize(count);
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == no_merge) break;
    symbols[best] = merges[best].result;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      merges[i] = merges[i + 1];
    }
    --count;
    if (best + 1 < count) merges[best] = find(symbols[best], symbols[best + 1]);
    if (best > 0) merges[best - 1] = find(symbols[best - 1], symbols[best]);
  }
  symbols.resize(count);
}

}  // namespace gristmill::text
