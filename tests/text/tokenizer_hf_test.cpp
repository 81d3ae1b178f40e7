#include "text/tokenizer_hf.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace gristmill::text {
namespace {

namespace json = boost::json;

const std::string published = GRISTMILL_SHARED_DATA "/tokenizers/";

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<int32_t> ids_of(const json::value& list) {
  std::vector<int32_t> ids;
  for (const auto& id : list.as_array()) ids.push_back(id.to_number<int32_t>());
  return ids;
}

class PublishedTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedTokenizer, EncodesAndDecodesAsTheReferenceDoes) {
  const std::string name = GetParam();
  std::ifstream cases(published + name + ".cases.jsonl");
  if (!cases) GTEST_SKIP() << "no published tokenizers at " << published;
  const auto tokenizer = make_hf_tokenizer(read_file(published + name + "/tokenizer.json"),
                                           read_file(published + name + "/tokenizer_config.json"));
  int count = 0;
  for (std::string line; std::getline(cases, line); ++count) {
    const json::object item = json::parse(line).as_object();
    const std::string text(item.at("text").as_string());
    const std::vector<int32_t> ids = ids_of(item.at("ids"));
    const std::vector<int32_t> with_special = ids_of(item.at("ids_with_special"));
    ASSERT_EQ(tokenizer->encode(text, false, true), ids) << name << " case " << count << ": " << text;
    ASSERT_EQ(tokenizer->encode(text, true, true), with_special) << name << " case " << count;
    ASSERT_EQ(tokenizer->decode(ids, false), std::string(item.at("decoded").as_string())) << name << " case " << count;
    ASSERT_EQ(tokenizer->decode(ids, true), std::string(item.at("decoded_skip_special").as_string()))
        << name << " case " << count;
  }
  EXPECT_GE(count, 200);
}

INSTANTIATE_TEST_SUITE_P(All, PublishedTokenizer,
                         ::testing::Values("deepseek_v3", "gemma3", "gptoss", "llama3_1", "qwen3"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace gristmill::text
