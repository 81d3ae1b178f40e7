#include "server/load_model.h"

#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "base/error.h"

namespace gristmill::server {
namespace {

config::ServeConfig tiny() {
  config::ServeConfig config;
  config.engine.model = GRISTMILL_TEST_DIR "/golden/tiny_llama.gguf";
  return config;
}

std::string refusal(const config::ServeConfig& config) {
  try {
    load_served_model(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
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

}  // namespace
}  // namespace gristmill::server
