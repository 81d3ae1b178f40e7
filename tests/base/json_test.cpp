#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace gristmill {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string error_of(std::string_view text) {
  try {
    parse_json("file.json", text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Json, ReadsEveryKindOfValue) {
  const Json json = parse_json("f",
                               "\xef\xbb\xbf"
                               R"( {"n": null, "t": true, "f": false, "i": -12, "x": 1.5e3, "big": 1e30,
      "s": "a\n\"\u00e9\ud83d\ude00\/", "a": [1, [], {}]} )");
  ASSERT_EQ(json.kind, Json::Kind::object);
  EXPECT_EQ(json.object.size(), 8u);
  EXPECT_EQ(json.find("n")->kind, Json::Kind::null);
  EXPECT_TRUE(json.find("t")->boolean);
  EXPECT_FALSE(json.find("f")->boolean);
  EXPECT_TRUE(json.find("i")->is_integer);
  EXPECT_EQ(json.find("i")->integer, -12);
  EXPECT_FALSE(json.find("x")->is_integer);
  EXPECT_EQ(json.find("x")->number, 1500);
  EXPECT_FALSE(json.find("big")->is_integer);
  EXPECT_EQ(json.find("s")->string, "a\n\"\xc3\xa9\xf0\x9f\x98\x80/");
  ASSERT_EQ(json.find("a")->array.size(), 3u);
  EXPECT_EQ(json.find("a")->array[2].kind, Json::Kind::object);
  EXPECT_EQ(json.find("absent"), nullptr);
}

TEST(Json, KeepsWholeNumbersExactUpToTheirRange) {
  EXPECT_EQ(parse_json("f", "9007199254740993").integer, 9007199254740993);
  EXPECT_FALSE(parse_json("f", "9300000000000000000").is_integer);
}

TEST(Json, NamesTheFileAndThePlaceOfAFault) {
  EXPECT_THAT(error_of("[1, 2"), AllOf(StartsWith("file.json: "), HasSubstr("']' expected"), HasSubstr("byte 5")));
  for (const char* bad : {"",     "{",       "[1,]",        "{\"a\" 1}",   "{\"a\": 1,}", "{1: 2}",
                          "\"a",  "\"\\x\"", "\"\\u12g4\"", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"",
                          "01",   "-",       "1.",          ".5",          "1e",          "+1",
                          "nul",  "True",    "NaN",         "Infinity",    "1e999",       "1 2",
                          "{} x", "\"\t\"",  "[1 2]",       "//"})
    EXPECT_THAT(error_of(bad), StartsWith("file.json: ")) << bad;
  EXPECT_THAT(error_of(R"({"a": 1, "a": 2})"), HasSubstr("\"a\" occurs twice"));
}

TEST(Json, LimitsNesting) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(error_of(nested(64)), "");
  EXPECT_THAT(error_of(nested(65)), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(error_of(std::string(1 << 20, '[')), HasSubstr("nested deeper"));
}

TEST(JsonReader, ReadsPieceByPieceAndKeepsTheContextOfFaults) {
  JsonReader reader("f", R"({"a": [1, 22], "b": -3.5})");
  std::vector<uint64_t> all;
  std::string number;
  reader.object([&](const std::string& key) {
    if (key == "a") {
      reader.array([&] { all.push_back(reader.whole_number()); });
    } else {
      number = reader.number();
    }
  });
  reader.expect_end();
  EXPECT_THAT(all, ::testing::ElementsAre(1, 22));
  EXPECT_EQ(number, "-3.5");
  JsonReader other("f", "99999999999999999999");
  other.set_context("tensor \"x\"");
  try {
    other.whole_number();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(StartsWith("f: tensor \"x\": "), HasSubstr("out of range")));
  }
}

}  // namespace
}  // namespace gristmill
