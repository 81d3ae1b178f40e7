#include "weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "weights/gguf_bytes.h"

namespace gristmill::weights {
namespace {

using gristmill::testing::error_of;
using gristmill::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string file_of(const std::string& header, size_t data) {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, sizeof length);
  bytes += header;
  for (size_t i = 0; i < data; ++i) bytes += static_cast<char>(i);
  return bytes;
}

std::string open_error(const TemporaryFolder& folder, const std::string& bytes) {
  const std::string path = folder.write("model.safetensors", bytes);
  const std::string error = error_of([&] { SafetensorsFile::open(path); });
  EXPECT_TRUE(error.empty() || error.find(path) != std::string::npos) << error;
  return error;
}

constexpr const char* kGood =
    R"( {"b" : {"dtype":"F32","shape":[1, 2],"data_offsets":[4,12]},"__metadata__":{"k\u00e9y":"a\n\ud83d\ude00"},)"
    R"("a":{"data_offsets":[0,4],"shape":[2],"dtype":"BF16"},"none":{"dtype":"I8","shape":[0,3],"data_offsets":[4,4]},)"
    R"("one":{"dtype":"U8","shape":[],"data_offsets":[12,13]}}   )";

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const TemporaryFolder folder;
  const auto file = SafetensorsFile::open(folder.write("model.safetensors", file_of(kGood, 13)));
  EXPECT_THAT(file->names(), ElementsAre("a", "b", "none", "one"));
  EXPECT_THAT(file->metadata(), ElementsAre(Pair("k\xc3\xa9y", "a\n\xf0\x9f\x98\x80")));
  const TensorView b = file->tensor("b");
  EXPECT_EQ(b.type, StorageType::f32);
  EXPECT_THAT(b.shape, ElementsAre(1, 2));
  ASSERT_EQ(b.bytes.size(), 8u);
  EXPECT_EQ(static_cast<int>(b.bytes[0]), 4);
  EXPECT_EQ(file->tensor("none").bytes.size(), 0u);
  EXPECT_EQ(file->tensor("one").columns(), 1);
  EXPECT_TRUE(file->contains("a"));
  EXPECT_FALSE(file->contains("c"));
  EXPECT_THAT(error_of([&] { file->tensor("c"); }), HasSubstr("\"c\""));
  file->drop_pages(b.bytes);
  EXPECT_EQ(static_cast<int>(b.bytes[7]), 11);
}

TEST(Safetensors, RefusesHeadersThatDoNotFit) {
  const TemporaryFolder folder;
  EXPECT_THAT(open_error(folder, "abc"), HasSubstr("too short"));
  EXPECT_THAT(open_error(folder, std::string(8, '\xff')), HasSubstr("does not fit"));
  EXPECT_THAT(open_error(folder, file_of("{}", 0).substr(0, 9)), HasSubstr("does not fit"));
  for (const char* header : {"", "[]", "{", "{}x", R"({"a")", R"({"a":1})", R"({"a":{"dtype":"F32"}})", R"({"a\q":{}})",
                             R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}})", R"({"\ud800":{}})",
                             R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":[]}})", "{\"a\n\":{}}",
                             R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})",
                             R"({"__metadata__":{"a":1}})", R"({"__metadata__":{},"__metadata__":{}})"})
    EXPECT_NE(open_error(folder, file_of(header, 0)), "") << header;
}

TEST(Safetensors, RefusesTensorsThatDoNotTileTheData) {
  const TemporaryFolder folder;
  const auto with = [&](const std::string& first, const std::string& second, size_t data) {
    return open_error(
        folder,
        file_of(R"({"a":{"dtype":"U8","shape":)" + first + R"(},"b":{"dtype":"U8","shape":)" + second + "}}", data));
  };
  EXPECT_EQ(with(R"([4],"data_offsets":[0,4])", R"([4],"data_offsets":[4,8])", 8), "");
  EXPECT_THAT(with(R"([4],"data_offsets":[0,4])", R"([4],"data_offsets":[5,9])", 9), HasSubstr("\"b\""));
  EXPECT_THAT(with(R"([4],"data_offsets":[0,4])", R"([4],"data_offsets":[3,7])", 7), HasSubstr("\"b\""));
  EXPECT_THAT(with(R"([4],"data_offsets":[0,4])", R"([4],"data_offsets":[4,8])", 7), HasSubstr("truncated"));
  EXPECT_THAT(with(R"([4],"data_offsets":[0,4])", R"([4],"data_offsets":[4,8])", 9), HasSubstr("belong to none"));
  EXPECT_THAT(with(R"([4],"data_offsets":[0,4])", R"([5],"data_offsets":[4,8])", 8), HasSubstr("shape asks for 5"));
  EXPECT_THAT(with(R"([4],"data_offsets":[4,0])", R"([4],"data_offsets":[4,8])", 8), HasSubstr("begin and an end"));
  EXPECT_THAT(with(R"([4294967296,4294967296],"data_offsets":[0,4])", R"([4],"data_offsets":[4,8])", 8),
              AllOf(HasSubstr("\"a\""), HasSubstr("out of range")));
  EXPECT_THAT(with(R"([0,4294967296,4294967296],"data_offsets":[0,0])", R"([4],"data_offsets":[0,4])", 4),
              HasSubstr("out of range"));
}

TEST(Safetensors, RefusesUnknownTypesAndDuplicates) {
  const TemporaryFolder folder;
  EXPECT_THAT(open_error(folder, file_of(R"({"a":{"dtype":"Q9","shape":[],"data_offsets":[0,4]}})", 4)),
              AllOf(HasSubstr("\"a\""), HasSubstr("\"Q9\" is not supported")));
  EXPECT_THAT(open_error(folder, file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                         R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                                         8)),
              HasSubstr("twice"));
}

TEST(Safetensors, RefusesEveryTruncation) {
  const TemporaryFolder folder;
  const std::string whole = file_of(kGood, 13);
  for (size_t length = 0; length < whole.size(); ++length)
    ASSERT_NE(open_error(folder, whole.substr(0, length)), "") << length;
}

}  // namespace
}  // namespace gristmill::weights
