#include "text/normalizer.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include "text/utf8.h"

namespace gristmill::text {
namespace {

std::string applied(const Normalizer& normalizer, std::string_view text) {
  std::string storage;
  return std::string(normalizer.apply(text, storage));
}

TEST(Normalizer, ComposesCharacters) {
  Normalizer normalizer;
  normalizer.add_nfc();
  EXPECT_EQ(applied(normalizer, "e\u0301 \u00e9 \u212b"), "\u00e9 \u00e9 \u00c5");
  EXPECT_EQ(applied(normalizer, "\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(applied(normalizer, std::string("a\0b e\u0301", 7)), std::string("a\0b \u00e9", 6));
}

TEST(Normalizer, TextInNormalFormIsNotCopied) {
  Normalizer normalizer;
  normalizer.add_nfc();
  const std::string text = "The mill \u00e9 \u6c34\u8f66 \ud55c \U0001F33E";
  std::string storage;
  EXPECT_EQ(normalizer.apply(text, storage).data(), text.data());
}

TEST(Normalizer, StepsRunInOrder) {
  Normalizer normalizer;
  normalizer.add_prepend("_");
  normalizer.add_replace(" ", "_");
  normalizer.add_replace("__", "=");
  EXPECT_EQ(applied(normalizer, "a  b c "), "_a=b_c_");
  EXPECT_EQ(applied(normalizer, " a"), "=a");
  EXPECT_EQ(applied(normalizer, ""), "");
}

// What the quick check lets pass must be unchanged by normalization, alone and behind any other such character.
TEST(Normalizer, TheQuickCheckIsSafe) {
  size_t passed = 0;
  for (uint32_t c = 0; c <= 0x1FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, c);
    if (!quick_check_nfc(text)) continue;
    ++passed;
    const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
    ASSERT_EQ(property->combining_class, 0) << std::hex << c;
    for (const char* before : {"", "a", "\u0915", "\u1112", "\uac00", "\u30ab"}) {
      const std::string pair = before + text;
      auto* composed = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(pair.c_str()));
      if (c != 0) {
        ASSERT_EQ(pair, reinterpret_cast<const char*>(composed)) << std::hex << c;
      }
      free(composed);
    }
  }
  EXPECT_GT(passed, 40000u);
}

}  // namespace
}  // namespace gristmill::text
