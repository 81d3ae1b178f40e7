#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "text/utf8.h"

namespace gristmill::text {
namespace {

// One token per entry of a list of byte strings.
class ByteTokens final : public Tokenizer {
 public:
  explicit ByteTokens(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {}
  std::vector<int32_t> encode(std::string_view, bool, bool) const override { return {}; }
  std::string_view token_bytes(int32_t id, bool) const override { return tokens_[static_cast<size_t>(id)]; }
  std::string decode(const std::vector<int32_t>&, bool) const override { return {}; }
  int32_t vocabulary() const override { return static_cast<int32_t>(tokens_.size()); }
  int32_t bos() const override { return -1; }
  int32_t eos() const override { return -1; }
  const std::vector<int32_t>& end_ids() const override { return none_; }
  std::string_view token_text(int32_t id) const override { return tokens_[static_cast<size_t>(id)]; }
  bool is_special(int32_t) const override { return false; }
  int32_t longest_token() const override { return 8; }

 private:
  std::vector<std::string> tokens_;
  std::vector<int32_t> none_;
};

std::vector<std::string> streamed(const std::vector<std::string>& pieces) {
  const ByteTokens tokens(pieces);
  Detokenizer detokenizer(tokens, true);
  std::vector<std::string> out;
  for (size_t i = 0; i < pieces.size(); ++i) out.push_back(detokenizer.push(static_cast<int32_t>(i)));
  out.push_back(detokenizer.finish());
  return out;
}

using Pieces = std::vector<std::string>;

TEST(Detokenizer, HoldsHalfCharactersBack) {
  EXPECT_EQ(streamed({"\xF0\x9F", "\xA6\x99 ", "hi"}), (Pieces{"", "\U0001F999 ", "hi", ""}));
  EXPECT_EQ(streamed({"\xE6\xBC", "\xA2\xE5", "\xAD\x97"}), (Pieces{"", "\u6f22", "\u5b57", ""}));
  EXPECT_EQ(streamed({"\xF0\x9F"}), (Pieces{"", "\uFFFD"}));
}

TEST(Detokenizer, BrokenBytesDoNotStallTheStream) {
  EXPECT_EQ(streamed({"\xFF", "A"}), (Pieces{"\uFFFD", "A", ""}));
  EXPECT_EQ(streamed({"\xC0\x80"}), (Pieces{"\uFFFD\uFFFD", ""}));
  EXPECT_EQ(streamed({"\xED\xA0\x80"}), (Pieces{"\uFFFD\uFFFD\uFFFD", ""}));
  EXPECT_EQ(streamed({"\xE6", "A"}), (Pieces{"", "\uFFFDA", ""}));
}

TEST(Detokenizer, AnySplitOfAnyBytesGivesTheSameValidText) {
  static const Pieces atoms = {"a",    " ",        "\u00e9", "\u6c34", "\U0001F33E", "\xE6",
                               "\xB0", "\xF0\x9F", "\xFF",   "\xC0",   "\xED\xA0",   "\xF4\x90"};
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    std::string bytes;
    for (size_t i = random() % 30; i > 0; --i) bytes += atoms[random() % atoms.size()];
    std::string whole;
    if (append_decoded(whole, bytes) < bytes.size()) whole += replacement_character;
    Pieces pieces;
    for (size_t at = 0; at < bytes.size();) {
      const size_t length = 1 + random() % 4;
      pieces.push_back(bytes.substr(at, length));
      at += length;
    }
    std::string joined;
    for (const std::string& piece : streamed(pieces)) {
      ASSERT_EQ(find_invalid_utf8(piece), std::string_view::npos);
      joined += piece;
    }
    ASSERT_EQ(joined, whole);
  }
}

struct Stopped {
  std::string text;
  int matched = -1;
  bool operator==(const Stopped&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Stopped& stopped) {
  return out << '"' << stopped.text << "\" by " << stopped.matched;
}

Stopped stop(const std::vector<std::string>& stops, const std::vector<std::string>& pieces, bool include = false) {
  StopStrings watcher(stops, include);
  Stopped result;
  for (const std::string& piece : pieces) {
    const StopStrings::Result step = watcher.push(piece);
    result.text += step.text;
    if (step.matched >= 0) {
      result.matched = step.matched;
      return result;
    }
  }
  result.text += watcher.finish();
  return result;
}

// The definition: character by character, the first stop string (in list order) that the text ends with.
Stopped stop_slowly(const std::vector<std::string>& stops, const std::string& text, bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    for (size_t i = 0; i < stops.size(); ++i) {
      if (!stops[i].empty() && std::string_view(text).substr(0, end).ends_with(stops[i])) {
        return {text.substr(0, include ? end : end - stops[i].size()), static_cast<int>(i)};
      }
    }
  }
  return {text, -1};
}

TEST(StopStrings, EndBeforeTheFirstMatchToComplete) {
  EXPECT_EQ(stop({"own fox", "\nUser:"}, {"The qu", "ick brow", "n fox", " jumps"}), (Stopped{"The quick br", 0}));
  EXPECT_EQ(stop({"aab"}, {"a", "a", "a", "b"}), (Stopped{"a", 0}));
  EXPECT_EQ(stop({"whole"}, {"wh", "ole"}), (Stopped{"", 0}));
  EXPECT_EQ(stop({"late match", "match"}, {"a late match"}), (Stopped{"a ", 0})) << "both complete together";
  EXPECT_EQ(stop({"abcde", "cd"}, {"abcde"}), (Stopped{"ab", 1})) << "completes a character earlier";
  EXPECT_EQ(stop({}, {"a", "b"}), (Stopped{"ab", -1}));
  EXPECT_EQ(stop({""}, {"ab"}), (Stopped{"ab", -1}));
  EXPECT_EQ(stop({"fox"}, {"brown fox!"}, true), (Stopped{"brown fox", 0}));
}

TEST(StopStrings, HoldNothingBackThatCannotBecomeAMatch) {
  StopStrings watcher({"\nUser:"});
  EXPECT_EQ(watcher.push("line\nUs").text, "line");
  EXPECT_EQ(watcher.push("e").text, "");
  EXPECT_EQ(watcher.push("d\n").text, "\nUsed");
  EXPECT_EQ(watcher.finish(), "\n");
}

TEST(StopStrings, TextBehindAMatchIsDropped) {
  StopStrings watcher({"stop"});
  EXPECT_EQ(watcher.push("a stop b").matched, 0);
  const StopStrings::Result after = watcher.push("stop");
  EXPECT_EQ(after.text, "");
  EXPECT_EQ(after.matched, -1);
}

TEST(StopStrings, AnySplitGivesWhatTheDefinitionSays) {
  std::mt19937 random(3);
  static const Pieces letters = {"a", "b", "\u00e9", "\u00e8", "\u6c34"};
  const auto some_text = [&](size_t most) {
    std::string text;
    for (size_t i = random() % (most + 1); i > 0; --i) text += letters[random() % letters.size()];
    return text;
  };
  int matches = 0;
  for (int round = 0; round < 3000; ++round) {
    Pieces stops(random() % 5);
    for (std::string& one : stops) one = some_text(4);
    const std::string text = some_text(40);
    Pieces pieces;
    for (size_t at = 0; at < text.size();) {
      size_t end = at;
      for (size_t n = 1 + random() % 4; n > 0 && end < text.size(); --n) next_code_point(text, end);
      pieces.push_back(text.substr(at, end - at));
      at = end;
    }
    const bool include = random() % 2 == 0;
    const Stopped expected = stop_slowly(stops, text, include);
    ASSERT_EQ(stop(stops, pieces, include), expected) << "round " << round;
    matches += expected.matched >= 0;
  }
  EXPECT_GT(matches, 500);
}

TEST(StopStrings, TimeIsLinearForManyLongNearMatches) {
  std::vector<std::string> stops;
  for (int i = 0; i < 1000; ++i)
    stops.push_back(std::string(2000, 'a') + static_cast<char>('b' + i % 20) + std::to_string(i));
  StopStrings watcher(stops);
  size_t emitted = 0;
  for (int i = 0; i < 200000; ++i) emitted += watcher.push("a").text.size();
  EXPECT_EQ(emitted, 200000u - 2000u);
}

}  // namespace
}  // namespace gristmill::text
