#include "text/word_borders.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gristmill::text {
namespace {

using Words = std::vector<std::string>;

Words split(const WordBorders& borders, std::string_view text) {
  Words all;
  borders.split(text, [&](std::string_view word) { all.emplace_back(word); });
  return all;
}
void join(WordBorders& borders, std::string_view left, std::string_view right) {
  borders.join(WordBorders::back_of(left), WordBorders::front_of(right));
}

TEST(WordBorders, WithoutMergesEveryCharacterIsAPiece) {
  const WordBorders borders;
  EXPECT_EQ(split(borders, ""), Words{});
  EXPECT_EQ(split(borders, "a"), Words{"a"});
  EXPECT_EQ(split(borders, "a\u00e9\u5b57\U0001f999"), (Words{"a", "\u00e9", "\u5b57", "\U0001f999"}));
}

TEST(WordBorders, NoCutBetweenCharactersThatAMergeBringsTogether) {
  WordBorders borders;
  join(borders, "th", "e");
  join(borders, "\u2581", "t");
  join(borders, "t", "h");
  EXPECT_EQ(split(borders, "\u2581the\u2581then"), (Words{"\u2581the", "\u2581the", "n"}));
  EXPECT_EQ(split(borders, "eht"), (Words{"e", "h", "t"}));
  join(borders, "\u5b57\u5178", "\u3002");
  EXPECT_EQ(split(borders, "\u5178\u3002\u5b57\u5178"), (Words{"\u5178\u3002", "\u5b57", "\u5178"}));
  join(borders, "\U0001f999", "\U0001f999x");
  EXPECT_EQ(split(borders, "\U0001f999\U0001f999x"), (Words{"\U0001f999\U0001f999", "x"}));
}

TEST(WordBorders, NoCutWhereAMergeTakesPartsOfCharacters) {
  // U+5B57 is E5 AD 97, U+5178 is E5 85 B8.
  const std::string text = "\u5b57\u5178";
  WordBorders front;
  join(front, "\u5b57", "\xe5");
  EXPECT_EQ(split(front, text), Words{text});
  EXPECT_EQ(split(front, "\u5b57\u3002"), (Words{"\u5b57", "\u3002"}));
  WordBorders back;
  join(back, "\x97", "\u5178");
  EXPECT_EQ(split(back, text), Words{text});
  EXPECT_EQ(split(back, "a\u5178"), (Words{"a", "\u5178"}));
  WordBorders both;
  join(both, "\xad\x97", "\xe5\x85");
  EXPECT_EQ(split(both, text), Words{text});
  EXPECT_EQ(split(both, "\u5178\u5b57"), (Words{"\u5178", "\u5b57"}));
  // Ends inside of a character touch no border.
  WordBorders inside;
  join(inside, "\u5b57\xe5", "\x85");
  join(inside, "\xe5", "\x85\xb8\u5b57");
  EXPECT_EQ(split(inside, text), (Words{"\u5b57", "\u5178"}));
}

TEST(WordBorders, NoCutInsideATokenWhoseMergesAreNotKnown) {
  WordBorders borders;
  borders.join_all(">\u2581</");
  borders.join_all("x");
  EXPECT_EQ(split(borders, "<a>\u2581</a>"), (Words{"<", "a", ">\u2581</", "a", ">"}));
}

}  // namespace
}  // namespace gristmill::text
