#include "model/rope.h"

#include <gtest/gtest.h>

#include "model/golden.h"

namespace gristmill::model {
namespace {

void expect_golden(const device::Rope& rope, const std::string& name) {
  const Golden golden("rope_golden");
  const std::vector<float> expected = golden.floats(name + ".inv_freq");
  ASSERT_EQ(rope.inv_freq.size(), expected.size());
  for (size_t j = 0; j < expected.size(); ++j)
    EXPECT_NEAR(rope.inv_freq[j] / expected[j], 1.0f, 2e-6f) << name << " pair " << j;
  EXPECT_NEAR(rope.magnitude, golden.floats(name + ".magnitude")[0], 1e-6f);
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

TEST(Rope, DivisorsGiveLlama3Scaling) {
  RopeScaling scaling;
  scaling.divisors = Golden("rope_golden").floats("llama3.divisors");
  expect_golden(make_rope(128, 500000, scaling), "llama3");
}

}  // namespace
}  // namespace gristmill::model
