#include "text/text_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace gristmill::text {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TextModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / cat("text_model_test_", ::getpid());
    fs::create_directories(folder_);
    write("tokenizer.json", R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},
      "decoder":{"type":"ByteLevel"},"added_tokens":[{"id":3,"content":"<end>","special":true}],
      "model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}})");
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const char* name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  std::string failure() {
    try {
      load_text_model(folder_.string());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  fs::path folder_;
};

TEST_F(TextModelTest, EveryTokenNeedsARowOfTheEmbedding) {
  write("config.json", R"({"vocab_size": 4})");
  EXPECT_EQ(failure(), "");
  write("config.json", R"({"vocab_size": 640})");  // padded rows
  EXPECT_EQ(failure(), "");
  write("config.json", R"({"vocab_size": 3})");
  EXPECT_THAT(failure(), AllOf(HasSubstr("tokenizer.json: the vocabulary has 4 tokens, more than the 3 rows"),
                               HasSubstr("key \"vocab_size\" of"), HasSubstr("config.json")));
  write("config.json", R"({"vocab_size": 640, "text_config": {"vocab_size": 2}})");
  EXPECT_THAT(failure(), HasSubstr("more than the 2 rows"));
}

TEST_F(TextModelTest, EndIdsOfConfigAndGenerationConfigComeTogether) {
  write("config.json", R"({"vocab_size": 4, "eos_token_id": 3})");
  write("generation_config.json", R"({"eos_token_id": [1, 3]})");
  EXPECT_THAT(load_text_model(folder_.string()).end_ids, ElementsAre(1, 3));
}

TEST_F(TextModelTest, AFolderWithoutATokenizerIsRefusedByFile) {
  fs::remove(folder_ / "tokenizer.json");
  EXPECT_THAT(failure(), HasSubstr("tokenizer.json: missing or empty"));
}

TEST_F(TextModelTest, OnlyRegularFilesAreRead) {
  for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja"}) {
    ASSERT_EQ(::mkfifo((folder_ / name).c_str(), 0600), 0);
    EXPECT_THAT(failure(), AllOf(HasSubstr(name), HasSubstr("is not a regular file")));
    fs::remove(folder_ / name);
    fs::create_directory(folder_ / name);
    EXPECT_THAT(failure(), AllOf(HasSubstr(name), HasSubstr("is not a file but a folder")));
    fs::remove(folder_ / name);
    write(name, "");
    EXPECT_EQ(failure(), "") << name;
    fs::remove(folder_ / name);
  }
}

TEST_F(TextModelTest, AChatTemplateKnowsItsFile) {
  write("tokenizer_config.json", R"({"chat_template": "one"})");
  TextModel model = load_text_model(folder_.string());
  EXPECT_EQ(model.chat_template, "one");
  EXPECT_EQ(model.chat_template_origin, (folder_ / "tokenizer_config.json").string() + ": key \"chat_template\"");
  write("chat_template.jinja", "two");
  model = load_text_model(folder_.string());
  EXPECT_EQ(model.chat_template, "two");
  EXPECT_EQ(model.chat_template_origin, (folder_ / "chat_template.jinja").string());
}

}  // namespace
}  // namespace gristmill::text
