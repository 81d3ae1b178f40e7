#include "text/byte_level.h"

#include <gtest/gtest.h>

#include <set>

#include "text/utf8.h"

namespace gristmill::text {
namespace {

TEST(ByteLevel, SpellsEveryByteAsAnotherPrintableCharacter) {
  std::set<uint32_t> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const uint32_t c = byte_level_character(static_cast<uint8_t>(byte));
    EXPECT_GT(c, 0x20u);
    EXPECT_TRUE(c < 0x7F || c > 0xA0) << std::hex << c;
    EXPECT_NE(c, 0xADu) << "the soft hyphen is invisible";
    seen.insert(c);
  }
  EXPECT_EQ(seen.size(), 256u);
}

TEST(ByteLevel, KnowsTheFamousOnes) {
  std::string out;
  append_byte_level(out, " \n\tA\xC3\xA9");
  EXPECT_EQ(out, "\u0120\u010A\u0109A\u00C3\u00A9");
}

TEST(ByteLevel, DecodesWhatItSpelled) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  std::string spelled, back = "kept ";
  append_byte_level(spelled, all);
  EXPECT_TRUE(append_byte_level_decoded(back, spelled));
  EXPECT_EQ(back, "kept " + all);
}

TEST(ByteLevel, RefusesCharactersThatStandForNoByte) {
  for (const char* text : {"a b", "\u00AD", "\u0144", "\u6c34", "\uFF5C", "\xC4"}) {
    std::string out = "kept";
    EXPECT_FALSE(append_byte_level_decoded(out, text)) << text;
    EXPECT_EQ(out, "kept");
  }
}

}  // namespace
}  // namespace gristmill::text
