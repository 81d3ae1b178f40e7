#include "text/tokenizer_hf.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "text/pretokenizer.h"

namespace gristmill::text {
namespace {

namespace json = boost::json;

const std::string published = GRISTMILL_SHARED_DATA "/tokenizers/";

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<int32_t> ids_of(const json::value& list) {
  std::vector<int32_t> ids;
  for (const auto& id : list.as_array()) ids.push_back(id.to_number<int32_t>());
  return ids;
}

class PublishedTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedTokenizer, EncodesAndDecodesAsTheReferenceDoes) {
  const std::string name = GetParam();
  std::ifstream cases(published + name + ".cases.jsonl");
  if (!cases) GTEST_SKIP() << "no published tokenizers at " << published;
  const auto tokenizer = make_hf_tokenizer(read_file(published + name + "/tokenizer.json"),
                                           read_file(published + name + "/tokenizer_config.json"));
  int count = 0;
  for (std::string line; std::getline(cases, line); ++count) {
    const json::object item = json::parse(line).as_object();
    const std::string text(item.at("text").as_string());
    const std::vector<int32_t> ids = ids_of(item.at("ids"));
    const std::vector<int32_t> with_special = ids_of(item.at("ids_with_special"));
    ASSERT_EQ(tokenizer->encode(text, false, true), ids) << name << " case " << count << ": " << text;
    ASSERT_EQ(tokenizer->encode(text, true, true), with_special) << name << " case " << count;
    ASSERT_EQ(tokenizer->decode(ids, false), std::string(item.at("decoded").as_string())) << name << " case " << count;
    ASSERT_EQ(tokenizer->decode(ids, true), std::string(item.at("decoded_skip_special").as_string()))
        << name << " case " << count;
  }
  EXPECT_GE(count, 200);
}

INSTANTIATE_TEST_SUITE_P(All, PublishedTokenizer,
                         ::testing::Values("deepseek_v3", "gemma3", "gptoss", "llama3_1", "qwen3"),
                         [](const auto& name) { return std::string(name.param); });

// The patterns kept for GGUF files cut like those in the published files.
TEST(KnownPretokenizers, CutAsThePublishedPatternsDo) {
  for (const auto& [name, known_as] :
       {std::pair("deepseek_v3", "deepseek-v3"), {"gptoss", "gpt-4o"}, {"llama3_1", "llama-bpe"}, {"qwen3", "qwen2"}}) {
    const std::string folder = published + name;
    std::ifstream cases(folder + ".cases.jsonl");
    if (!cases) GTEST_SKIP() << "no published tokenizers at " << published;
    const json::value document = json::parse(read_file(folder + "/tokenizer.json"));
    std::vector<SplitStep> theirs, ours;
    for (const auto& step : document.at("pre_tokenizer").at("pretokenizers").as_array()) {
      if (step.at("type") != "Split") continue;
      const std::string pattern(step.at("pattern").at("Regex").as_string());
      theirs.push_back({Regex(pattern), SplitBehavior::isolated, false});
    }
    for (const std::string& pattern : known_pretokenizer(known_as).patterns) {
      ours.push_back({Regex(pattern), SplitBehavior::isolated, false});
    }
    const Pretokenizer expected(std::move(theirs)), found(std::move(ours));
    for (std::string line; std::getline(cases, line);) {
      const json::value item = json::parse(line);
      const std::string text(item.at("text").as_string());
      std::vector<std::string> a, b;
      expected.split(text, [&](std::string_view word) { a.emplace_back(word); });
      found.split(text, [&](std::string_view word) { b.emplace_back(word); });
      ASSERT_EQ(a, b) << name << ": " << text;
    }
  }
}

// A tokenizer.json of ten letters, a few merges and added tokens with every flag.
std::string small_json(const std::string& normalizer = "null", const std::string& extra_model = "") {
  return R"({"normalizer":)" + normalizer + R"(,
    "pre_tokenizer":{"type":"Sequence","pretokenizers":[
      {"type":"Digits","individual_digits":true},
      {"type":"ByteLevel","add_prefix_space":false,"use_regex":true}]},
    "decoder":{"type":"ByteLevel"},
    "post_processor":{"type":"TemplateProcessing",
      "single":[{"SpecialToken":{"id":"[BOS]"}},{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"[EOS]"}}],
      "special_tokens":{"[BOS]":{"ids":[12]},"[EOS]":{"ids":[13]}}},
    "added_tokens":[
      {"id":12,"content":"[BOS]","special":true},{"id":13,"content":"[EOS]","special":true},
      {"id":14,"content":"[MASK]","special":true,"lstrip":true},
      {"id":16,"content":"mid","special":false,"single_word":true,"normalized":false}],
    "model":{"type":"BPE",)" +
         extra_model + R"(
      "vocab":{"m":0,"i":1,"l":2,"d":3,"Ġ":4,"1":5,"9":6,"ll":7,"mi":8,"mill":9,"Ġmill":10,"19":11},
      "merges":["l l",["m","i"],"mi ll","Ġ mill","1 9"]}})";
}

TEST(HfTokenizer, ReadsMergesOfBothFormsAndPutsSpecialTokensAround) {
  const auto tokenizer = make_hf_tokenizer(small_json(), R"({"bos_token":"[BOS]","eos_token":{"content":"[EOS]"}})");
  EXPECT_EQ(tokenizer->encode("mill mill 19", true, true), (std::vector<int32_t>{12, 9, 10, 4, 5, 6, 13}));
  EXPECT_EQ(tokenizer->decode({12, 9, 10, 13}, true), "mill mill");
  EXPECT_EQ(tokenizer->decode({12, 9, 15, 10, 13}, false), "[BOS]mill mill[EOS]") << "15 is a gap";
  EXPECT_EQ(tokenizer->bos(), 12);
  EXPECT_EQ(tokenizer->eos(), 13);
  EXPECT_EQ(tokenizer->vocabulary(), 17);
}

TEST(HfTokenizer, AddedTokensKeepTheirFlags) {
  const auto tokenizer = make_hf_tokenizer(small_json(), "");
  EXPECT_EQ(tokenizer->encode("mill  [MASK]", false, true), (std::vector<int32_t>{9, 14}));
  EXPECT_EQ(tokenizer->encode("mid", false, false), (std::vector<int32_t>{16}));
  EXPECT_EQ(tokenizer->encode("midi", false, false), (std::vector<int32_t>{8, 3, 1}));
  EXPECT_EQ(tokenizer->encode("[EOS]", false, false), std::vector<int32_t>{}) << "no letter of it is in the vocabulary";
  EXPECT_EQ(tokenizer->encode("[EOS]", false, true), std::vector<int32_t>{13});
}

TEST(HfTokenizer, ABeginningTokenIsAddedOnceWhereAskedAndNeverGuessedAway) {
  const auto tokenizer = make_hf_tokenizer(small_json(), R"({"bos_token":"[BOS]","eos_token":"[EOS]"})");
  // A rendered chat brings its own, and is encoded without adding any.
  EXPECT_EQ(tokenizer->encode("[BOS]mill", false, true), (std::vector<int32_t>{12, 9}));
  EXPECT_EQ(tokenizer->encode("mill", true, true), (std::vector<int32_t>{12, 9, 13}));
  // A prompt that already has it gets another one, as transformers does.
  EXPECT_EQ(tokenizer->encode("[BOS]mill", true, true), (std::vector<int32_t>{12, 12, 9, 13}));
}

TEST(HfTokenizer, ControlTokensInATextAreTakenOnlyWhereTheyAreParsed) {
  const auto tokenizer = make_hf_tokenizer(small_json(), "");
  EXPECT_EQ(tokenizer->encode("mill[EOS]mill", false, true), (std::vector<int32_t>{9, 13, 9}));
  // The safe way leaves the token's letters as text; those of it that are in no word fall away here.
  EXPECT_EQ(tokenizer->encode("mill[EOS]mill", false, false), (std::vector<int32_t>{9, 9}));
  EXPECT_EQ(tokenizer->encode("mill 19", false, true), tokenizer->encode("mill 19", false, false));
}

std::unique_ptr<Tokenizer> metaspace_tokenizer(const std::string& scheme, const std::string& decoder) {
  std::string vocabulary =
      R"("<unk>":0,"<s>":1,"</s>":2,"▁":3,"a":4,"b":5,"c":6,"▁a":7,"▁ab":8,"ab":9,"▁▁":10,"bc":11)";
  for (int byte = 0; byte < 256; ++byte) {
    char name[16];
    std::snprintf(name, sizeof name, ",\"<0x%02X>\":", static_cast<unsigned>(byte));
    vocabulary += name + std::to_string(12 + byte);
  }
  return make_hf_tokenizer(
      R"({"pre_tokenizer":{"type":"Metaspace","replacement":"▁",)" + scheme + R"(},"decoder":)" + decoder +
          R"(,"added_tokens":[{"id":1,"content":"<s>","special":true},{"id":2,"content":"</s>","special":true}],
          "model":{"type":"BPE","unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,
          "merges":["▁ a","a b","▁ ab","▁ ▁","b c"],"vocab":{)" +
          vocabulary + "}}}",
      "");
}

// Ids and texts are those of the `tokenizers` library.
TEST(HfTokenizer, MetaspaceWritesSpacesAndPutsOneInFront) {
  const std::string decoder = R"({"type":"Sequence","decoders":[
      {"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},
      {"type":"Strip","content":" ","start":1,"stop":0}]})";
  struct Case {
    const char* text;
    std::vector<int32_t> always, first, never;
  };
  const Case cases[] = {{"ab", {7, 5}, {7, 5}, {9}},
                        {" ab", {7, 5}, {7, 5}, {7, 5}},
                        {"  ab a", {3, 7, 5, 7}, {3, 7, 5, 7}, {3, 7, 5, 7}},
                        {"ab</s>ab", {7, 5, 2, 7, 5}, {7, 5, 2, 9}, {9, 2, 9}},
                        {"<s>ab c", {1, 7, 5, 3, 6}, {1, 9, 3, 6}, {1, 9, 3, 6}},
                        {" ", {3}, {3}, {3}},
                        {"a  bé", {7, 10, 5, 207, 181}, {7, 10, 5, 207, 181}, {4, 10, 5, 207, 181}},
                        {"▁ab", {7, 5}, {7, 5}, {7, 5}},
                        {"</s> ab", {2, 7, 5}, {2, 7, 5}, {2, 7, 5}}};
  const auto always = metaspace_tokenizer(R"("prepend_scheme":"always","split":false)", decoder);
  const auto first = metaspace_tokenizer(R"("prepend_scheme":"first","split":false)", decoder);
  const auto never = metaspace_tokenizer(R"("prepend_scheme":"never","split":false)", decoder);
  for (const Case& each : cases) {
    EXPECT_EQ(always->encode(each.text, false, true), each.always) << each.text;
    EXPECT_EQ(first->encode(each.text, false, true), each.first) << each.text;
    EXPECT_EQ(never->encode(each.text, false, true), each.never) << each.text;
  }
  const auto split = metaspace_tokenizer(R"("add_prefix_space":true)", decoder);  // no merge crosses a word
  EXPECT_EQ(split->encode("a  bé", false, true), (std::vector<int32_t>{7, 3, 3, 5, 207, 181}));
  EXPECT_EQ(split->decode({3, 7, 5, 7}, false), " ab a");
  EXPECT_EQ(first->decode({7, 5, 2, 9}, false), "ab</s>ab");
  const auto own = metaspace_tokenizer(R"("prepend_scheme":"never")",
                                       R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"never"})");
  EXPECT_EQ(own->decode({7, 5}, false), " ab");
}

TEST(HfTokenizer, ControlTokensInGuardedTextAreText) {
  const auto tokenizer = make_hf_tokenizer(small_json(), "");
  for (const char* text : {"mill", "mill [MASK", "mid", "[", "\ufdd0", "19\ufdd0\ufdd0[EOS]\ufdd0"}) {
    const std::vector<int32_t> plain = tokenizer->encode(text, false, false);
    EXPECT_EQ(tokenizer->encode_guarded(tokenizer->guarded(text), false), plain) << text;
  }
  // mid is no control token: it is found wherever it stands.
  EXPECT_EQ(tokenizer->encode_guarded("[BOS]" + tokenizer->guarded("mill[EOS]mid") + "[EOS]", true),
            (std::vector<int32_t>{12, 12, 9, 16, 13, 13}));
  EXPECT_EQ(tokenizer->encode_guarded("[BOS]mill[EOS]", false), (std::vector<int32_t>{12, 9, 13}));
  EXPECT_EQ(tokenizer->guarded("mill 19"), "mill 19");
}

TEST(HfTokenizer, EdgesBesideAddedTokensAndAtBothEnds) {
  const auto tokenizer = make_hf_tokenizer(small_json(), "");
  const auto encode = [&](const std::string& text) { return tokenizer->encode(text, false, true); };
  EXPECT_EQ(encode(""), std::vector<int32_t>{});
  EXPECT_EQ(encode("[EOS]"), std::vector<int32_t>{13});
  EXPECT_EQ(encode("[EOS] mill"), (std::vector<int32_t>{13, 10}));  // the space stays with its word
  EXPECT_EQ(encode(" [EOS]"), (std::vector<int32_t>{4, 13}));
  EXPECT_EQ(encode("[EOS][EOS]"), (std::vector<int32_t>{13, 13}));
  EXPECT_EQ(encode(" [MASK] mill"), (std::vector<int32_t>{14, 10}));  // lstrip takes what is before it only
  EXPECT_EQ(encode("1919"), (std::vector<int32_t>{5, 6, 5, 6}));      // digits one by one
  EXPECT_EQ(encode(std::string(100000, 'l')), std::vector<int32_t>(50000, 7));
}

TEST(HfTokenizer, NormalizersRunBeforeWordsAreCut) {
  const auto tokenizer = make_hf_tokenizer(
      small_json(R"({"type":"Sequence","normalizers":[{"type":"Replace","pattern":{"String":"x"},"content":"l"}]})"),
      "");
  EXPECT_EQ(tokenizer->encode("mixx", false, true), std::vector<int32_t>{9});
}

TEST(HfTokenizer, FaultsNameTheEntry) {
  const auto failure = [](const std::string& text) -> std::string {
    try {
      make_hf_tokenizer(text, "");
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const auto replaced = [](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  const auto expect = [&](const std::string& text, const std::string& part) {
    const std::string message = failure(text);
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << message;
  };
  expect("{", "not valid JSON");
  expect("[]", "not a JSON object");
  expect("{}", "model: missing");
  expect(replaced(small_json(), R"("BPE")", R"("WordPiece")"), "model.type");
  expect(replaced(small_json(), R"("mi ll")", R"("mi xx")"), "model.merges[2]");
  expect(replaced(small_json(), R"("m":0)", R"("m":-1)"), R"(model.vocab: token "m": "-1" is not a token id)");
  expect(replaced(small_json(), R"("m":0)", R"("m":999999999)"),
         R"(model.vocab: token "m": token id 999999999 is out)");
  expect(replaced(small_json(), R"("m":0)", R"("m":1)"), R"(model.vocab: tokens "m" and "i" both have id 1)");
  expect(replaced(small_json(), R"({"id":13,)", R"({"id":12,)"),
         R"(added_tokens: tokens "[BOS]" and "[EOS]" both have)");
  expect(replaced(small_json(), R"({"id":14,)", R"({"id":9,)"),
         R"(added_tokens: tokens "mill" and "[MASK]" both have)");
  expect(replaced(small_json(), R"("individual_digits":true)", R"("individual_digits":3)"),
         "pre_tokenizer.pretokenizers[0].individual_digits");
  expect(replaced(small_json(), R"("ids":[13])", R"("ids":[99])"), "id 99 is no token");
  expect(small_json(R"({"type":"Lowercase"})"), "normalizer.type");
  expect(small_json("null", R"("continuing_subword_prefix":"##",)"), "model.continuing_subword_prefix");
}

}  // namespace
}  // namespace gristmill::text
