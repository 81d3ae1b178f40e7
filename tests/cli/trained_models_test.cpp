// Small trained models: the held-out perplexity and the greedy answers that transformers gets from them.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>

#include "base/error.h"
#include "base/log.h"
#include "cli/perplexity.h"
#include "client/engine_client.h"
#include "text/chat_template.h"

namespace gristmill::cli {
namespace {

namespace json = boost::json;

const std::string kFolder = GRISTMILL_SHARED_DATA "/trained/";

std::vector<int32_t> ids_of(const json::value& array) {
  return json::value_to<std::vector<int32_t>>(array);
}

class TrainedModelTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string path = cat(kFolder, GetParam(), "/reference.json");
    std::ifstream in(path);
    if (!in) GTEST_SKIP() << path << " is absent";
    reference_ = json::parse(std::string((std::istreambuf_iterator<char>(in)), {}));
    model_ = text::load_text_model(kFolder + GetParam());
  }

  static void SetUpTestSuite() { set_log_level(LogLevel::warning); }

  engine::EngineConfig config(bool exact) const {
    engine::EngineConfig made;
    made.model = kFolder + GetParam();
    made.threads = 2;
    made.float32 = exact;
    if (exact) made.cache_dtype = DType::f32;
    return made;
  }
  Perplexity perplexity(const char* what, bool exact, ScoredText* scored = nullptr,
                        const std::string& quantization = "") const {
    PerplexityOptions options;
    options.engine = config(exact);
    options.engine.quantization = quantization;
    options.file = kFolder + std::string(reference_.at(what).at("file").as_string());
    const ScoredText text = read_scored_text(options, model_);
    if (scored != nullptr) *scored = text;
    return score(options, text);
  }

  json::value reference_;
  text::TextModel model_;
};

TEST_P(TrainedModelTest, HeldOutPerplexityIsTheReferences) {
  for (const char* what : {"heldout_text", "heldout_chats"}) {
    SCOPED_TRACE(what);
    const json::value& expected = reference_.at(what).at("fp32");
    ScoredText text;
    const Perplexity exact = perplexity(what, true, &text);
    EXPECT_EQ(exact.scored, expected.at("tokens_scored").as_int64());
    EXPECT_NEAR(exact.nll_mean(), expected.at("nll_mean").as_double(), 1e-5);
    EXPECT_NEAR(static_cast<double>(exact.likeliest) / static_cast<double>(exact.scored),
                expected.at("top1_accuracy").as_double(), 5e-4);
    const double perplexity_wanted = expected.at("perplexity").as_double();
    EXPECT_NEAR(exact.value() / perplexity_wanted, 1, 0.005);
    EXPECT_NEAR(perplexity(what, false).value() / perplexity_wanted, 1, 0.005);  // as `gristmill serve` loads it
  }
}

TEST_P(TrainedModelTest, QuantizingKeepsThePerplexity) {
  const double plain = perplexity("heldout_text", false).value();
  EXPECT_NEAR(perplexity("heldout_text", false, nullptr, "w8a8").value() / plain, 1, 0.01);
  EXPECT_NEAR(perplexity("heldout_text", false, nullptr, "w4a8").value() / plain, 1, 0.05);
}

TEST_P(TrainedModelTest, GreedyAnswersAreTheReferences) {
  const std::unique_ptr<EngineClient> client = make_in_process_client(config(true));
  const text::ChatTemplate chat_template(model_.chat_template, model_.bos, model_.eos);
  struct Answer {
    std::vector<int32_t> ids;
    std::promise<void> done;
  };
  std::vector<std::shared_ptr<Answer>> answers;
  const json::array& prompts = reference_.at("prompts").as_array();
  for (const json::value& prompt : prompts) {  // all at once: the engine batches them
    json::object variables{{"add_generation_prompt", true}};
    if (prompt.at("tools").is_array()) variables["tools"] = prompt.at("tools");
    for (const auto& [name, value] : prompt.at("chat_template_kwargs").as_object()) variables[name] = value;
    const std::string rendered = chat_template.render(prompt.at("messages").as_array(), variables);
    EXPECT_EQ(rendered, prompt.at("prompt_text").as_string());
    engine::EngineRequest request;
    request.id = client->next_id();
    request.prompt = model_.tokenizer->encode(rendered, false, /*parse_special=*/true);
    EXPECT_EQ(request.prompt, ids_of(prompt.at("prompt_ids")));
    request.sampling.temperature = 0;
    request.sampling.max_tokens = static_cast<int32_t>(prompt.at("fp32").at("ids").as_array().size());
    request.eos_ids = model_.end_ids;
    const auto answer = answers.emplace_back(std::make_shared<Answer>());
    client->submit(std::move(request), [answer](engine::EngineOutput&& output) {
      for (const engine::OutputToken& token : output.tokens) answer->ids.push_back(token.token);
      if (output.finish != engine::FinishReason::none) answer->done.set_value();
    });
  }
  ASSERT_FALSE(answers.empty());
  for (size_t i = 0; i < answers.size(); ++i) {
    answers[i]->done.get_future().wait();
    EXPECT_EQ(answers[i]->ids, ids_of(prompts[i].at("fp32").at("ids"))) << "prompt " << i;
  }
}

std::string test_name(const ::testing::TestParamInfo<std::string>& param) {
  std::string name = param.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, TrainedModelTest,
                         ::testing::Values("tiny-trained-qwen3_5-moe", "tiny-trained-minimax-m2"), test_name);

}  // namespace
}  // namespace gristmill::cli
