#include "weights/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>

#include "weights/gguf_bytes.h"
#include "weights/gguf_parse.h"

namespace gristmill::weights {
namespace {

using gristmill::testing::error_of;
using gristmill::testing::GgufBytes;
using gristmill::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// One key of each type and tensors of several, all as they should be.
GgufBytes good_file() {
  GgufBytes b;
  b.header(3, 12);
  b.string_key("general.architecture", "llama");
  b.key<uint8_t>("n.u8", 0, 200).key<int8_t>("n.i8", 1, -3).key<uint16_t>("n.u16", 2, 60000);
  b.key<int32_t>("n.i32", 5, -70000).key<uint64_t>("n.u64", 10, uint64_t{1} << 40).key<int64_t>("n.i64", 11, -5);
  b.key<float>("n.f32", 6, 0.1f).key<double>("n.f64", 12, -1e300).key<uint8_t>("n.bool", 7, 1);
  b.array_key("a.strings", 8, 3).text("").text("a").text("\xc4\xa0the");
  b.array_key("a.numbers", 5, 2).put<int32_t>(1).put<int32_t>(-2);
  b.tensor("a.weight", {64, 2}, 3, 0).tensor("b.bias", {5}, 0, 96).tensor("c", {32, 2, 3}, 8, 128);
  return b.data(128 + 204);
}

std::string open_error(const TemporaryFolder& folder, const GgufBytes& file) {
  const std::string path = folder.write("model.gguf", file.bytes);
  const std::string error = error_of([&] { GgufFile::open(path); });
  if (!error.empty()) {
    EXPECT_THAT(error, HasSubstr(path));
    EXPECT_THAT(error, ::testing::Not(HasSubstr("\n")));
  }
  return error;
}

TEST(Gguf, ReadsKeysOfEveryType) {
  const TemporaryFolder folder;
  const auto file = GgufFile::open(folder.write("model.gguf", good_file().bytes));
  EXPECT_EQ(file->string("general.architecture"), "llama");
  EXPECT_EQ(file->integer("n.u8"), 200);
  EXPECT_EQ(file->integer("n.i8"), -3);
  EXPECT_EQ(file->integer("n.u16"), 60000);
  EXPECT_EQ(file->integer("n.i32"), -70000);
  EXPECT_EQ(file->integer("n.u64"), int64_t{1} << 40);
  EXPECT_EQ(file->integer("n.i64"), -5);
  EXPECT_EQ(file->integer("n.bool"), 1);
  EXPECT_EQ(file->number("n.f32"), static_cast<double>(0.1f));
  EXPECT_EQ(file->number("n.f64"), -1e300);
  EXPECT_EQ(file->number("n.i8"), -3);
  EXPECT_TRUE(file->boolean("n.bool"));
  EXPECT_THAT(file->strings("a.strings"), ElementsAre("", "a", "\xc4\xa0the"));
  EXPECT_THAT(file->integers("a.numbers"), ElementsAre(1, -2));
  EXPECT_THAT(file->numbers("a.numbers"), ElementsAre(1.0f, -2.0f));
  EXPECT_TRUE(file->is_array("a.numbers"));
  EXPECT_FALSE(file->is_array("n.u8"));
  EXPECT_TRUE(file->has("n.u8"));
  EXPECT_FALSE(file->has("n.u9"));
  EXPECT_EQ(file->integer("absent", 7), 7);
  EXPECT_EQ(file->number("absent", 0.5), 0.5);
  EXPECT_FALSE(file->boolean("absent", false));
  EXPECT_EQ(file->string("absent", "x"), "x");
}

TEST(Gguf, NamesTheKeyThatIsMissingOrOfAnotherType) {
  const TemporaryFolder folder;
  const auto file = GgufFile::open(folder.write("model.gguf", good_file().bytes));
  EXPECT_THAT(error_of([&] { file->integer("absent"); }), AllOf(HasSubstr("\"absent\""), HasSubstr("missing")));
  EXPECT_THAT(error_of([&] { file->integer("n.f32"); }), AllOf(HasSubstr("\"n.f32\""), HasSubstr("f32")));
  EXPECT_THAT(error_of([&] { file->integer("a.numbers"); }), HasSubstr("array of i32"));
  EXPECT_THAT(error_of([&] { file->number("general.architecture"); }), HasSubstr("string"));
  EXPECT_THAT(error_of([&] { file->boolean("n.u8"); }), HasSubstr("not a bool"));
  EXPECT_THAT(error_of([&] { file->string("n.u8"); }), HasSubstr("not a string"));
  EXPECT_THAT(error_of([&] { file->strings("a.numbers"); }), HasSubstr("not of strings"));
  EXPECT_THAT(error_of([&] { file->integers("a.strings"); }), HasSubstr("not of integers"));
  EXPECT_THAT(error_of([&] { file->numbers("n.f32"); }), HasSubstr("not an array"));
}

TEST(Gguf, RefusesIntegersThatDoNotFit) {
  const TemporaryFolder folder;
  GgufBytes b;
  b.header(0, 1).key<uint64_t>("big", 10, std::numeric_limits<uint64_t>::max());
  const auto file = GgufFile::open(folder.write("model.gguf", b.bytes));
  EXPECT_THAT(error_of([&] { file->integer("big"); }), HasSubstr("out of range"));
}

TEST(Gguf, GivesTensorsOutermostDimensionFirst) {
  const TemporaryFolder folder;
  const auto file = GgufFile::open(folder.write("model.gguf", good_file().bytes));
  EXPECT_THAT(file->names(), ElementsAre("a.weight", "b.bias", "c"));
  EXPECT_TRUE(file->contains("c"));
  EXPECT_FALSE(file->contains("d"));
  const TensorView c = file->tensor("c");
  EXPECT_EQ(c.type, StorageType::q8_0);
  EXPECT_THAT(c.shape, ElementsAre(3, 2, 32));
  EXPECT_EQ(c.rows(), 6);
  EXPECT_EQ(c.columns(), 32);
  ASSERT_EQ(c.bytes.size(), 204u);
  EXPECT_EQ(static_cast<uint8_t>(c.bytes[0]), static_cast<uint8_t>(128 * 37 + 11));
  EXPECT_THAT(error_of([&] { file->tensor("d"); }), AllOf(HasSubstr("\"d\""), HasSubstr("missing")));
}

TEST(Gguf, DroppedPagesComeBack) {
  const TemporaryFolder folder;
  GgufBytes b;
  b.header(1, 0).tensor("w", {1 << 16}, 0, 0).data(size_t{4} << 16);
  const auto file = GgufFile::open(folder.write("model.gguf", b.bytes));
  const TensorView w = file->tensor("w");
  const std::vector<std::byte> before(w.bytes.begin(), w.bytes.end());
  file->drop_pages(w.bytes);
  file->drop_pages();
  EXPECT_TRUE(std::equal(before.begin(), before.end(), w.bytes.begin()));
}

TEST(Gguf, ReadsVersion2AndOwnAlignment) {
  const TemporaryFolder folder;
  GgufBytes b;
  b.header(1, 1, 2).key<uint32_t>("general.alignment", 4, 128).tensor("w", {4}, 0, 128).data(128 + 16, 128);
  const auto file = GgufFile::open(folder.write("model.gguf", b.bytes));
  EXPECT_EQ(static_cast<uint8_t>(file->tensor("w").bytes[0]), static_cast<uint8_t>(128 * 37 + 11));
}

TEST(Gguf, ReadsSharedFilesOfBothAlignments) {
  const std::string folder = GRISTMILL_SHARED_DATA "/quant/vectors/gguf/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is absent";
  for (const char* name : {"tiny_align32.gguf", "tiny_align64.gguf"}) {
    const auto file = GgufFile::open(folder + name);
    EXPECT_EQ(file->integer("test.u64"), int64_t{1} << 40);
    EXPECT_THAT(file->strings("test.arr_str"), ElementsAre("", "a", "\xc4\xa0the"));
    EXPECT_THAT(file->tensor("b.weight").shape, ElementsAre(3, 64));
    EXPECT_EQ(file->tensor("d.weight").type, StorageType::q4_1);
  }
}

TEST(Gguf, RefusesFilesThatAreNone) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { GgufFile::open(folder.path("absent.gguf")); }),
              AllOf(HasSubstr("absent.gguf"), HasSubstr("cannot be opened")));
  EXPECT_THAT(error_of([&] { GgufFile::open(folder.path("")); }), HasSubstr("is not a file but a folder"));
  EXPECT_THAT(open_error(folder, {""}), HasSubstr("is empty"));
  EXPECT_THAT(open_error(folder, {"GGU"}), HasSubstr("not a GGUF file"));
  EXPECT_THAT(open_error(folder, {"PK\3\4 and so on and on"}), HasSubstr("not a GGUF file"));
}

TEST(Gguf, RefusesOtherVersionsAndByteOrders) {
  const TemporaryFolder folder;
  EXPECT_THAT(open_error(folder, GgufBytes().header(0, 0, 1)), HasSubstr("version 1 is not supported"));
  EXPECT_THAT(open_error(folder, GgufBytes().header(0, 0, 4)), HasSubstr("version 4 is not known"));
  EXPECT_THAT(open_error(folder, GgufBytes().header(0, 0, 0x03000000)), HasSubstr("big-endian"));
}

TEST(Gguf, RefusesCountsThatTheFileCannotHold) {
  const TemporaryFolder folder;
  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  EXPECT_THAT(open_error(folder, GgufBytes().header(0, kHuge)), HasSubstr("keys do not fit"));
  EXPECT_THAT(open_error(folder, GgufBytes().header(kHuge, 0)), HasSubstr("tensors do not fit"));
  for (const uint32_t type : {0, 6, 8, 10}) {
    const std::string error = open_error(folder, GgufBytes().header(0, 1).array_key("arr", type, kHuge / 8));
    EXPECT_THAT(error, AllOf(HasSubstr("\"arr\""), HasSubstr("array elements do not fit")));
  }
  GgufBytes text;
  text.header(0, 1).text("name").put<uint32_t>(8).put(kHuge);
  EXPECT_THAT(open_error(folder, text), AllOf(HasSubstr("\"name\""), HasSubstr("truncated")));
  GgufBytes name;
  name.header(0, 1).put(kHuge).put(kHuge);
  EXPECT_THAT(open_error(folder, name), AllOf(HasSubstr("metadata"), HasSubstr("truncated")));
}

TEST(Gguf, RefusesUnknownTypesAndNesting) {
  const TemporaryFolder folder;
  EXPECT_THAT(open_error(folder, GgufBytes().header(0, 1).key<uint64_t>("k", 13, 0)),
              HasSubstr("unknown value type 13"));
  EXPECT_THAT(open_error(folder, GgufBytes().header(0, 1).array_key("k", 13, 0)), HasSubstr("unknown element type 13"));
  EXPECT_THAT(open_error(folder, GgufBytes().header(0, 1).array_key("k", 9, 1).put<uint32_t>(9).put<uint64_t>(1)),
              HasSubstr("arrays of arrays"));
}

TEST(Gguf, RefusesDuplicates) {
  const TemporaryFolder folder;
  GgufBytes keys;
  keys.header(0, 3).key<uint8_t>("k", 0, 1).key<uint8_t>("l", 0, 1).key<uint8_t>("k", 0, 2);
  EXPECT_THAT(open_error(folder, keys), AllOf(HasSubstr("key \"k\""), HasSubstr("twice")));
  GgufBytes tensors;
  tensors.header(2, 0).tensor("w", {4}, 0, 0).tensor("w", {4}, 0, 32).data(64);
  EXPECT_THAT(open_error(folder, tensors), AllOf(HasSubstr("tensor \"w\""), HasSubstr("twice")));
}

TEST(Gguf, RefusesTensorsThatDoNotFit) {
  const TemporaryFolder folder;
  const auto with = [&](std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    GgufBytes b;
    b.header(1, 0).tensor("w", dims, type, offset).data(256);
    const std::string error = open_error(folder, b);
    EXPECT_THAT(error, HasSubstr("tensor \"w\""));
    return error;
  };
  EXPECT_THAT(with({65}, 0, 0), HasSubstr("beyond the end"));
  EXPECT_THAT(with({64}, 0, 32), HasSubstr("beyond the end"));
  EXPECT_THAT(with({4}, 0, uint64_t{1} << 63), HasSubstr("beyond the end"));
  EXPECT_THAT(with({4}, 0, 16), HasSubstr("not a multiple of the alignment"));
  EXPECT_THAT(with({48, 2}, 2, 0), HasSubstr("not a multiple of the 32 of a Q4_0 block"));
  EXPECT_THAT(with({288}, 12, 0), HasSubstr("not a multiple of the 256 of a Q4_K block"));
  EXPECT_THAT(with({0}, 0, 0), HasSubstr("out of range"));
  EXPECT_THAT(with({uint64_t{1} << 63}, 0, 0), HasSubstr("out of range"));
  EXPECT_THAT(with({uint64_t{1} << 62}, 0, 0), HasSubstr("larger than any file"));
  EXPECT_THAT(with({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0), HasSubstr("out of range"));
  EXPECT_THAT(with({uint64_t{1} << 21, uint64_t{1} << 21, uint64_t{1} << 21}, 0, 0), HasSubstr("out of range"));
  EXPECT_THAT(with({}, 0, 0), HasSubstr("0 dimensions"));
  EXPECT_THAT(with({1, 1, 1, 1, 1}, 0, 0), HasSubstr("5 dimensions"));
}

TEST(Gguf, RefusesTensorTypesByName) {
  const TemporaryFolder folder;
  const auto with = [&](uint32_t type) {
    return open_error(folder, GgufBytes().header(1, 0).tensor("w", {256}, type, 0).data(1024));
  };
  EXPECT_THAT(with(16), HasSubstr("IQ2_XXS is not supported"));
  EXPECT_THAT(with(34), HasSubstr("TQ1_0 is not supported"));
  EXPECT_THAT(with(40), HasSubstr("NVFP4 is not supported"));
  EXPECT_THAT(with(4), HasSubstr("Q4_2 is not supported"));
  EXPECT_THAT(with(77), HasSubstr("unknown tensor type 77"));
}

TEST(Gguf, RefusesOverlaps) {
  const TemporaryFolder folder;
  GgufBytes b;
  b.header(3, 0).tensor("last", {8}, 0, 128).tensor("first", {17}, 0, 0).tensor("second", {8}, 0, 64).data(256);
  EXPECT_THAT(open_error(folder, b), AllOf(HasSubstr("tensor \"second\""), HasSubstr("overlaps tensor \"first\"")));
}

TEST(Gguf, RefusesAlignmentsThatAreNone) {
  const TemporaryFolder folder;
  for (const uint32_t alignment : {0u, 3u, 48u})
    EXPECT_THAT(open_error(folder, GgufBytes().header(0, 1).key("general.alignment", 4, alignment)),
                AllOf(HasSubstr("general.alignment"), HasSubstr("power of two")));
  EXPECT_THAT(open_error(folder, GgufBytes().header(0, 1).string_key("general.alignment", "32")),
              HasSubstr("not an integer"));
  GgufBytes beyond;
  beyond.header(1, 1).key<uint32_t>("general.alignment", 4, 1u << 31).tensor("w", {4}, 0, 0).data(64);
  EXPECT_THAT(open_error(folder, beyond), HasSubstr("beyond the end"));
}

TEST(Gguf, RefusesTensorNamesThatAreTooLongAndShowsThemOnOneLine) {
  const TemporaryFolder folder;
  EXPECT_THAT(open_error(folder, GgufBytes().header(1, 0).tensor(std::string(64, 'x'), {4}, 0, 0).data(64)),
              HasSubstr("1 to 63"));
  EXPECT_THAT(open_error(folder, GgufBytes().header(1, 0).tensor("", {4}, 0, 0).data(64)), HasSubstr("1 to 63"));
  EXPECT_THAT(open_error(folder, GgufBytes().header(1, 0).tensor("a\n\x1b[2J\"", {0}, 0, 0).data(64)),
              HasSubstr("\"a\\x0a\\x1b[2J\\x22\""));
}

TEST(Gguf, RefusesEveryTruncation) {
  const TemporaryFolder folder;
  const std::string whole = good_file().bytes;
  ASSERT_THAT(open_error(folder, {whole}), IsEmpty());
  for (size_t length = 0; length < whole.size(); ++length)
    ASSERT_NE(open_error(folder, {whole.substr(0, length)}), "") << length;
}

/// KiB by which the most memory that this process ever had grows meanwhile (proc(5): VmHWM, clear_refs).
long peak_growth(const std::function<void()>& work) {
  std::ofstream("/proc/self/clear_refs") << 5;
  const auto peak = [] {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("VmHWM:")) return std::stol(line.substr(6));
    return -1L;
  };
  const long before = peak();
  EXPECT_GT(before, 0);
  work();
  return peak() - before;
}

// Whatever the counts and lengths of a file say, reading it takes no more memory than about its size.
TEST(Gguf, MemoryIsBoundedByTheSizeOfTheFile) {
  const TemporaryFolder folder;
  std::vector<std::string> files;
  for (const uint64_t huge : {uint64_t{1} << 28, uint64_t{1} << 40, uint64_t{1} << 61, uint64_t{1} << 63}) {
    files.push_back(GgufBytes().header(huge, 0).bytes);
    files.push_back(GgufBytes().header(0, huge).bytes);
    for (const uint32_t element : {0, 6, 8})
      files.push_back(GgufBytes().header(0, 1).array_key("a", element, huge).bytes);
    GgufBytes key;
    files.push_back(key.header(0, 1).put(huge).bytes);
    GgufBytes text;
    files.push_back(text.header(0, 1).text("k").put<uint32_t>(8).put(huge).bytes);
    files.push_back(GgufBytes().header(1, 0).tensor("w", {huge}, 0, 0).data(64).bytes);
    files.push_back(GgufBytes().header(1, 0).tensor("w", {4, huge}, 0, 0).data(64).bytes);
  }
  for (const std::string& bytes : files) {
    const std::string path = folder.write("model.gguf", bytes);
    EXPECT_LT(peak_growth([&] { EXPECT_NE(error_of([&] { GgufFile::open(path); }), ""); }), 8 << 10);
  }
}

TEST(Gguf, SurvivesEveryFlippedBit) {
  const TemporaryFolder folder;
  const std::string whole = good_file().bytes;
  size_t refused = 0;
  for (size_t bit = 0; bit < (whole.size() - 332) * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const std::string path = folder.write("model.gguf", flipped);
    try {
      const auto file = GgufFile::open(path);
      unsigned sum = 0;  // everything that was let through can be read
      for (const std::string& name : file->names())
        for (const std::byte byte : file->tensor(name).bytes) sum += static_cast<unsigned>(byte);
      if (file->is_array("a.strings")) sum += static_cast<unsigned>(file->strings("a.strings").size());
      EXPECT_GT(sum, 0u);
    } catch (const Error& error) {
      ++refused;
      EXPECT_THAT(error.what(), HasSubstr(path));
    }
  }
  EXPECT_GT(refused, 1000u);
}

/// Part `index` of two; the second holds no metadata but its place.
GgufBytes split_part(uint16_t index, uint16_t count = 2, uint16_t number = 0xffff) {
  GgufBytes b;
  b.header(1, index == 0 ? 4 : 2);
  b.key<uint16_t>("split.no", 2, number == 0xffff ? index : number).key<uint16_t>("split.count", 2, count);
  if (index == 0) b.key<int32_t>("split.tensors.count", 5, 2).string_key("general.architecture", "llama");
  return b.tensor(index == 0 ? "first" : "second", {4}, 0, 0).data(16);
}

TEST(Gguf, OpensAllPartsThroughAnyOfThem) {
  const TemporaryFolder folder;
  const std::string first = folder.write("model-00001-of-00002.gguf", split_part(0).bytes);
  const std::string second = folder.write("model-00002-of-00002.gguf", split_part(1).bytes);
  for (const std::string& path : {first, second}) {
    const auto file = GgufFile::open(path);
    EXPECT_THAT(file->names(), ElementsAre("first", "second"));
    EXPECT_EQ(file->string("general.architecture"), "llama");
    EXPECT_EQ(file->tensor("second").bytes.size(), 16u);
    file->drop_pages(file->tensor("second").bytes);
  }
}

TEST(Gguf, NamesThePartThatIsMissingOrWrong) {
  const TemporaryFolder folder;
  const std::string first = folder.write("model-00001-of-00002.gguf", split_part(0).bytes);
  EXPECT_THAT(error_of([&] { GgufFile::open(first); }),
              AllOf(HasSubstr("model-00002-of-00002.gguf"), HasSubstr("part 2 of 2")));
  folder.write("model-00002-of-00002.gguf", split_part(1, 2, 0).bytes);
  EXPECT_THAT(error_of([&] { GgufFile::open(first); }), AllOf(HasSubstr("model-00002-of"), HasSubstr("split.no")));
  folder.write("model-00002-of-00002.gguf", split_part(0, 2, 1).bytes);
  EXPECT_THAT(error_of([&] { GgufFile::open(first); }),
              AllOf(HasSubstr("tensor \"first\""), HasSubstr("another part")));
  GgufBytes fewer;
  fewer.header(0, 2).key<uint16_t>("split.no", 2, 1).key<uint16_t>("split.count", 2, 2);
  folder.write("model-00002-of-00002.gguf", fewer.bytes);
  EXPECT_THAT(error_of([&] { GgufFile::open(first); }), HasSubstr("promises 2 tensors"));
  const std::string renamed = folder.write("renamed.gguf", split_part(0).bytes);
  EXPECT_THAT(error_of([&] { GgufFile::open(renamed); }), HasSubstr("-00001-of-00002.gguf"));
  const std::string outside = folder.write("model-00009-of-00002.gguf", split_part(0, 2, 8).bytes);
  EXPECT_THAT(error_of([&] { GgufFile::open(outside); }), HasSubstr("does not exist"));
}

}  // namespace
}  // namespace gristmill::weights
