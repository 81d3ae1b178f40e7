#include "server/load_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "base/error.h"
#include "weights/gguf_bytes.h"

namespace gristmill::server {
namespace {

using gristmill::testing::error_of;
using gristmill::testing::TemporaryFolder;
using ::testing::StartsWith;

config::ServeConfig tiny() {
  config::ServeConfig config;
  config.engine.model = GRISTMILL_TEST_DIR "/golden/tiny_llama.gguf";
  return config;
}

std::string refusal(const config::ServeConfig& config) {
  return error_of([&] { load_served_model(config); });
}

TEST(LoadServedModel, SamplingDefaultsThatNoRequestCouldUseAreRefusedAtStart) {
  for (const char* const bad : {R"({"top_p":2})", R"({"top_p":0})", R"({"min_p":-1})", R"({"repetition_penalty":0})",
                                R"({"temperature":-1})"}) {
    config::ServeConfig config = tiny();
    config.model.generation_defaults = bad;
    EXPECT_TRUE(refusal(config).starts_with("--override-generation-config: ")) << bad << ": " << refusal(config);
    config = tiny();
    config.model.recommended_sampling = bad;
    EXPECT_NE(refusal(config).find("/generation_config.json: "), std::string::npos) << bad;
  }
}

TEST(LoadServedModel, RecommendedSamplingYieldsToTheOperatorsAndToTheFlag) {
  config::ServeConfig config = tiny();
  config.model.recommended_sampling = R"({"temperature":0.2,"top_p":0.9})";
  config.model.generation_defaults = R"({"top_p":0.5})";
  EXPECT_EQ(load_served_model(config)->defaults.temperature, 0.2);
  EXPECT_EQ(load_served_model(config)->defaults.top_p, 0.5);
  config.model.use_generation_config = false;
  EXPECT_FALSE(load_served_model(config)->defaults.temperature.has_value());
}

TEST(LoadServedModel, ATemplateOutOfARequestHasFewerStepsThanTheModels) {
  const std::string endless =
      "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor "
      "%}";
  const auto model = load_served_model(tiny());
  try {
    model->compile_template(endless)({}, {});
    FAIL() << "no limit";
  } catch (const RequestError& error) {
    EXPECT_NE(std::string(error.what()).find("limit of 1000000 steps"), std::string::npos) << error.what();
  }
}

TEST(LoadServedModel, MistakesInChatTemplatesNameFileOrFlag) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},
      "decoder":{"type":"ByteLevel"},"added_tokens":[],"model":{"type":"BPE","vocab":{"a":0},"merges":[]}})");
  const std::string own = folder.write("chat_template.jinja", "a\n{% if %}");
  const std::string other = folder.write("other.jinja", "{{ x");
  config::ServeConfig config;
  config.engine.model = folder.path("");
  EXPECT_THAT(refusal(config), StartsWith(own + ": line 2"));
  config.model.chat_template = other;
  EXPECT_THAT(refusal(config), StartsWith("--chat-template " + other + ": line 1"));
  config.model.chat_template = "{% for %}";
  EXPECT_THAT(refusal(config), StartsWith("--chat-template: line 1"));
  config.model.chat_template = "{{ messages[0].content }}";
  EXPECT_EQ(refusal(config), "");
}

}  // namespace
}  // namespace gristmill::server
