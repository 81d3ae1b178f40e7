// The reference back end against transformers in float32 on the same dequantized weights.
#include <gtest/gtest.h>

#include "model/golden.h"

namespace gristmill::model {
namespace {

constexpr float kTolerance = 2e-3f;

TEST(ReferenceGolden, TinyModelAgreesWithTransformers) {
  const Golden golden("tiny_llama_golden");
  const Model model = load_model(GRISTMILL_TEST_DIR "/golden/tiny_llama.gguf", {});
  const Model tapped = load_model(GRISTMILL_TEST_DIR "/golden/tiny_llama.gguf", {.exact = true, .tap_layers = true});
  const auto backend = device::make_reference_backend();
  EXPECT_LT(hidden_state_error(*backend, tapped, golden), 1e-4f);
  Runner runner(*backend, model);
  EXPECT_LT(logit_error(runner, model, golden), 1e-4f);
  EXPECT_EQ(expect_same_greedy_text(runner, golden, 100), 6);
}

TEST(ReferenceGolden, DefaultModelAgreesWithTransformers) {
  const std::string path = default_model();
  if (const std::string why = no_default_model(); !why.empty()) GTEST_SKIP() << why;
  const Golden golden("smollm2_golden");
  const auto backend = device::make_reference_backend();
  // One program with taps for everything, so that the weights are read once.
  const Model model = load_model(path, {.exact = false, .tap_layers = true});
  ASSERT_EQ(model.config.layers, 30);
  const float hidden = hidden_state_error(*backend, model, golden);
  Runner runner(*backend, model);
  const float logits = logit_error(runner, model, golden);
  std::printf("reference: largest error of hidden states %.1e, of logits %.1e\n", hidden, logits);
  EXPECT_LT(hidden, kTolerance);
  EXPECT_LT(logits, kTolerance);
  EXPECT_EQ(expect_same_greedy_text(runner, golden, 2), 2);  // the CPU back end runs them all
}

}  // namespace
}  // namespace gristmill::model
