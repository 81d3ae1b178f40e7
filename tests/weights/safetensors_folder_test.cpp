#include "weights/safetensors_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "weights/gguf_bytes.h"
#include "weights/safetensors_bytes.h"

namespace gristmill::weights {
namespace {

using gristmill::testing::error_of;
using gristmill::testing::SafetensorsBytes;
using gristmill::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string file_with(const std::vector<std::string>& names) {
  SafetensorsBytes file;
  for (const std::string& name : names) file.add(name, "F32", {2}, std::vector<float>{1, 2});
  return file.bytes();
}
std::string open_error(const TemporaryFolder& folder) {
  return error_of([&] { SafetensorsFolder::open(folder.path("")); });
}

TEST(SafetensorsFolder, OpensTheOnlyFile) {
  const TemporaryFolder folder;
  folder.write("weights.safetensors", file_with({"a", "b"}));
  const auto checkpoint = SafetensorsFolder::open(folder.path(""));
  EXPECT_THAT(checkpoint->names(), ElementsAre("a", "b"));
  EXPECT_TRUE(checkpoint->contains("a"));
  EXPECT_EQ(checkpoint->tensor("b").bytes.size(), 8u);
  EXPECT_THAT(error_of([&] { checkpoint->tensor("c"); }), AllOf(HasSubstr("\"c\""), HasSubstr("missing")));
  checkpoint->drop_pages(checkpoint->tensor("a").bytes);
}

TEST(SafetensorsFolder, PrefersModelAmongSeveralFiles) {
  const TemporaryFolder folder;
  folder.write("a.safetensors", file_with({"other"}));
  EXPECT_THAT(error_of([&] { SafetensorsFolder::open(folder.path("none")); }), HasSubstr("none"));
  folder.write("b.safetensors", file_with({"other"}));
  EXPECT_THAT(open_error(folder), HasSubstr("several *.safetensors"));
  folder.write("model.safetensors", file_with({"own"}));
  EXPECT_THAT(SafetensorsFolder::open(folder.path(""))->names(), ElementsAre("own"));
}

TEST(SafetensorsFolder, OpensTheShardsThatTheIndexLists) {
  const TemporaryFolder folder;
  folder.write("x-1.safetensors", file_with({"a", "c"}));
  folder.write("x-2.safetensors", file_with({"b"}));
  folder.write("x.safetensors.index.json",
               R"({"weight_map": {"a": "x-1.safetensors", "b": "x-2.safetensors", "c": "x-1.safetensors"}})");
  const auto checkpoint = SafetensorsFolder::open(folder.path(""));
  EXPECT_THAT(checkpoint->names(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(checkpoint->tensor("b").name, "b");
  checkpoint->drop_pages(checkpoint->tensor("b").bytes);
}

TEST(SafetensorsFolder, NamesWhatIndexAndFilesDisagreeOn) {
  const TemporaryFolder folder;
  const auto with_index = [&](const std::string& index) {
    folder.write("model.safetensors.index.json", index);
    return open_error(folder);
  };
  folder.write("one.safetensors", file_with({"a", "extra"}));
  EXPECT_THAT(with_index(R"({"weight_map": {"a": "one.safetensors", "gone": "one.safetensors"}})"),
              AllOf(HasSubstr("lack"), HasSubstr("\"gone\"")));
  EXPECT_THAT(with_index(R"({"weight_map": {"a": "one.safetensors"}})"),
              AllOf(HasSubstr("does not list"), HasSubstr("\"extra\"")));
  EXPECT_THAT(with_index(R"({"weight_map": {"a": "two.safetensors"}})"),
              HasSubstr("\"two.safetensors\", which is not"));
  for (const char* bad : {R"({"weight_map": {"a": "../one.safetensors"}})", R"({"weight_map": {"a": 1}})",
                          R"({"weight_map": {"a": ".."}})", R"({"weight_map": {"a": ""}})"})
    EXPECT_THAT(with_index(bad), AllOf(HasSubstr("\"a\""), HasSubstr("file of this folder"))) << bad;
  for (const char* bad : {"{}", R"({"weight_map": []})", "[]", R"({"weight_map": {}})"})
    EXPECT_THAT(with_index(bad), HasSubstr("weight_map")) << bad;
  EXPECT_THAT(with_index("{"), HasSubstr("model.safetensors.index.json"));
}

TEST(SafetensorsFolder, SaysThatThereAreNoWeights) {
  const TemporaryFolder folder;
  folder.write("pytorch_model.bin", "x");
  EXPECT_THAT(open_error(folder), HasSubstr("no *.safetensors"));
}

TEST(SafetensorsFolder, RefusesAFifoWithoutWaitingForIt) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.path("model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { SafetensorsFolder::open(folder.path("")); }),
              HasSubstr("model.safetensors: is not a regular file"));
}

TEST(SafetensorsFolder, NamesATruncatedShard) {
  const TemporaryFolder folder;
  const std::string whole = file_with({"a"});
  folder.write("one.safetensors", whole.substr(0, whole.size() - 1));
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "one.safetensors"}})");
  EXPECT_THAT(open_error(folder), AllOf(HasSubstr("one.safetensors"), HasSubstr("truncated")));
}

}  // namespace
}  // namespace gristmill::weights
