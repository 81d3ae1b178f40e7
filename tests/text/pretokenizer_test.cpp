#include "text/pretokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace gristmill::text {
namespace {

using Words = std::vector<std::string>;

Words words_of(const Pretokenizer& pretokenizer, std::string_view text) {
  Words words;
  pretokenizer.split(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

Pretokenizer known(std::string_view name) {
  std::vector<SplitStep> steps;
  for (const std::string& pattern : known_pretokenizer(name).patterns) {
    steps.push_back({Regex(pattern), SplitBehavior::isolated, false});
  }
  return Pretokenizer(std::move(steps));
}

Pretokenizer dashes(SplitBehavior behavior, bool invert = false) {
  std::vector<SplitStep> steps;
  steps.push_back({Regex("-"), behavior, invert});
  return Pretokenizer(std::move(steps));
}

TEST(Pretokenizer, WithoutStepsTheTextIsOneWord) {
  EXPECT_EQ(words_of(Pretokenizer(), "a b"), (Words{"a b"}));
  EXPECT_EQ(words_of(Pretokenizer(), ""), Words{});
}

TEST(Pretokenizer, BehaviorsPlaceTheMatches) {
  const std::string text = "the-final--countdown";
  EXPECT_EQ(words_of(dashes(SplitBehavior::isolated), text), (Words{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(words_of(dashes(SplitBehavior::removed), text), (Words{"the", "final", "countdown"}));
  EXPECT_EQ(words_of(dashes(SplitBehavior::merged_with_previous), text), (Words{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(words_of(dashes(SplitBehavior::merged_with_next), text), (Words{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(words_of(dashes(SplitBehavior::contiguous), text), (Words{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(words_of(dashes(SplitBehavior::removed, true), text), (Words{"-", "-", "-"}));
}

TEST(Pretokenizer, SmolLmTakesDigitsSingly) {
  EXPECT_EQ(words_of(known("smollm"), "it's 1987  now"), (Words{"it", "'s", " ", "1", "9", "8", "7", " ", " now"}));
}

TEST(Pretokenizer, Llama3TakesDigitsByThreeAndContractionsInAnyCase) {
  EXPECT_EQ(words_of(known("llama-bpe"), "I'LL grind 12345 sacks.\n\n  Go"),
            (Words{"I", "'LL", " grind", " ", "123", "45", " sacks", ".\n\n", " ", " Go"}));
}

TEST(Pretokenizer, Qwen35KeepsMarksWithTheirLetters) {
  EXPECT_EQ(words_of(known("qwen2"), "ne\u0301e"), (Words{"ne", "\u0301e"}));
  EXPECT_EQ(words_of(known("qwen35"), "ne\u0301e"), (Words{"ne\u0301e"}));
}

TEST(Pretokenizer, Gpt4oCutsWhereCaseChanges) {
  EXPECT_EQ(words_of(known("gpt-4o"), "camelCaseHTTP don't"), (Words{"camel", "Case", "HTTP", " don't"}));
}

TEST(Pretokenizer, DeepseekKeepsHanAndKanaTogether) {
  EXPECT_EQ(words_of(known("deepseek-v3"), "1234\u6c34\u8f66abc.def"),
            (Words{"123", "4", "\u6c34\u8f66", "abc", ".def"}));
}

TEST(Pretokenizer, KimiCutsHanFromOtherLetters) {
  EXPECT_EQ(words_of(known("kimi-k2"), "abc\u6c34\u8f66def"), (Words{"abc", "\u6c34\u8f66", "def"}));
}

TEST(Pretokenizer, AnUnknownNameIsRefusedWithTheKnownOnes) {
  try {
    known_pretokenizer("watermill");
    FAIL();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("\"watermill\""), std::string::npos) << message;
    for (const char* name : {"smollm", "llama-bpe", "qwen2", "qwen35", "minimax-m2", "gpt-2", "deepseek-v3"}) {
      EXPECT_NE(message.find(name), std::string::npos) << message;
    }
  }
}

TEST(Pretokenizer, WordsJoinToTheText) {
  const std::string text =
      " \u3000\r\n The 1987's \u0663\u0664 x\u0301y \u6c34\u30ab\uac00! \t\t\U0001F33E\u200d// end  ";
  for (const char* name : {"gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35", "gpt-4o", "minimax-m2", "tekken",
                           "kimi-k2", "deepseek-v3", "bailingmoe", "seed-coder", "falcon", "default", "dbrx", "mpt"}) {
    std::string joined;
    known(name).split(text, [&](std::string_view word) { joined += word; });
    EXPECT_EQ(joined, text) << name;
  }
}

}  // namespace
}  // namespace gristmill::text
