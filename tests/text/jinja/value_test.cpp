#include "text/jinja/value.h"

#include <cmath>

#include "text/jinja/jinja_test.h"
#include "text/jinja/python_text.h"

namespace gristmill::jinja {
namespace {

std::string json_error(std::string_view text, int max_depth = 200) {
  try {
    parse_json(text, max_depth);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(JinjaValue, DictsKeepTheOrderOfTheirKeysAndFindThem) {
  Dict dict;
  for (int i = 0; i < 1000; ++i) dict.set(Value(cat("key", 999 - i)), Value(i));
  dict.set("key5", Value("new"));
  EXPECT_EQ(dict.size(), 1000u);
  EXPECT_EQ(dict[0].key.string(), "key999");
  for (int i = 0; i < 1000; ++i) ASSERT_NE(dict.find(cat("key", i)), nullptr) << i;
  EXPECT_EQ(dict.find("key5")->string(), "new");
  EXPECT_EQ(dict.find("other"), nullptr);
}

TEST(JinjaValue, EqualNumbersAreOneKeyAndListsAreNone) {
  Dict dict{{Value(1), Value("a")}, {Value::tuple({Value(1), Value("x")}), Value("b")}};
  EXPECT_EQ(dict.find(Value(1.0))->string(), "a");
  EXPECT_EQ(dict.find(Value(true))->string(), "a");
  EXPECT_EQ(dict.find(Value("1")), nullptr);
  EXPECT_EQ(dict.find(Value::tuple({Value(1.0), Value("x")}))->string(), "b");
  EXPECT_THROW(dict.set(Value(List{}), Value(1)), TemplateError);
  EXPECT_THROW(dict.find(Value(Dict{})), TemplateError);
}

TEST(JinjaValue, FloatsPrintTheShortestDigitsThatReadBack) {
  EXPECT_EQ(float_text(0.1), "0.1");
  EXPECT_EQ(float_text(-0.0), "-0.0");
  EXPECT_EQ(float_text(1e15), "1000000000000000.0");
  EXPECT_EQ(float_text(1e16), "1e+16");
  EXPECT_EQ(float_text(1e-5), "1e-05");
  EXPECT_EQ(float_text(0.0001), "0.0001");
  EXPECT_EQ(float_text(1.7976931348623157e308), "1.7976931348623157e+308");
  EXPECT_EQ(float_text(std::nan("")), "nan");
  EXPECT_EQ(float_text(-INFINITY), "-inf");
}

TEST(JinjaJson, ReadsWhatItWrites) {
  const std::string text = R"({"a": [1, -2.5, 1e+20, true, false, null, "é\n\"\\"], "b": {}, "": []})";
  EXPECT_EQ(to_json(parse_json(text)), text);
  EXPECT_EQ(to_json(parse_json("{\"a\":1,\"b\":2,\"a\":3}")), "{\"a\": 3, \"b\": 2}");
  EXPECT_EQ(to_json(parse_json(R"("\u00e9\ud83d\ude00\/\b")")), "\"é😀/\\b\"");
  EXPECT_EQ(to_json(parse_json("[9223372036854775807, 9223372036854775808, 1e999, 1e-999]")),
            "[9223372036854775807, 9.223372036854776e+18, Infinity, 0.0]");
}

TEST(JinjaJson, RefusesWhatIsNotJsonAndSaysWhere) {
  EXPECT_EQ(json_error("{\"a\": 1,}"), "JSON, byte 8: expected a key in double quotes");
  EXPECT_EQ(json_error("[1 2]"), "JSON, byte 3: expected ',' or ']'");
  for (const char* text :
       {"",      "{",   "[",    "\"",      "tru",       "01",          "1.",           "-",      "+1",       "1e",
        "nul",   "'a'", "[1]x", "\"\\x\"", "\"\\u12\"", "\"\\ud800\"", "\"\\udc00x\"", "\"\n\"", "\"\xff\"", "NaN",
        "{1: 2}"}) {
    EXPECT_NE(json_error(text), "") << text;
  }
}

TEST(JinjaJson, DepthIsBounded) {
  const std::string deep = std::string(50, '[') + std::string(50, ']');
  EXPECT_EQ(json_error(deep), "");
  EXPECT_NE(json_error(deep, 20), "");
  EXPECT_NE(json_error(std::string(100'000, '[')), "");
  EXPECT_NE(json_error(std::string(100'000, '['), 1'000'000), "");
}

}  // namespace
}  // namespace gristmill::jinja
