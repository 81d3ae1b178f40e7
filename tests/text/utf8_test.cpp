#include "text/utf8.h"

#include <gtest/gtest.h>

namespace gristmill::text {
namespace {

std::string decoded(std::string_view bytes, size_t* used = nullptr) {
  std::string out;
  const size_t n = append_decoded(out, bytes);
  if (used != nullptr) *used = n;
  return out;
}

TEST(Utf8, FindsTheFirstInvalidByte) {
  EXPECT_EQ(find_invalid_utf8(""), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("plain text of more than eight bytes"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("\u00e9\u6c34\U0001F999 and \U0010FFFF"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("eight by\xff"), 8u);
  EXPECT_EQ(find_invalid_utf8("a\xC0\x80"), 1u) << "overlong NUL";
  EXPECT_EQ(find_invalid_utf8("\xE0\x9F\xBF"), 0u) << "overlong three-byte form";
  EXPECT_EQ(find_invalid_utf8("\xED\xA0\x80"), 0u) << "surrogate";
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u) << "above U+10FFFF";
  EXPECT_EQ(find_invalid_utf8("ab\xE6\xB0"), 2u) << "cut short";
  EXPECT_EQ(find_invalid_utf8("\x80"), 0u);
}

TEST(Utf8, EveryScalarValueSurvivesTheRoundTrip) {
  std::string text;
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    text.clear();
    append_utf8(text, c);
    ASSERT_EQ(find_invalid_utf8(text), std::string_view::npos) << std::hex << c;
    size_t at = 0;
    ASSERT_EQ(next_code_point(text, at), c);
    ASSERT_EQ(at, text.size());
  }
}

// The expected texts are what Python prints for bytes.decode("utf-8", "replace").
TEST(Utf8, ReplacesMaximalSubpartsOfIllFormedSequences) {
  EXPECT_EQ(decoded("\xFF\x41"), "\uFFFDA");
  EXPECT_EQ(decoded("\xC0\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(decoded("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(decoded("\xF0\x9F\xA6 x"), "\uFFFD x");
  EXPECT_EQ(decoded("\xE6\xB0\xE6\xB0\xB4"), "\uFFFD\u6c34");
  EXPECT_EQ(decoded("\xF8\x88\x80\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(Utf8, LeavesACutSequenceForLater) {
  size_t used = 0;
  EXPECT_EQ(decoded("ab\xF0\x9F\xA6", &used), "ab");
  EXPECT_EQ(used, 2u);
  EXPECT_EQ(decoded("\xE6", &used), "");
  EXPECT_EQ(used, 0u);
}

}  // namespace
}  // namespace gristmill::text
