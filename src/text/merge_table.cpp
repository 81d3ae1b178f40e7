#include "text/merge_table.h"

#include "base/error.h"
#include "text/wide_multiply.h"

namespace gristmill::text {
namespace {

// Up to here a scan for the lowest rank is cheaper than a heap: words of natural text have fewer than 20 bytes.
constexpr size_t short_word = 48;

}  // namespace

MergeTable::MergeTable(size_t merges) {
  if (merges > kMostRanks) throw Error(cat(merges, " merges are more than the ", kMostRanks, " that are supported"));
  slots_.assign(merges + merges / 2 + 8, kEmpty);
  results_.reserve(merges);
}

size_t MergeTable::slot_of(uint64_t pair) const {
  return static_cast<size_t>(
      multiply_high(multiply_fold(pair ^ 0x9E3779B97F4A7C15u, 0xD6E8FEB86659FD93u), slots_.size()));
}

void MergeTable::add(int32_t left, int32_t right, int32_t result) {
  for (const int32_t id : {left, right})
    if (id < 0 || static_cast<uint64_t>(id) >= kMostIds)
      throw Error(cat("token id ", id, " in a merge is beyond the ", kMostIds, " that are supported"));
  const uint64_t pair = pair_of(left, right);
  size_t at = slot_of(pair);
  while (slots_[at] != kEmpty) {
    if (slots_[at] >> kRankBits == pair) return;
    if (++at == slots_.size()) at = 0;
  }
  slots_[at] = pair << kRankBits | results_.size();
  results_.push_back(result);
}

uint32_t MergeTable::rank_of(int32_t left, int32_t right) const {
  if (slots_.empty()) return no_merge;
  const uint64_t pair = pair_of(left, right);
  size_t at = slot_of(pair);
  while (slots_[at] != kEmpty) {
    if (slots_[at] >> kRankBits == pair) return static_cast<uint32_t>(slots_[at] & kMostRanks);
    if (++at == slots_.size()) at = 0;
  }
  return no_merge;
}

Merge MergeTable::find(int32_t left, int32_t right) const {
  const uint32_t rank = rank_of(left, right);
  return {rank, rank == no_merge ? -1 : results_[rank]};
}

void MergeTable::apply(std::vector<int32_t>& symbols, Scratch& scratch) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= short_word) {
    apply_short(symbols, scratch);
  } else {
    scratch.list.run(
        symbols.size(),
        [&](size_t left, size_t right) {
          const uint32_t rank = rank_of(symbols[left], symbols[right]);
          return Merge{rank, static_cast<int32_t>(rank)};
        },
        [&](size_t left, size_t, int32_t rank) { symbols[left] = results_[static_cast<size_t>(rank)]; });
    size_t out = 0;
    for (int32_t i = 0; i >= 0; i = scratch.list.next(static_cast<size_t>(i))) {
      symbols[out++] = symbols[static_cast<size_t>(i)];
    }
    symbols.resize(out);
  }
}

void MergeTable::apply_short(std::vector<int32_t>& symbols, Scratch& scratch) const {
  std::vector<uint32_t>& ranks = scratch.ranks;  // ranks[i] is that of symbols i and i + 1
  size_t count = symbols.size();
  ranks.resize(count);
  // The table is larger than the nearer caches: all its lines are asked for before the first is waited for.
  if (!slots_.empty()) {
    for (size_t i = 0; i + 1 < count; ++i) __builtin_prefetch(&slots_[slot_of(pair_of(symbols[i], symbols[i + 1]))]);
  }
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = rank_of(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == no_merge) break;
    symbols[best] = results_[ranks[best]];
    for (size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i] = ranks[i + 1];
    }
    --count;
    if (best + 1 < count) ranks[best] = rank_of(symbols[best], symbols[best + 1]);
    if (best > 0) ranks[best - 1] = rank_of(symbols[best - 1], symbols[best]);
  }
  symbols.resize(count);
}

}  // namespace gristmill::text
