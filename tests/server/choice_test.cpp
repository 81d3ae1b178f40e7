#include "server/openai/choice.h"

#include <gtest/gtest.h>

#include "fake_tokenizer.h"

namespace gristmill::server::openai {
namespace {

engine::EngineOutput output(const std::string& bytes, engine::FinishReason finish = engine::FinishReason::none) {
  engine::EngineOutput out;
  for (const char c : bytes) out.tokens.push_back({static_cast<unsigned char>(c), {}, {}});
  out.finish = finish;
  return out;
}

class ChoiceTest : public testing::Test {
 protected:
  Choice make() { return Choice(job_, tokenizer_); }
  Job job_;
  FakeTokenizer tokenizer_;
};

TEST_F(ChoiceTest, TextComesAsCharactersComplete) {
  Choice choice = make();
  EXPECT_EQ(choice.accept(output("\xF0\x9F")).text, "");
  EXPECT_EQ(choice.accept(output("\xA6\x99 h")).text, "🦙 h");
  const Delta last = choice.accept(output("\xE6", engine::FinishReason::length));
  EXPECT_EQ(last.text, "\xEF\xBF\xBD");
  EXPECT_STREQ(last.finish_reason, "length");
  EXPECT_EQ(choice.tokens(), 7);
  EXPECT_EQ(choice.stop_reason(), "null");
}

TEST_F(ChoiceTest, TextOfTheEndTokenIsLeftOut) {
  job_.skip_special = false;
  Choice choice = make();
  engine::EngineOutput out = output("ab", engine::FinishReason::stop);
  out.tokens[1].token = FakeTokenizer::eos_id;
  const Delta delta = choice.accept(out);
  EXPECT_EQ(delta.text, "a");
  EXPECT_EQ(delta.tokens, 2u);
  EXPECT_STREQ(delta.finish_reason, "stop");
}

TEST_F(ChoiceTest, TextOfAStopTokenIsLeftOutUnlessAsked) {
  engine::EngineOutput out = output("ab", engine::FinishReason::stop);
  out.stop_token = 'b';
  Choice without = make();
  EXPECT_EQ(without.accept(out).text, "a");
  EXPECT_EQ(without.stop_reason(), "98");
  job_.include_stop = true;
  Choice with = make();
  EXPECT_EQ(with.accept(out).text, "ab");
}

TEST_F(ChoiceTest, StopStringEndsTheChoiceInTheMiddleOfAStep) {
  job_.stop = {"own fox"};
  Choice choice = make();
  EXPECT_EQ(choice.accept(output("The quick brown")).text, "The quick br");
  const Delta delta = choice.accept(output(" fox jumps", engine::FinishReason::none));
  EXPECT_EQ(delta.text, "");
  EXPECT_EQ(delta.tokens, 4u);  // " fox", not what was made after it
  EXPECT_STREQ(delta.finish_reason, "stop");
  EXPECT_EQ(choice.stop_reason(), "\"own fox\"");
  EXPECT_EQ(choice.tokens(), 19);
  EXPECT_EQ(choice.accept(output("more")).tokens, 0u);
}

TEST_F(ChoiceTest, HeldTextIsGivenAtTheEnd) {
  job_.stop = {"END"};
  Choice choice = make();
  EXPECT_EQ(choice.accept(output("x EN")).text, "x ");
  const Delta delta = choice.accept(output("", engine::FinishReason::length));
  EXPECT_EQ(delta.text, "EN");
  EXPECT_EQ(choice.stop_reason(), "null");
}

TEST_F(ChoiceTest, StopStringsWaitForMinTokens) {
  job_.stop = {"b"};
  job_.sampling.min_tokens = 3;
  Choice choice = make();
  const Delta delta = choice.accept(output("bbbab"));
  EXPECT_EQ(delta.text, "bbba");
  EXPECT_TRUE(delta.finished);
  EXPECT_EQ(choice.tokens(), 5);
}

TEST_F(ChoiceTest, StopStringIsKeptWhenAsked) {
  job_.stop = {"!"};
  job_.include_stop = true;
  Choice choice = make();
  EXPECT_EQ(choice.accept(output("hi! there")).text, "hi!");
}

TEST_F(ChoiceTest, StopStringInTheLastStepIsStillTheReason) {
  job_.stop = {"!"};
  Choice choice = make();
  EXPECT_STREQ(choice.accept(output("hi!", engine::FinishReason::length)).finish_reason, "stop");
  EXPECT_EQ(choice.stop_reason(), "\"!\"");
}

}  // namespace
}  // namespace gristmill::server::openai
