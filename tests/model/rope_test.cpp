#include "model/rope.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "device/rope_table.h"
#include "model/golden.h"
#include "model/hf_config.h"
#include "weights/gguf_bytes.h"

namespace gristmill::model {
namespace {

/// Frequencies, and cos and sin up to position 60,000, where one angle more exact than float32 would be 0.003 off.
void expect_golden(const device::Rope& rope, const std::string& name) {
  SCOPED_TRACE(name);
  const Golden golden("rope_golden");
  const std::vector<float> expected = golden.floats(name + ".inv_freq");
  ASSERT_EQ(rope.inv_freq.size(), expected.size());
  size_t other = 0;
  for (size_t j = 0; j < expected.size(); ++j) {
    EXPECT_NEAR(rope.inv_freq[j] / expected[j], 1.0f, 2e-7f) << "pair " << j;
    other += rope.inv_freq[j] == expected[j] ? 0 : 1;
  }
  EXPECT_LE(other, expected.size() / 32);  // the last bit of a power may differ
  EXPECT_NEAR(rope.magnitude, golden.floats(name + ".magnitude")[0], 1e-6f);
  const std::vector<float> all_cosines = golden.floats(name + ".cos"), all_sines = golden.floats(name + ".sin");
  std::vector<float> cosines(expected.size()), sines(expected.size());
  size_t at = 0;
  for (const int32_t position : {0, 1000, 8192, 60000}) {
    device::rope_table(rope, position, cosines.data(), sines.data());
    for (size_t j = 0; j < expected.size(); ++j, ++at) {
      const float bit = static_cast<float>(position) * std::fabs(rope.inv_freq[j] - expected[j]);
      EXPECT_NEAR(cosines[j], all_cosines[at], 1e-5f + bit) << "position " << position << " pair " << j;
      EXPECT_NEAR(sines[j], all_sines[at], 1e-5f + bit) << "position " << position << " pair " << j;
    }
  }
}

TEST(Rope, PlainFrequenciesArePowersOfTheBase) {
  const device::Rope rope = make_rope(8, 10000, {});
  ASSERT_EQ(rope.inv_freq.size(), 4u);
  for (size_t j = 0; j < 4; ++j) EXPECT_FLOAT_EQ(rope.inv_freq[j], std::pow(10.0f, -static_cast<float>(j)));
  EXPECT_EQ(rope.magnitude, 1.0f);
}

TEST(Rope, LinearScalingAgreesWithTransformers) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::linear;
  scaling.factor = 4;
  expect_golden(make_rope(64, 10000, scaling), "linear");
}

TEST(Rope, YarnAgreesWithTransformers) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::yarn;
  scaling.factor = 4;
  scaling.original_context = 32768;
  expect_golden(make_rope(128, 1000000, scaling), "yarn");
  scaling.factor = 16;
  scaling.original_context = 4096;
  expect_golden(make_rope(64, 10000, scaling), "yarn_short");
}

TEST(Rope, Llama3ScalingAgreesWithTransformers) {
  RopeScaling scaling;
  scaling.kind = RopeScaling::Kind::llama3;
  scaling.factor = 8;
  scaling.low_frequency_factor = 1;
  scaling.high_frequency_factor = 4;
  scaling.original_context = 8192;
  expect_golden(make_rope(128, 500000, scaling), "llama3");
}

/// With config.json's keys: heads of 8 dimensions, base 10,000.
device::Rope rope_of_config(const std::string& rope_parameters) {
  const gristmill::testing::TemporaryFolder folder;
  std::ifstream in(GRISTMILL_TEST_DIR "/golden/hf/llama/config.json");
  std::string config((std::istreambuf_iterator<char>(in)), {});
  const size_t first = config.find("\"rope_parameters\""), end = config.find('}', first);
  config.replace(first, end + 1 - first, "\"rope_parameters\": {\"rope_theta\": 10000.0, " + rope_parameters + "}");
  folder.write("config.json", config);
  return read_decoder_config(HfConfig(folder.path(""))).rope;
}

TEST(Rope, YarnTakesItsMagnitudeFromTheConfigOnce) {
  expect_golden(rope_of_config(R"("type": "yarn", "factor": 4, "attention_factor": 1.25,
                                  "original_max_position_embeddings": 32768)"),
                "yarn_attention_factor");
  expect_golden(rope_of_config(R"("rope_type": "yarn", "factor": 40, "mscale": 0.707, "mscale_all_dim": 1.0,
                                  "original_max_position_embeddings": 4096)"),
                "yarn_mscale");
}

TEST(Rope, DivisorsGiveLlama3Scaling) {
  RopeScaling scaling;
  scaling.divisors = Golden("rope_golden").floats("llama3.divisors");
  const device::Rope rope = make_rope(128, 500000, scaling);
  const std::vector<float> expected = Golden("rope_golden").floats("llama3.inv_freq");
  for (size_t j = 0; j < expected.size(); ++j) EXPECT_NEAR(rope.inv_freq[j] / expected[j], 1.0f, 2e-7f) << j;
}

}  // namespace
}  // namespace gristmill::model
