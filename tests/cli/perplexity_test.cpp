#include "cli/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "cli/eval.h"
#include "weights/gguf_bytes.h"
#include "weights/safetensors.h"

namespace gristmill::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// A tokenizer of bytes, as far as scoring needs one.
class ByteTokenizer final : public text::Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, bool, bool) const override { return {text.begin(), text.end()}; }
  std::string_view token_bytes(int32_t, bool) const override { return ""; }
  std::string decode(const std::vector<int32_t>&, bool) const override { return ""; }
  int32_t vocabulary() const override { return 256; }
  int32_t bos() const override { return -1; }
  int32_t eos() const override { return -1; }
  const std::vector<int32_t>& end_ids() const override { return none_; }
  std::string_view token_text(int32_t) const override { return ""; }
  bool is_special(int32_t) const override { return false; }
  int32_t longest_token() const override { return 1; }

 private:
  std::vector<int32_t> none_;
};

class PerplexityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / cat("perplexity_test_", ::getpid());
    fs::create_directories(folder_);
    model_.tokenizer = std::make_shared<ByteTokenizer>();
    model_.chat_template =
        "{% for m in messages %}<{{ m.content }}>{% endfor %}{% if add_generation_prompt %}!{% endif %}";
  }
  void TearDown() override { fs::remove_all(folder_); }

  PerplexityOptions options(const std::string& name, const std::string& contents) {
    PerplexityOptions made;
    made.file = (folder_ / name).string();
    std::ofstream(made.file) << contents;
    return made;
  }
  std::vector<std::string> texts(const PerplexityOptions& given) {
    std::vector<std::string> all;
    for (const auto& sequence : read_scored_text(given, model_).sequences)
      all.emplace_back(sequence.begin(), sequence.end());
    return all;
  }
  std::string failure(const PerplexityOptions& given) {
    try {
      read_scored_text(given, model_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;
  text::TextModel model_;
};

TEST_F(PerplexityTest, TextIsCutIntoWindowsThatDoNotOverlap) {
  PerplexityOptions given = options("a.txt", "abcdefgh");
  given.context = 3;
  EXPECT_EQ(texts(given), (std::vector<std::string>{"abc", "def", "gh"}));
  const ScoredText text = read_scored_text(given, model_);
  EXPECT_EQ(text.tokens, 8);
  EXPECT_EQ(text.longest, 3);
  EXPECT_THAT(text.method, HasSubstr("windows of 3 tokens"));
}

TEST_F(PerplexityTest, AWindowOfOneTokenIsLeftOut) {
  PerplexityOptions given = options("a.txt", "abcdefg");
  given.context = 3;
  EXPECT_EQ(texts(given), (std::vector<std::string>{"abc", "def"}));
  EXPECT_EQ(read_scored_text(given, model_).tokens, 6);
}

TEST_F(PerplexityTest, MaxTokensEndsTheText) {
  PerplexityOptions given = options("a.txt", "abcdefgh");
  given.context = 3;
  given.max_tokens = 5;
  EXPECT_EQ(texts(given), (std::vector<std::string>{"abc", "de"}));
}

TEST_F(PerplexityTest, ChatsAreRenderedWithoutAGenerationPromptAndScoredWhole) {
  const std::string lines =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"one\"}, {\"role\": \"assistant\", \"content\": \"1\"}]}\n"
      "\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"two\"}], \"tools\": null}\n";
  PerplexityOptions given = options("a.jsonl", lines);
  EXPECT_EQ(texts(given), (std::vector<std::string>{"<one><1>", "<two>"}));
  given.context = 4;
  EXPECT_EQ(texts(given), (std::vector<std::string>{"<one", "><1>", "<two"}));
  given.context = 0;
  given.max_tokens = 10;
  EXPECT_EQ(texts(given), (std::vector<std::string>{"<one><1>", "<t"}));
}

TEST_F(PerplexityTest, FaultsNameFileAndLine) {
  EXPECT_THAT(failure(options("a.jsonl", "{\"messages\": []}\n{oops\n")), HasSubstr("a.jsonl, line 2: is not JSON"));
  EXPECT_THAT(failure(options("a.jsonl", "{\"text\": 1}\n")),
              HasSubstr("a.jsonl, line 1: must be an object with an array"));
  EXPECT_THAT(failure(options("a.txt", "x")), HasSubstr("a.txt: holds fewer than two tokens"));
  PerplexityOptions absent;
  absent.file = (folder_ / "absent.txt").string();
  EXPECT_THAT(failure(absent), HasSubstr("absent.txt: cannot be opened"));
}

TEST_F(PerplexityTest, ScoreIsTheLikelihoodThatTheLogitsSay) {
  // The logits are transformers' (tests/golden/make_hf_families.py); the likelihood is worked out of them here.
  const std::string folder = GRISTMILL_TEST_DIR "/golden/hf/qwen3_5_moe";
  const auto golden = weights::SafetensorsFile::open(folder + "/golden.safetensors");
  ScoredText text;
  double nll = 0;
  int64_t likeliest = 0;
  for (const char* prompt : {"p5", "p40"}) {
    const TensorView ids = golden->tensor(cat(prompt, ".input_ids")), logits = golden->tensor(cat(prompt, ".logits"));
    std::vector<int32_t> tokens(static_cast<size_t>(ids.shape[0]));
    std::memcpy(tokens.data(), ids.bytes.data(), ids.bytes.size());
    const auto vocabulary = static_cast<size_t>(logits.shape[1]);
    std::vector<float> row(vocabulary);
    for (size_t t = 0; t + 1 < tokens.size(); ++t) {
      std::memcpy(row.data(), logits.bytes.data() + t * vocabulary * sizeof(float), vocabulary * sizeof(float));
      double sum = 0;
      for (const float logit : row) sum += std::exp(static_cast<double>(logit));
      const auto next = static_cast<size_t>(tokens[t + 1]);
      nll += std::log(sum) - static_cast<double>(row[next]);
      likeliest += std::max_element(row.begin(), row.end()) == row.begin() + static_cast<std::ptrdiff_t>(next) ? 1 : 0;
    }
    text.tokens += static_cast<int64_t>(tokens.size());
    text.longest = std::max(text.longest, static_cast<int32_t>(tokens.size()));
    text.sequences.push_back(std::move(tokens));
  }
  PerplexityOptions given;
  given.engine.model = folder;
  given.engine.float32 = true;
  given.engine.cache_dtype = DType::f32;
  given.engine.threads = 2;
  const Perplexity result = score(given, text);
  EXPECT_EQ(result.scored, 43);
  EXPECT_NEAR(result.nll, nll, 1e-3);
  EXPECT_EQ(result.likeliest, likeliest);
  EXPECT_NEAR(result.value(), std::exp(nll / 43), 1e-3);
}

TEST_F(PerplexityTest, OutputsThatAreNotFiniteAreNoScore) {
  const std::string damaged = (folder_ / "damaged").string();
  fs::copy(GRISTMILL_TEST_DIR "/golden/hf/llama", damaged);
  gristmill::testing::fill_with_nan(damaged + "/model.safetensors");
  ScoredText text;
  text.sequences = {{1, 2, 3, 4}, {5, 6}};
  text.tokens = 6;
  text.longest = 4;
  PerplexityOptions given;
  given.engine.model = damaged;
  given.engine.threads = 2;
  for (const bool exact : {false, true}) {
    given.engine.float32 = exact;
    given.engine.cache_dtype = exact ? DType::f32 : DType::bf16;
    EXPECT_THAT(gristmill::testing::error_of([&] { score(given, text); }),
                ::testing::AllOf(HasSubstr(damaged), HasSubstr("are not finite")));
  }
}

TEST_F(PerplexityTest, AFolderIsNoText) {
  PerplexityOptions given;
  given.file = folder_.string();
  EXPECT_THAT(failure(given), ::testing::AllOf(HasSubstr(folder_.string()), HasSubstr("is not a file but a folder")));
  const std::string chats = (folder_ / "folder.jsonl").string();
  fs::create_directory(chats);
  given.file = chats;
  EXPECT_THAT(failure(given), ::testing::AllOf(HasSubstr(chats), HasSubstr("is not a file but a folder")));
}

TEST_F(PerplexityTest, WindowsBeyondTheModelsContextAreRefusedByFlag) {
  ScoredText text;
  text.sequences = {std::vector<int32_t>(600, 1)};
  text.tokens = text.longest = 600;
  PerplexityOptions given;
  given.engine.model = GRISTMILL_TEST_DIR "/golden/hf/llama";  // a context of 512
  try {
    score(given, text);
    FAIL() << "was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--context 511 or less"));
  }
}

TEST(EvalCommandTest, WrongCommandLinesEndWithStatus2) {
  EXPECT_EQ(eval({}), 2);
  EXPECT_EQ(eval({"perplexity", "model"}), 2);
  EXPECT_EQ(eval({"perplexity", "model", "file", "--context", "1"}), 2);
  EXPECT_EQ(eval({"perplexity", "model", "file", "--dtype", "int3"}), 2);
}

}  // namespace
}  // namespace gristmill::cli
