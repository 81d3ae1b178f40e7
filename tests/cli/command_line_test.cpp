#include "cli/command_line.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace gristmill::cli {
namespace {

namespace fs = std::filesystem;

std::string refusal(const std::string& path) {
  try {
    check_model_path(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class ModelPath : public ::testing::Test {
 protected:
  ModelPath() : folder_(fs::path(::testing::TempDir()) / ("model_path_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~ModelPath() override { fs::remove_all(folder_); }
  void write(const std::string& name) const { std::ofstream(folder_ / name) << "x"; }

  fs::path folder_;
};

TEST_F(ModelPath, TheNameOfARepositoryIsNotDownloaded) {
  EXPECT_NE(refusal("HuggingFaceTB/SmolLM2-135M-Instruct").find("models are not downloaded from a hub"),
            std::string::npos);
  EXPECT_EQ(refusal("/nowhere/model.gguf"),
            "/nowhere/model.gguf: no such file or folder; a model is a GGUF file or a Hugging Face folder");
}

TEST_F(ModelPath, AFolderThatIsNoModelIsNamedBeforeItsMissingTokenizer) {
  EXPECT_NE(refusal(folder_).find("a folder without config.json, which is no model"), std::string::npos);
  write("some.gguf");
  EXPECT_NE(refusal(folder_).find("to serve some.gguf in it, give that file's path"), std::string::npos);
  EXPECT_EQ(refusal(folder_ / "some.gguf"), "");
  write("config.json");
  EXPECT_EQ(refusal(folder_), "");
}

TEST(CommandLine, HelpShowsSwitchesAndListsAsTheyAreWritten) {
  CLI::App command("", "gristmill test");
  std::vector<std::string> names;
  std::string number;
  command.add_flag_function("--on{1},!--no-on", [](int64_t) {}, "a switch")->option_text("--[no-]on");
  command.add_option("--name", names, "a list")->type_name("NAME");
  command.add_option("--number", number, "a number")->type_name("N");
  set_help_format(command);
  const std::string help = command.help();
  EXPECT_NE(help.find("  --[no-]on   "), std::string::npos) << help;
  EXPECT_NE(help.find("  --name NAME ...   "), std::string::npos) << help;
  EXPECT_NE(help.find("  --number N   "), std::string::npos) << help;
}

TEST(CommandLine, ErrorsAreOneLineWithTheCommandsNameAndStatusTwo) {
  CLI::App command("", "gristmill test");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(parse_words(command, {"a", "b"}), 2);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "gristmill test: error: unrecognized arguments: a b\nSee gristmill test --help\n");
}

}  // namespace
}  // namespace gristmill::cli
