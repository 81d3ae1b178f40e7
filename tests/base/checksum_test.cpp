#include "base/checksum.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace gristmill {
namespace {

std::vector<std::byte> counting(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 167);
  return bytes;
}

TEST(Checksum, IsTheSameForEver) {
  EXPECT_EQ(checksum({}), 1842870391959968025ULL);
  EXPECT_EQ(checksum(counting(1)), 6341636682356350064ULL);
  EXPECT_EQ(checksum(counting(1000)), 15360193120399713013ULL);
  EXPECT_EQ(checksum(counting(1000), 7), 11096479928017356119ULL);
  EXPECT_EQ(digest("weights"), "56cac61210d603ceda68e48078a9c82c");
}

TEST(Checksum, FindsEveryFlippedBitAndEveryOtherLength) {
  const std::vector<std::byte> bytes = counting(200);
  std::set<uint64_t> sums;
  for (size_t length = 0; length <= bytes.size(); ++length)
    EXPECT_TRUE(sums.insert(checksum(std::span(bytes).first(length))).second) << length;
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::vector<std::byte> changed = bytes;
    changed[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    EXPECT_TRUE(sums.insert(checksum(changed)).second) << bit;
  }
}

TEST(Checksum, TellsZerosOfDifferentLengthsApart) {
  std::set<uint64_t> sums;
  for (size_t length = 0; length < 300; ++length)
    EXPECT_TRUE(sums.insert(checksum(std::vector<std::byte>(length))).second) << length;
}

}  // namespace
}  // namespace gristmill
