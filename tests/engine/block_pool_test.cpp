#include "engine/block_pool.h"

#include <gtest/gtest.h>

namespace gristmill::engine {
namespace {

BlockHash hash_for(uint8_t value) {
  BlockHash hash{};
  hash[0] = value;
  return hash;
}

std::string hex(const BlockHash& hash) {
  std::string text;
  for (const uint8_t byte : hash) text += "0123456789abcdef"[byte >> 4], text += "0123456789abcdef"[byte & 15];
  return text;
}

TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const std::string abc = "abc";
  const auto bytes = [](const std::string& text) {
    return std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  EXPECT_EQ(hex(sha256(bytes(abc))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string long_text(1000, 'a');
  EXPECT_EQ(hex(sha256(bytes(long_text))), "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
}

TEST(Xxh64, GivesThePublishedDigests) {
  const auto hash = [](const std::string& text) {
    return xxh64(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()), 0);
  };
  EXPECT_EQ(hash(""), 0xef46db3751d8e999u);
  EXPECT_EQ(hash("abc"), 0x44bc2cf5ad770999u);
  EXPECT_EQ(hash("Nobody inspects the spammish repetition"), 0xfbcea83c8a378bf1u);
}

BlockHash root(const std::vector<KeyPart>& parts) {
  return root_hash(HashAlgorithm::sha256, parts);
}

TEST(BlockHash, DependsOnParentAndTokens) {
  const std::vector<int32_t> tokens = {1, 2, 3, 4};
  for (const HashAlgorithm algorithm : {HashAlgorithm::sha256, HashAlgorithm::xxhash}) {
    const BlockHash start = root_hash(algorithm, {});
    const BlockHash first = block_hash(algorithm, start, tokens);
    EXPECT_EQ(first, block_hash(algorithm, start, tokens));
    EXPECT_NE(first, block_hash(algorithm, first, tokens));
    EXPECT_NE(first, block_hash(algorithm, start, std::vector<int32_t>{1, 2, 3, 5}));
  }
}

TEST(BlockHash, SourcesOfKeysCannotPassForEachOther) {
  const std::vector<BlockHash> roots = {root({}),
                                        root({{KeySource::salt, "x"}}),
                                        root({{KeySource::adapter, "x"}}),
                                        root({{KeySource::media, "x"}}),
                                        root({{KeySource::salt, "x"}, {KeySource::adapter, "y"}}),
                                        root({{KeySource::salt, std::string("x\x02\x01\0\0\0\0\0\0\0y", 11)}})};
  for (size_t i = 0; i < roots.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(roots[i], roots[j]) << i << " " << j;
  }
  EXPECT_EQ(root({{KeySource::salt, ""}}), root({}));
}

TEST(BlockPool, HandsOutEveryBlockOnce) {
  BlockPool pool(5);
  std::vector<bool> seen(5);
  for (int i = 0; i < 5; ++i) {
    const int32_t block = pool.allocate();
    EXPECT_FALSE(seen[static_cast<size_t>(block)]);
    seen[static_cast<size_t>(block)] = true;
  }
  EXPECT_EQ(pool.free_count(), 0);
}

TEST(BlockPool, ReusesAUsedBlockBeforeAFreshOne) {
  BlockPool pool(100);
  const int32_t block = pool.allocate();
  pool.release(block);
  EXPECT_EQ(pool.allocate(), block);
}

TEST(BlockPool, AFreeBlockIsFoundByItsContentUntilItIsHandedOut) {
  BlockPool pool(2);
  const int32_t block = pool.allocate();
  pool.name(block, hash_for(1));
  pool.release(block);
  EXPECT_EQ(pool.free_count(), 2);
  ASSERT_EQ(pool.lookup(hash_for(1)), block);
  pool.share(block);
  EXPECT_EQ(pool.free_count(), 1);
  pool.release(block);
  pool.allocate();  // the fresh one
  EXPECT_TRUE(pool.lookup(hash_for(1)).has_value());
  EXPECT_EQ(pool.allocate(), block);
  EXPECT_FALSE(pool.lookup(hash_for(1)).has_value());
}

TEST(BlockPool, EvictsTheLeastRecentlyUsedFirst) {
  BlockPool pool(3);
  int32_t blocks[3];
  for (uint8_t i = 0; i < 3; ++i) {
    blocks[i] = pool.allocate();
    pool.name(blocks[i], hash_for(i));
  }
  for (const int32_t block : blocks) pool.release(block);
  pool.share(blocks[0]);  // used again: now the most recent
  pool.release(blocks[0]);
  EXPECT_EQ(pool.allocate(), blocks[1]);
  EXPECT_EQ(pool.allocate(), blocks[2]);
  EXPECT_EQ(pool.allocate(), blocks[0]);
}

TEST(BlockPool, TwoBlocksOfTheSameContentHaveOneName) {
  BlockPool pool(2);
  const int32_t first = pool.allocate(), second = pool.allocate();
  pool.name(first, hash_for(7));
  pool.name(second, hash_for(7));
  EXPECT_EQ(pool.lookup(hash_for(7)), first);
  EXPECT_FALSE(pool.named(second));
}

TEST(BlockPool, ForgettingKeepsReferences) {
  BlockPool pool(2);
  const int32_t used = pool.allocate(), idle = pool.allocate();
  pool.name(used, hash_for(1));
  pool.name(idle, hash_for(2));
  pool.release(idle);
  pool.forget_all();
  EXPECT_FALSE(pool.lookup(hash_for(1)) || pool.lookup(hash_for(2)));
  EXPECT_EQ(pool.references(used), 1);
  EXPECT_EQ(pool.free_count(), 1);
  pool.release(used);
  EXPECT_EQ(pool.free_count(), 2);
}

}  // namespace
}  // namespace gristmill::engine
