#include "text/merge_table.h"

#include <gtest/gtest.h>

#include <random>

namespace gristmill::text {
namespace {

// Merges one pair after the other, each found by a look at the whole row.
std::vector<int32_t> merged_slowly(const MergeTable& merges, std::vector<int32_t> symbols) {
  while (true) {
    size_t best = 0;
    Merge merge{no_merge, -1};
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge candidate = merges.find(symbols[i], symbols[i + 1]);
      if (candidate.rank < merge.rank) {
        merge = candidate;
        best = i;
      }
    }
    if (merge.rank == no_merge) return symbols;
    symbols[best] = merge.result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

std::vector<int32_t> merged(const MergeTable& merges, std::vector<int32_t> symbols) {
  MergeTable::Scratch scratch;
  merges.apply(symbols, scratch);
  return symbols;
}

MergeTable random_merges(std::mt19937& random, int32_t letters, int32_t count) {
  MergeTable merges(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    merges.add(static_cast<int32_t>(random() % static_cast<uint32_t>(letters + i)),
               static_cast<int32_t>(random() % static_cast<uint32_t>(letters + i)), letters + i);
  }
  return merges;
}

TEST(MergeTable, TheLowestRankGoesFirstAndTheLeftmostOfEquals) {
  enum : int32_t { a, b, c, bc, ab, aa };
  MergeTable merges(3);
  merges.add(b, c, bc);
  merges.add(a, b, ab);
  merges.add(a, a, aa);
  EXPECT_EQ(merged(merges, {a, b, c}), (std::vector<int32_t>{a, bc}));
  EXPECT_EQ(merged(merges, {a, b, a}), (std::vector<int32_t>{ab, a}));
  EXPECT_EQ(merged(merges, {a, a, a}), (std::vector<int32_t>{aa, a}));
  EXPECT_EQ(merged(merges, {c, c}), (std::vector<int32_t>{c, c}));
  EXPECT_EQ(merged(merges, {a}), (std::vector<int32_t>{a}));
  EXPECT_EQ(merged(merges, {}), (std::vector<int32_t>{}));
}

TEST(MergeTable, APairGivenAgainKeepsItsFirstRank) {
  MergeTable merges(2);
  merges.add(0, 1, 2);
  merges.add(0, 1, 3);
  EXPECT_EQ(merges.size(), 1u);
  EXPECT_EQ(merges.find(0, 1).result, 2);
  EXPECT_EQ(merges.find(1, 0).rank, no_merge);
}

TEST(MergeTable, AnEmptyTableMergesNothing) {
  EXPECT_EQ(merged(MergeTable(), {1, 2, 3}), (std::vector<int32_t>{1, 2, 3}));
}

TEST(MergeTable, ShortAndLongWordsMergeAsTheDefinitionSays) {
  std::mt19937 random(7);
  size_t merged_pairs = 0;
  for (int round = 0; round < 400; ++round) {
    const MergeTable merges = random_merges(random, 4, 30);
    std::vector<int32_t> word(random() % 130);
    for (int32_t& symbol : word) symbol = static_cast<int32_t>(random() % 4);
    const std::vector<int32_t> expected = merged_slowly(merges, word);
    ASSERT_EQ(merged(merges, word), expected) << "round " << round;
    merged_pairs += word.size() - expected.size();
  }
  EXPECT_GT(merged_pairs, 1000u);
}

// A quadratic algorithm would take hours here.
TEST(MergeTable, AMillionEqualLettersMergeInLinearithmicTime) {
  MergeTable merges(20);
  for (int32_t i = 0; i < 20; ++i) merges.add(i, i, i + 1);
  EXPECT_EQ(merged(merges, std::vector<int32_t>(1 << 20, 0)), (std::vector<int32_t>{20}));
}

}  // namespace
}  // namespace gristmill::text
