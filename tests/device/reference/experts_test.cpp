#include "device/reference/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "device/memory_weight.h"
#include "device/reference/scalar_ops.h"

namespace gristmill::device::reference {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using testing::Numbers;

struct Choice {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Choice choose(Moe moe, std::vector<float> logits, const std::vector<float>& bias = {}) {
  moe.experts = static_cast<int>(logits.size());
  Choice choice{std::vector<int32_t>(static_cast<size_t>(moe.top_k)),
                std::vector<float>(static_cast<size_t>(moe.top_k))};
  route(moe, bias.empty() ? nullptr : bias.data(), logits.data(), choice.experts.data(), choice.weights.data());
  return choice;
}

TEST(Route, RanksBySoftmaxAndRenormalizes) {
  Moe moe;
  moe.top_k = 2;
  const std::vector<float> logits{std::log(1.0f), std::log(4.0f), std::log(2.0f), std::log(3.0f)};
  const Choice renormalized = choose(moe, logits);
  EXPECT_THAT(renormalized.experts, ElementsAre(1, 3));
  EXPECT_NEAR(renormalized.weights[0], 4.0 / 7, 1e-6);
  EXPECT_NEAR(renormalized.weights[1], 3.0 / 7, 1e-6);
  moe.renormalize = false;
  moe.scale = 2;
  EXPECT_NEAR(choose(moe, logits).weights[0], 0.8, 1e-6);
}

TEST(Route, TakesTheLowerOfEqualExperts) {
  Moe moe;
  moe.top_k = 3;
  EXPECT_THAT(choose(moe, {1, 2, 1, 2, 1}).experts, ElementsAre(1, 3, 0));
  EXPECT_THAT(choose(moe, {0, 0, 0, 0}).experts, ElementsAre(0, 1, 2));
}

TEST(Route, BiasChoosesButDoesNotWeigh) {
  Moe moe;
  moe.top_k = 2;
  moe.sigmoid = true;
  const Choice choice = choose(moe, {0, 0, 0, 0}, {0.1f, 0.3f, -0.1f, 0.2f});
  EXPECT_THAT(choice.experts, ElementsAre(1, 3));
  EXPECT_THAT(choice.weights, ElementsAre(FloatEq(0.5f), FloatEq(0.5f)));
}

TEST(MixExperts, AddsTheChosenExpertsOfAnyWidth) {
  constexpr int kHidden = 5, kExperts = 3;
  Moe moe;
  moe.experts = kExperts;
  moe.top_k = 2;
  moe.width = 3;  // neither rows of gate and up nor of down begin at a panel
  Numbers numbers(5);
  const auto matrix = [&](int rows, int columns, std::vector<float>* panels) {
    const auto source = testing::random_weight("w", rows, columns, numbers);
    panels->assign(matrix_bytes(*source) / sizeof(float), 0.0f);
    return read_matrix(*source, panels->data());
  };
  std::vector<float> panels[3], work(experts_work(moe, kHidden)), out(kHidden);
  const Matrix router = matrix(kExperts, kHidden, &panels[0]);
  const Matrix gate_up = matrix(kExperts * 2 * moe.width, kHidden, &panels[1]);
  const Matrix down = matrix(kExperts * kHidden, moe.width, &panels[2]);
  const std::vector<float> x = numbers.take(kHidden);
  mix_experts(moe, x.data(), kHidden, router, nullptr, gate_up, down, work.data(), out.data());

  const auto product = [](const Matrix& w, int row, const std::vector<float>& in) {
    float sum = 0;
    for (size_t k = 0; k < in.size(); ++k) sum += in[k] * w.at(row, static_cast<int64_t>(k));
    return sum;
  };
  std::vector<float> logits;
  for (int e = 0; e < kExperts; ++e) logits.push_back(product(router, e, x));
  const Choice choice = choose(moe, logits);
  for (int i = 0; i < kHidden; ++i) {
    float sum = 0;
    for (int r = 0; r < moe.top_k; ++r) {
      const int e = choice.experts[static_cast<size_t>(r)];
      std::vector<float> inner;
      for (int j = 0; j < moe.width; ++j)
        inner.push_back(silu(product(gate_up, e * 2 * moe.width + j, x)) *
                        product(gate_up, (e * 2 + 1) * moe.width + j, x));
      sum += choice.weights[static_cast<size_t>(r)] * product(down, e * kHidden + i, inner);
    }
    EXPECT_FLOAT_EQ(out[static_cast<size_t>(i)], sum);
  }
}

TEST(NormParts, NormsEachHeadOrTheWholeRow) {
  const std::vector<float> weight{2, 2, 2, 2};
  std::vector<float> heads{3, 4, 0.3f, 0.4f};
  norm_parts(heads.data(), 4, weight.data(), 2, 0);
  EXPECT_FLOAT_EQ(heads[0], heads[2]);
  std::vector<float> row{3, 4, 0.3f, 0.4f};
  norm_parts(row.data(), 4, weight.data(), 4, 0);
  EXPECT_FLOAT_EQ(row[0], 10 * row[2]);
}

TEST(ApplyGate, ScalesElementsOrWholeRows) {
  const std::vector<float> x{1, 2}, gates{0, 100}, one{0};
  std::vector<float> out(2);
  apply_gate(x.data(), 2, gates.data(), 2, out.data());
  EXPECT_THAT(out, ElementsAre(0.5f, 2.0f));
  apply_gate(x.data(), 2, one.data(), 1, out.data());
  EXPECT_THAT(out, ElementsAre(0.5f, 1.0f));
}

}  // namespace
}  // namespace gristmill::device::reference
