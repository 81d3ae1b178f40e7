#include "cli/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "weights/gguf_bytes.h"

namespace gristmill::cli {
namespace {

using gristmill::testing::error_of;
using gristmill::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

const char* const kSource = GRISTMILL_TEST_DIR "/golden/hf/llama";

TEST(QuantizeCommand, WritesAFolderAndRefusesToWriteItAgain) {
  const TemporaryFolder parent;
  const std::string target = parent.path("out");
  EXPECT_EQ(quantize({kSource, target, "--scheme", "w8a8", "--threads", "2", "--json"}), 0);
  EXPECT_TRUE(std::filesystem::exists(target + "/quant_model_description.json"));
  EXPECT_TRUE(std::filesystem::exists(target + "/quant_model_weights-00001-of-00001.safetensors"));
  EXPECT_THAT(error_of([&] { quantize({kSource, target, "--scheme", "w8a8"}); }), HasSubstr("exists already"));
}

TEST(QuantizeCommand, CalibrationGoesWithTheStaticSchemeOnly) {
  const TemporaryFolder parent;
  EXPECT_THAT(error_of([&] { quantize({kSource, parent.path("out"), "--scheme", "w8a8-static"}); }),
              AllOf(HasSubstr("w8a8-static"), HasSubstr("--calibration FILE")));
  EXPECT_THAT(error_of([&] { quantize({kSource, parent.path("out"), "--scheme", "w4a8", "--calibration", "x.txt"}); }),
              HasSubstr("w4a8 needs none"));
  EXPECT_FALSE(std::filesystem::exists(parent.path("out")));
}

TEST(QuantizeCommand, FilesThatItWillReadAreCheckedBeforeTheWork) {
  const TemporaryFolder parent;
  const std::string target = parent.path("out"), absent = parent.path("absent.txt");
  EXPECT_THAT(error_of([&] { quantize({kSource, target, "--scheme", "w8a8", "--evaluate", absent}); }),
              HasSubstr(absent + ": cannot be opened"));
  EXPECT_THAT(error_of([&] { quantize({kSource, target, "--scheme", "w8a8", "--evaluate", parent.path("")}); }),
              AllOf(HasSubstr(parent.path("")), HasSubstr("is not a file but a folder")));
  EXPECT_THAT(error_of([&] { quantize({kSource, target, "--scheme", "w8a8-static", "--calibration", absent}); }),
              HasSubstr(absent + ": cannot be opened"));
  EXPECT_FALSE(std::filesystem::exists(target));
}

TEST(QuantizeCommand, AnEmptyNameIsRefusedAndSlashesBehindItAreNot) {
  const TemporaryFolder parent;
  EXPECT_THAT(error_of([] { quantize({kSource, "", "--scheme", "w8a8"}); }), HasSubstr("empty name"));
  EXPECT_EQ(quantize({kSource, parent.path("out/"), "--scheme", "w8a8", "--threads", "2", "--json"}), 0);
  EXPECT_TRUE(std::filesystem::exists(parent.path("out/config.json")));
}

TEST(QuantizeCommand, ShardsHaveAByteOrMore) {
  for (const char* const size : {"0", "-1", "-4k", "99999999999999999999"})
    EXPECT_EQ(quantize({kSource, "x", "--scheme", "w8a8", "--shard-bytes", size}), 2) << size;
}

TEST(QuantizeCommand, WrongCommandLinesEndWithStatus2) {
  EXPECT_EQ(quantize({kSource}), 2);
  EXPECT_EQ(quantize({kSource, "x", "--scheme", "int3"}), 2);
  EXPECT_EQ(quantize({kSource, "x", "--scheme", "w8a8", "--recipe", "mine"}), 2);
}

}  // namespace
}  // namespace gristmill::cli
