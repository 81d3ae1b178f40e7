#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <limits>

#include "server/api_error.h"
#include "server/json_request.h"
#include "server/json_writer.h"

namespace gristmill::server {
namespace {

std::string json_of(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

TEST(JsonWriter, EscapesWhatJsonWantsEscaped) {
  EXPECT_EQ(json_of("a\"b\\c\n\r\t\b\f\x01\x1f/"), R"("a\"b\\c\n\r\t\b\f\u0001\u001f/")");
  EXPECT_EQ(json_of("Zürich 漢字 🦙"), "\"Zürich 漢字 🦙\"");
}

TEST(JsonWriter, InvalidUtf8BecomesReplacementCharacters) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(json_of("\xFF"
                    "A"),
            "\"" + r + "A\"");
  EXPECT_EQ(json_of("\xC0\x80"), "\"" + r + r + "\"");
  EXPECT_EQ(json_of("\xED\xA0\x80"), "\"" + r + r + r + "\"");
  EXPECT_EQ(json_of("\xF0\x9F\xA6"), "\"" + r + "\"");
  EXPECT_EQ(json_of("x\xE6\xBC"), "\"x" + r + "\"");
  EXPECT_EQ(json_of("\xF4\x90\x80\x80"), "\"" + r + r + r + r + "\"");
}

TEST(JsonWriter, EveryByteStringGivesParsableJson) {
  uint32_t state = 1;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 24; ++i) {
      state = state * 1664525 + 1013904223;
      bytes += static_cast<char>(state >> 24);
    }
    boost::system::error_code failure;
    boost::json::parse(json_of(bytes), failure);
    EXPECT_FALSE(failure) << round;
  }
}

TEST(JsonWriter, NumbersReadBackTheSame) {
  for (const float value : {-0.1f, -1.5f, 0.0f, -123.456f, -1e-7f}) {
    std::string out;
    append_json_number(out, value);
    EXPECT_EQ(std::stof(out), value) << out;
  }
  std::string out;
  append_json_number(out, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(out, "-9999");
  out.clear();
  append_json_number(out, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(out, "null");
}

TEST(JsonWriter, PlacesCommas) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("a").integer(1).key("b").begin_array().string("x").null().begin_object().end_object();
  json.raw("{\"y\":2}").end_array().key("c").boolean(true).end_object();
  EXPECT_EQ(out, R"({"a":1,"b":["x",null,{},{"y":2}],"c":true})");
}

TEST(CountCharacters, CountsCodePoints) {
  EXPECT_EQ(count_characters("aé漢🦙"), 4u);
}

std::string error_of(const std::string& body) {
  try {
    parse_json_object(body);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.what();
  }
  return "no error";
}

TEST(ParseJson, NamesTheByteOfAMistake) {
  EXPECT_EQ(error_of("{\"a\":1,}"), "JSON decode error at byte 7: syntax error");
  EXPECT_EQ(error_of(""), "JSON decode error at byte 0: incomplete JSON");
  EXPECT_EQ(error_of("{\"a\":1} x"), "JSON decode error at byte 8: extra data after the object");
  EXPECT_EQ(error_of("[1]"), "the request body must be a JSON object, got a list");
}

TEST(ParseJson, RefusesWhatIsNoUtf8AndLoneSurrogates) {
  EXPECT_NE(error_of("{\"prompt\":\"\xff\xfe\"}").find("JSON decode error"), std::string::npos);
  EXPECT_NE(error_of(R"({"prompt":"\ud800"})").find("JSON decode error"), std::string::npos);
  EXPECT_EQ(error_of(R"({"prompt":"\u0000"})"), "no error");
}

TEST(ParseJson, BoundsDepthAndSize) {
  EXPECT_NE(error_of("{\"x\":" + std::string(10000, '[')).find("JSON decode error"), std::string::npos);
  EXPECT_EQ(error_of("{\"x\":" + std::string(100, '[') + std::string(100, ']') + "}"), "no error");
  std::string many = "{\"x\":[0";
  for (int i = 0; i < 2'100'000; ++i) many += ",0";
  EXPECT_NE(error_of(many + "]}").find("more than 2000000 JSON values"), std::string::npos);
  EXPECT_EQ(error_of("{\"x\":\"" + std::string(3'000'000, ',') + "\"}"), "no error");
}

class FieldReaderTest : public testing::Test {
 protected:
  boost::json::object object_ = boost::json::parse(R"({
    "text": "t", "yes": true, "whole": 7, "real": 0.5, "round": 5.0, "big": 9223372036854775808, "huge": 1e300,
    "none": null, "list": ["a", "b"], "mixed": ["a", 1], "ids": [1, 2], "negative": [-1], "inner": {"x": 1}})")
                                    .get_object();
  FieldReader fields_{object_, "top"};

  template <class Call>
  std::string failure(Call call) {
    try {
      call();
    } catch (const ApiError& error) {
      return error.param() + " | " + error.what();
    }
    return "none";
  }
};

TEST_F(FieldReaderTest, ReadsFields) {
  EXPECT_EQ(fields_.string("text"), "t");
  EXPECT_EQ(fields_.boolean("yes"), true);
  EXPECT_EQ(fields_.integer("whole", 0, 10), 7);
  EXPECT_EQ(fields_.integer("round", 0, 10), 5);
  EXPECT_EQ(fields_.number("real"), 0.5);
  EXPECT_EQ(fields_.number("whole"), 7.0);
  EXPECT_EQ(fields_.string("none"), std::nullopt);
  EXPECT_EQ(fields_.string("absent"), std::nullopt);
  EXPECT_EQ(fields_.strings("list", 5), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(fields_.strings("text", 5), (std::vector<std::string>{"t"}));
  EXPECT_EQ(fields_.token_ids("ids", 5), (std::vector<int32_t>{1, 2}));
}

TEST_F(FieldReaderTest, ErrorsNameThePathAndTheReason) {
  EXPECT_EQ(failure([&] { fields_.string("whole"); }), "top.whole | top.whole: must be a string, got a whole number");
  EXPECT_EQ(failure([&] { fields_.boolean("whole"); }),
            "top.whole | top.whole: must be true or false, got a whole number");
  EXPECT_EQ(failure([&] { fields_.integer("real", 0, 9); }),
            "top.real | top.real: must be a whole number, got a number with a fraction");
  EXPECT_EQ(failure([&] { fields_.integer("whole", 0, 5); }), "top.whole | top.whole: must be between 0 and 5");
  EXPECT_EQ(failure([&] { fields_.integer("big", 1, std::numeric_limits<int32_t>::max()); }),
            "top.big | top.big: must be at most 2147483647");
  EXPECT_EQ(failure([&] { fields_.number("huge"); }), "top.huge | top.huge: too large");
  EXPECT_EQ(failure([&] { fields_.strings("list", 1); }), "top.list | top.list: at most 1 entries are allowed");
  EXPECT_EQ(failure([&] { fields_.strings("mixed", 5); }),
            "top.mixed[1] | top.mixed[1]: must be a string, got a whole number");
  EXPECT_EQ(failure([&] { fields_.token_ids("negative", 5); }),
            "top.negative[0] | top.negative[0]: token id -1 is out of the vocabulary");
  EXPECT_EQ(failure([&] { fields_.object("list"); }), "top.list | top.list: must be an object, got a list");
}

TEST_F(FieldReaderTest, ListsFieldsNobodyAskedFor) {
  FieldReader inner(*fields_.object("inner"), "top.inner");
  EXPECT_EQ(inner.unknown(), (std::vector<std::string>{"x"}));
  inner.integer("x", 0, 2);
  EXPECT_TRUE(inner.unknown().empty());
}

TEST(Shorten, CutsAtACharacter) {
  EXPECT_EQ(shorten("short"), "short");
  EXPECT_EQ(shorten("漢字漢字", 4), "漢...");
}

}  // namespace
}  // namespace gristmill::server
