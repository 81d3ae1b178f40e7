#include "text/added_tokens.h"

#include <gtest/gtest.h>

namespace gristmill::text {
namespace {

AddedToken token(std::string text, int32_t id, bool special = false) {
  return {std::move(text), id, special};
}

// Tokens as <id>, text as it is, stripped white space gone.
std::string cut(const AddedTokens& tokens, std::string_view text, bool special_too = true) {
  std::string out;
  size_t at = 0;
  AddedTokens::Hit hit{};
  while (tokens.find(text, at, special_too, hit)) {
    out += std::string(text.substr(at, hit.begin - at)) + "<" + std::to_string(hit.id) + ">";
    at = hit.end;
  }
  return out += text.substr(at);
}

TEST(AddedTokens, TheLeftmostAndThereTheLongestIsFound) {
  const AddedTokens tokens({token("ab", 1), token("abcd", 2), token("bcdef", 3), token("\n\n", 4), token("\n", 5)});
  EXPECT_EQ(cut(tokens, "xabcdex"), "x<2>ex");
  EXPECT_EQ(cut(tokens, "abcabbcdef"), "<1>c<1><3>");
  EXPECT_EQ(cut(tokens, "\n\n\nabc"), "<4><5><1>c");
  EXPECT_EQ(cut(tokens, ""), "");
  EXPECT_EQ(cut(AddedTokens(), "abc"), "abc");
  EXPECT_EQ(cut(AddedTokens({token("", 1)}), "abc"), "abc");
}

TEST(AddedTokens, ControlTokensAreFoundOnlyWhenAskedFor) {
  const AddedTokens tokens({token("<|end|>", 1, true), token("<|end", 2, false)});
  EXPECT_EQ(cut(tokens, "a<|end|>b", true), "a<1>b");
  EXPECT_EQ(cut(tokens, "a<|end|>b", false), "a<2>|>b");
}

TEST(AddedTokens, StripTakesWhiteSpaceBesideTheToken) {
  AddedToken left = token("[L]", 1), right = token("[R]", 2);
  left.lstrip = true;
  right.rstrip = true;
  const AddedTokens tokens({left, right});
  EXPECT_EQ(cut(tokens, "a \u3000[L] b"), "a<1> b");
  EXPECT_EQ(cut(tokens, "a [R] \n\u00a0b"), "a <2>b");
  EXPECT_EQ(cut(tokens, "[R]  [L]"), "<2><1>") << "white space is taken once";
}

TEST(AddedTokens, SingleWordsTouchNoWordCharacter) {
  AddedToken word = token("mill", 1);
  word.single_word = true;
  const AddedTokens tokens({word});
  EXPECT_EQ(cut(tokens, "mill, windmill mills (mill) \u00e9mill mill\u6c34 mill_"),
            "<1>, windmill mills (<1>) \u00e9mill mill\u6c34 mill_");
}

TEST(AddedTokens, ManyTokensShareTheirPrefixes) {
  std::vector<AddedToken> list;
  for (int32_t i = 0; i < 1000; ++i) list.push_back(token("<unused" + std::to_string(i) + ">", i, true));
  const AddedTokens tokens(list);
  EXPECT_EQ(cut(tokens, "<unused7><unused77><unused777><unused7777>"), "<7><77><777><unused7777>");
}

}  // namespace
}  // namespace gristmill::text
