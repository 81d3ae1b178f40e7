#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "text/byte_level.h"
#include "text/gguf_fixture.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "weights/gguf.h"

namespace gristmill::text {
namespace {

using Ids = std::vector<int32_t>;

std::unique_ptr<Tokenizer> open(GgufFixture& fixture) {
  return make_gguf_tokenizer(weights::GgufFile::open(fixture.write()));
}

std::string failure(GgufFixture& fixture) {
  try {
    open(fixture);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// 256 byte tokens (id = byte), then merges in order, then <|im_start|> and <|im_end|> and a user-defined <tool>.
struct SmallVocabulary {
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;
  SmallVocabulary() {
    for (int byte = 0; byte < 256; ++byte) {
      std::string text;
      append_utf8(text, byte_level_character(static_cast<uint8_t>(byte)));
      tokens.push_back(text);
    }
    for (const auto& [left, right] : {std::pair("m", "i"), {"l", "l"}, {"mi", "ll"}, {"\u0120", "mill"}, {"1", "9"}}) {
      merges.push_back(std::string(left) + " " + right);
      tokens.push_back(std::string(left) + right);
    }
    types.assign(tokens.size(), 1);
    for (const char* control : {"<|im_start|>", "<|im_end|>"}) {
      tokens.push_back(control);
      types.push_back(3);
    }
    tokens.push_back("<tool>");
    types.push_back(4);
    tokens.push_back("[PAD]");
    types.push_back(5);
  }
  enum : int32_t { mi = 256, ll, mill, _mill, nineteen, im_start, im_end, tool, pad };

  void fill(GgufFixture& file, const std::string& pre = "smollm") const {
    file.string("tokenizer.ggml.model", "gpt2");
    file.string("tokenizer.ggml.pre", pre);
    file.strings("tokenizer.ggml.tokens", tokens);
    file.integers("tokenizer.ggml.token_type", types);
    file.strings("tokenizer.ggml.merges", merges);
    file.unsigned32("tokenizer.ggml.bos_token_id", im_start);
    file.unsigned32("tokenizer.ggml.eos_token_id", im_end);
  }
};

using V = SmallVocabulary;

TEST(GgufByteLevel, MergesWordsAndKeepsDigitsApart) {
  GgufFixture file;
  SmallVocabulary().fill(file);
  const auto tokenizer = open(file);
  EXPECT_EQ(tokenizer->encode("mill mill 19", false, false), (Ids{V::mill, V::_mill, ' ', '1', '9'}));
  EXPECT_EQ(tokenizer->encode("", false, false), Ids{});
  EXPECT_EQ(tokenizer->decode({V::mill, V::_mill, ' ', '1', '9'}, false), "mill mill 19");
  EXPECT_EQ(tokenizer->vocabulary(), 265);
  EXPECT_EQ(tokenizer->bos(), V::im_start);
  EXPECT_EQ(tokenizer->eos(), V::im_end);
  EXPECT_EQ(tokenizer->end_ids(), Ids{V::im_end});
  EXPECT_EQ(tokenizer->longest_token(), 12);
}

TEST(GgufByteLevel, ControlTokensAreReadOnlyWhenAskedFor) {
  GgufFixture file;
  SmallVocabulary().fill(file);
  const auto tokenizer = open(file);
  EXPECT_EQ(tokenizer->encode("a<|im_end|>mill<tool>", false, true), (Ids{'a', V::im_end, V::mill, V::tool}));
  const Ids plain = tokenizer->encode("a<|im_end|>mill<tool>", false, false);
  EXPECT_EQ(plain.back(), V::tool) << "user-defined tokens are text";
  EXPECT_EQ(std::count(plain.begin(), plain.end(), V::im_end), 0);
  EXPECT_EQ(tokenizer->decode(plain, true), "a<|im_end|>mill<tool>");
  EXPECT_EQ(tokenizer->decode({'a', V::im_end, V::tool, V::pad, 'b', 9999, -1}, true), "a<tool>b");
  EXPECT_EQ(tokenizer->decode({'a', V::im_end}, false), "a<|im_end|>");
  EXPECT_EQ(tokenizer->token_text(V::_mill), "\u0120mill");
  EXPECT_EQ(tokenizer->token_bytes(V::_mill, true), " mill");
  EXPECT_EQ(tokenizer->token_text(9999), "");
  EXPECT_TRUE(tokenizer->is_special(V::im_end));
  EXPECT_FALSE(tokenizer->is_special(V::tool));
  EXPECT_FALSE(tokenizer->is_special(-1));
}

TEST(GgufByteLevel, SpecialTokensGoAroundTheTextAsTheFileSays) {
  GgufFixture bare, both;
  SmallVocabulary().fill(bare);
  SmallVocabulary().fill(both);
  both.boolean("tokenizer.ggml.add_bos_token", true);
  both.boolean("tokenizer.ggml.add_eos_token", true);
  EXPECT_EQ(open(bare)->encode("a", true, false), Ids{'a'});
  EXPECT_EQ(open(both)->encode("a", true, false), (Ids{V::im_start, 'a', V::im_end}));
  EXPECT_EQ(open(both)->encode("a", false, false), Ids{'a'});
  EXPECT_EQ(open(both)->encode("<|im_start|>a", true, true), (Ids{V::im_start, V::im_start, 'a', V::im_end}));
}

TEST(GgufByteLevel, Llama3TakesWordsThatAreTokensWhole) {
  SmallVocabulary vocabulary;
  vocabulary.tokens.insert(vocabulary.tokens.begin() + V::im_start, "xyz");  // no merge leads to it
  vocabulary.types.insert(vocabulary.types.begin() + V::im_start, 1);
  GgufFixture whole, merged;
  vocabulary.fill(whole, "llama-bpe");
  vocabulary.fill(merged, "qwen2");
  EXPECT_EQ(open(whole)->encode("xyz", false, false), Ids{V::im_start});
  EXPECT_EQ(open(merged)->encode("xyz", false, false), (Ids{'x', 'y', 'z'}));
}

TEST(GgufByteLevel, QwenComposesCharacters) {
  GgufFixture qwen, smollm;
  SmallVocabulary().fill(qwen, "qwen2");
  SmallVocabulary().fill(smollm, "smollm");
  EXPECT_EQ(open(qwen)->encode("e\u0301", false, false), (Ids{0xC3, 0xA9}));
  EXPECT_EQ(open(smollm)->encode("e\u0301", false, false), (Ids{'e', 0xCC, 0x81}));
}

TEST(GgufByteLevel, InvalidUtf8IsRefused) {
  GgufFixture file;
  SmallVocabulary().fill(file);
  const auto tokenizer = open(file);
  EXPECT_THROW(tokenizer->encode("ab\xff", false, false), RequestError);
  EXPECT_THROW(tokenizer->encode("\xED\xA0\x80", false, false), RequestError);
}

TEST(GgufByteLevel, RepeatedWordsOfALongTextEncodeAsSingleOnesDo) {
  GgufFixture file;
  SmallVocabulary().fill(file);
  const auto tokenizer = open(file);
  std::string text;
  Ids expected;
  for (int i = 0; i < 2000; ++i) {
    const std::string word = i % 3 == 0 ? " mill" : " x" + std::string(static_cast<size_t>(i % 90), 'l');
    text += word;
    const Ids ids = tokenizer->encode(word, false, false);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(tokenizer->encode(text, false, false), expected);
}

TEST(GgufByteLevel, HarmonyEndsTurnsAtReturnAndCallOnly) {
  SmallVocabulary vocabulary;
  for (const char* control : {"<|end|>", "<|return|>", "<|call|>"}) {
    vocabulary.tokens.push_back(control);
    vocabulary.types.push_back(3);
  }
  GgufFixture file;
  vocabulary.fill(file);
  EXPECT_EQ(open(file)->end_ids(), (Ids{V::im_end, 266, 267}));
}

TEST(GgufByteLevel, FaultsNameTheKey) {
  const auto broken = [](auto&& change) {
    SmallVocabulary vocabulary;
    GgufFixture file;
    change(vocabulary, file);
    return failure(file);
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(broken([](auto&, auto&) {}), "tokenizer.ggml.model");
  expect(broken([](auto&, auto& f) { f.string("tokenizer.ggml.model", "wordpiece"); }), "wordpiece");
  expect(broken([](auto&, auto& f) { f.string("tokenizer.ggml.model", "gpt2"); }), "tokenizer.ggml.tokens");
  expect(broken([](auto& v, auto& f) { v.fill(f, "watermill"); }), "watermill");
  expect(broken([](auto& v, auto& f) {
           v.types.pop_back();
           v.fill(f);
         }),
         "tokenizer.ggml.token_type");
  expect(broken([](auto& v, auto& f) {
           v.types[3] = 77;
           v.fill(f);
         }),
         "entry 3 is 77");
  for (const char* merge : {"m zzz", "mi mi", "mill", "", " "}) {
    expect(broken([merge](auto& v, auto& f) {
             v.merges[2] = merge;
             v.fill(f);
           }),
           "entry 2 does not join");
  }
  expect(broken([](auto& v, auto& f) {
           v.fill(f);
           f.unsigned32("tokenizer.ggml.eot_token_id", 100000);
         }),
         "tokenizer.ggml.eot_token_id");
}

// SentencePiece: <unk> <s> </s>, 256 byte tokens, then pieces with scores.
class GgufSentencepiece : public ::testing::Test {
 protected:
  GgufSentencepiece() {
    add("<unk>", 2, 0);
    add("<s>", 3, 0);
    add("</s>", 3, 0);
    for (int byte = 0; byte < 256; ++byte) {
      char text[8];
      std::snprintf(text, sizeof(text), "<0x%02X>", byte);
      add(text, 6, 0);
    }
    for (const char* letter : {"\u2581", "m", "i", "l", "\u6c34"}) add(letter, 1, -100);
    add("ll", 1, -1);
    add("mi", 1, -2);
    add("il", 1, -0.5f);
    add("mill", 1, -4);
    add("mil", 1, -3);
    add("\u2581mill", 1, -5);
    add("\u2581\u2581", 4, -6);
  }
  void add(const std::string& text, int32_t type, float score) {
    tokens.push_back(text);
    types.push_back(type);
    scores.push_back(score);
  }
  int32_t id(const std::string& text) const {
    return static_cast<int32_t>(std::find(tokens.begin(), tokens.end(), text) - tokens.begin());
  }
  std::unique_ptr<Tokenizer> tokenizer(bool space_prefix) {
    GgufFixture file;
    file.string("tokenizer.ggml.model", "llama");
    file.strings("tokenizer.ggml.tokens", tokens);
    file.integers("tokenizer.ggml.token_type", types);
    file.numbers("tokenizer.ggml.scores", scores);
    file.unsigned32("tokenizer.ggml.bos_token_id", 1);
    file.unsigned32("tokenizer.ggml.eos_token_id", 2);
    file.unsigned32("tokenizer.ggml.unknown_token_id", 0);
    file.boolean("tokenizer.ggml.add_space_prefix", space_prefix);
    return open(file);
  }
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<float> scores;
};

TEST_F(GgufSentencepiece, TheHighestScoreJoinsFirst) {
  // il (-0.5) goes before ll and mi; then m+il = mil, and mil+l is mill.
  EXPECT_EQ(tokenizer(false)->encode("mill", false, false), Ids{id("mill")});
  EXPECT_EQ(tokenizer(false)->encode("mmill", false, false), (Ids{id("m"), id("mill")}));
  EXPECT_EQ(tokenizer(false)->encode("lil", false, false), (Ids{id("l"), id("il")}));
}

TEST_F(GgufSentencepiece, ASpaceGoesInFrontAndComesBackOff) {
  EXPECT_EQ(tokenizer(true)->encode("mill", true, false), (Ids{1, id("\u2581mill")}));
  EXPECT_EQ(tokenizer(true)->decode({1, id("\u2581mill")}, true), "mill");
  EXPECT_EQ(tokenizer(false)->decode({id("\u2581mill")}, true), " mill");
  EXPECT_EQ(tokenizer(true)->encode("mill</s>mill", false, true), (Ids{id("\u2581mill"), 2, id("\u2581mill")}));
}

TEST_F(GgufSentencepiece, CharactersWithoutATokenAreSpelledInBytes) {
  EXPECT_EQ(tokenizer(false)->encode("\u6c34\u00e9", false, false), (Ids{id("\u6c34"), id("<0xC3>"), id("<0xA9>")}));
  EXPECT_EQ(tokenizer(false)->decode({id("<0xC3>"), id("<0xA9>")}, true), "\u00e9");
  EXPECT_EQ(tokenizer(false)->token_bytes(id("<0xC3>"), true), "\xC3");
}

TEST_F(GgufSentencepiece, ControlTextNeverBecomesAControlToken) {
  add("<s", 1, -1);
  add("<", 1, -1);
  add("s", 1, -1);
  add(">", 1, -1);
  EXPECT_EQ(tokenizer(false)->encode("<s>", false, false), (Ids{id("<s"), id(">")}));
  EXPECT_EQ(tokenizer(false)->encode("<s>", false, true), Ids{1});
}

TEST_F(GgufSentencepiece, ScoresMustCoverTheVocabulary) {
  scores.pop_back();
  try {
    tokenizer(false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("tokenizer.ggml.scores"), std::string::npos) << error.what();
  }
}

std::string default_model() {
  if (const char* path = std::getenv("GRISTMILL_DEFAULT_MODEL")) return path;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string folder = cache != nullptr ? cache : std::string(home != nullptr ? home : "") + "/.cache";
  return folder + "/gristmill/SmolLM2-135M-Instruct.Q4_1.gguf";
}

// Ids that llama.cpp gives for these sentences.
TEST(GgufDefaultModel, EncodesAsTheReferenceDoes) {
  if (!std::filesystem::exists(default_model())) GTEST_SKIP() << "no default model at " << default_model();
  const auto tokenizer = make_gguf_tokenizer(weights::GgufFile::open(default_model()));
  const std::vector<std::pair<std::string, Ids>> cases = {
      {"The mill stands by the river, and its wheel turns all night.",
       {504, 1663, 6443, 411, 260, 4626, 28, 284, 624, 8656, 6497, 511, 3163, 30}},
      {"In 1987 it ground 1,250 sacks; by 2024 only 37.",
       {788, 216,  33, 41,  40,  39, 357, 2118, 216, 33,  28,  34, 37, 32,
        262, 2472, 43, 411, 216, 34, 32,  34,   36,  805, 216, 35, 39, 30}},
      {"I'm sure they'll say we've done it, haven't we?  IT'S fine.",
       {57, 5248, 2090, 502, 3060, 1643, 392, 3543, 2294, 357, 28, 8540, 982, 392, 47, 216, 9627, 23, 67, 4979, 30}},
      {"def grind(grain: list[int]) -> str:\n    return \"\".join(chr(g) for g in grain)  # flour\n",
       {1604, 27212, 24,    32700, 42, 1398, 75,  591, 2255, 4722, 871, 42,  472, 1003, 476, 2227,
        4849, 24,    23411, 24,    87, 25,   327, 310, 281,  8663, 25,  216, 907, 7367, 198}},
      {"for (int i = 0; i < n; ++i) {\n\t\tsum += a[i]*b[i];\n\t}\r\n",
       {1710, 365, 591,  2056, 446, 216, 32, 43,    2056, 2067, 304, 43,    1232, 27,  89,  25,  1662,
        3354, 197, 5422, 4519, 253, 75,  89, 19118, 82,   75,   89,  26695, 198,  197, 109, 2738}},
      {"   three spaces, a tab\tand\n\n\ntrailing blanks   ",
       {256, 1296, 5600, 28, 253, 10147, 197, 397, 1116, 198, 4861, 4966, 45843, 333}},
      {"水车磨面粉。粉ひき小屋は川のそばに。물레방아",
       {177,  125,  129,   42019, 116, 178,   113, 118,   45834, 112,  178, 127,   227, 19076, 178,  127,
        227,  7365, 127,   7365,  231, 26986, 233, 39310, 229,   7365, 124, 36149, 247, 26453, 7365, 247,
        7365, 125,  41152, 19076, 182, 122,   137, 182,   250,   226,  182, 125,   119, 183,   239,  222}},
      {"Мельница у реки; ο μύλος; طاحونة; चक्की",
       {155,   246,   42292, 19884, 44795, 32233, 6511,  216,   14714, 216,   36554, 13760,
        7872,  43,    5664,  140,   17820, 33241, 17162, 39346, 43,    14787, 132,   10805,
        44626, 23939, 18223, 43463, 43,    12335, 244,   38565, 16525, 38565, 37189}},
      {"Zwölf große Mühlräder drehen sich: façade, naïve, Ångström.",
       {74,  103, 7466, 46610, 11102, 34878, 85,    30919, 88,   18154, 9023, 1223, 25861, 795,
        262, 485, 42,   40852, 28,    15486, 46494, 28,    5549, 223,   863,  1321, 45682, 30}},
      {"\U0001F33E\u27A1\uFE0F\U0001F35E and \U0001F469\u200D\U0001F33E with \U0001F44D\U0001F3FD",
       {10813, 230, 139, 173,   248, 111, 31752, 10813, 231, 248, 284,   15107, 235,
        119,   321, 231, 10813, 230, 139, 351,   15107, 235, 231, 10813, 233,   138}},
      {"<|im_start|>user\nGrind!<|im_end|>\n<|im_start|>assistant\n",
       {1, 4093, 198, 27302, 526, 17, 2, 198, 1, 520, 9531, 198}},
      {"½ cup, x² + y² = ٣٤ and Ⅳ",
       {16738, 7118, 28, 1792, 19133, 1232, 329, 19133, 446, 216, 164, 113, 164, 114, 284, 216, 173, 223, 113}},
      {"e\u0301 a\u00a0b \u3000wide\u2028line", {85, 151, 219, 253, 15442, 82, 216, 12109, 218, 3641, 321, 118, 1311}},
      {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
       {46880, 46880, 46880, 46880, 46880, 46880, 46880, 46880, 46880, 46880, 46880, 46880, 46880, 46880, 46880,
        46880}},
      {"", {}},
  };
  for (const auto& [text, ids] : cases) {
    EXPECT_EQ(tokenizer->encode(text, true, true), ids) << text;
    EXPECT_EQ(tokenizer->decode(ids, false), text);
  }
  EXPECT_EQ(tokenizer->encode("<|im_end|>", false, false), (Ids{44, 108, 306, 79, 486, 108, 46}));
  EXPECT_EQ(tokenizer->decode({1, 4093, 198, 2}, true), "user\n");
  EXPECT_EQ(tokenizer->end_ids(), (Ids{2, 0}));
}

}  // namespace
}  // namespace gristmill::text
