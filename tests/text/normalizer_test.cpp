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

// Stretches of all kinds of characters, next to each other and to plain ones: as if the whole were normalized at once.
TEST(Normalizer, StretchesAreNormalizedAsTheWholeIs) {
  Normalizer normalizer;
  normalizer.add_nfc();
  const uint32_t characters[] = {'a',    'e',    ' ',    0xE9,    0x301,  0x323,  0x345,  0x3B1,  0x430,
                                 0x306,  0x5D0,  0x5BC,  0x627,   0x653,  0x650,  0x915,  0x93C,  0x958,
                                 0x9C7,  0x9BE,  0xE01,  0xE38,   0x1100, 0x1161, 0x11A8, 0xAC00, 0x212B,
                                 0x3099, 0x304B, 0x30AB, 0x1D15E, 0xF900, 0x4E00};
  uint64_t state = 1;
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      append_utf8(text, characters[(state >> 33) % std::size(characters)]);
    }
    auto* const composed = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
    ASSERT_EQ(applied(normalizer, text), reinterpret_cast<const char*>(composed));
    free(composed);
  }
}

}  // namespace
}  // namespace gristmill::text
