#include "text/regex.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/pretokenizer.h"

namespace gristmill::text {
namespace {

std::vector<std::string> matches(const Regex& regex, std::string_view text) {
  std::vector<std::string> found;
  Regex::Match match{};
  for (size_t at = 0; regex.find(text, at, match); at = match.end) {
    found.emplace_back(text.substr(match.begin, match.end - match.begin));
  }
  return found;
}

TEST(Regex, KnowsUnicodeClasses) {
  EXPECT_EQ(matches(Regex(R"(\p{L}+)"), "M\u00fchle \u6c34\u8f66 12"),
            (std::vector<std::string>{"M\u00fchle", "\u6c34\u8f66"}));
  EXPECT_EQ(matches(Regex(R"(\p{N})"), "1\u00bd\u0663"), (std::vector<std::string>{"1", "\u00bd", "\u0663"}));
  EXPECT_EQ(matches(Regex("(?i:'ll)"), "we'LL"), (std::vector<std::string>{"'LL"}));
}

TEST(Regex, WhiteSpaceIsThePropertyOfUnicode) {
  const Regex space(R"(\s)"), other(R"(\S)"), not_in_class(R"([^\sx])");
  for (const char* c : {" ", "\t", "\u0085", "\u00a0", "\u2003", "\u2028", "\u3000"}) {
    EXPECT_EQ(matches(space, c).size(), 1u) << c;
    EXPECT_EQ(matches(other, c).size(), 0u);
    EXPECT_EQ(matches(not_in_class, c).size(), 0u);
  }
  for (const char* c : {"\u180e", "\u200b", "\ufeff", "\x1c", "\x1f"}) {
    EXPECT_EQ(matches(space, c).size(), 0u) << c;
    EXPECT_EQ(matches(other, c).size(), 1u);
  }
}

TEST(Regex, StepsOverEmptyMatches) {
  EXPECT_EQ(matches(Regex("x*"), "a\u6c34xxb"), (std::vector<std::string>{"xx"}));
  EXPECT_TRUE(matches(Regex("x*"), "").empty());
}

TEST(Regex, LookaheadSeesTheEndOfTheSubject) {
  const std::string text = "a   b";
  const Regex regex(R"(\s+(?!\S)|\s+)");
  EXPECT_EQ(matches(regex, text), (std::vector<std::string>{"  ", " "}));
  EXPECT_EQ(matches(regex, std::string_view(text).substr(0, 4)), (std::vector<std::string>{"   "}));
}

TEST(Regex, RefusesWhatItWouldReadDifferently) {
  for (const char* pattern : {"(", "[a-z&&[^b]]", "[a[b]]", R"([\S])", R"(\p{Nonsense})"}) {
    try {
      Regex regex(pattern);
      FAIL() << pattern;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(pattern), std::string::npos) << error.what();
    }
  }
}

TEST(Regex, InterpreterAndJitCutAlike) {
  const std::string text =
      "The mill's 1987 wheel\r\n\n  turns  \u6c34\u8f66 \u00bd e\u0301 \U0001F33E\u200d!! it'LL  \t x\u3000y "
      "camelCase ";
  for (const char* name : {"smollm", "llama-bpe", "qwen2", "qwen35", "gpt-4o", "deepseek-v3", "tekken", "kimi-k2"}) {
    for (const std::string& pattern : known_pretokenizer(name).patterns) {
      const Regex fast(pattern), slow(pattern, Regex::Engine::interpreter);
      EXPECT_FALSE(slow.jit_compiled());
      EXPECT_EQ(matches(fast, text), matches(slow, text)) << pattern;
    }
  }
}

TEST(Regex, AnExplodingPatternEndsInAnError) {
  const Regex hostile("(x+x+)+[yz]");
  const std::string text(40, 'x');
  Regex::Match match{};
  EXPECT_THROW(hostile.find(text, 0, match), RequestError);
}

}  // namespace
}  // namespace gristmill::text
