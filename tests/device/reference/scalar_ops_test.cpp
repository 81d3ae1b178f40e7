#include "device/reference/scalar_ops.h"

#include <gtest/gtest.h>

#include <cmath>

#include "device/memory_weight.h"
#include "device/reference/matrix.h"

namespace gristmill::device::reference {
namespace {

using testing::Numbers;

TEST(ScalarOps, MultiplyIsTheAscendingSumForAnyNumberOfRows) {
  Numbers numbers(1);
  for (const int64_t outputs : {1, 7, 8, 13}) {
    const int64_t inputs = 19;
    const testing::MemoryWeight source("w", outputs, inputs, numbers.take(outputs * inputs));
    std::vector<float> panels(matrix_bytes(source) / sizeof(float));
    const Matrix w = read_matrix(source, panels.data());
    std::vector<float> rows(static_cast<size_t>(outputs * inputs));
    source.read_f32(0, outputs, rows.data());
    const std::vector<float> bias = numbers.take(outputs);
    for (const int tokens : {1, 3, 4, 9}) {
      const std::vector<float> x = numbers.take(tokens * inputs);
      std::vector<float> out(static_cast<size_t>(tokens * outputs));
      multiply(x.data(), tokens, w, bias.data(), out.data());
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t n = 0; n < outputs; ++n) {
          float sum = 0;
          for (int64_t k = 0; k < inputs; ++k)
            sum += x[static_cast<size_t>(t * inputs + k)] * rows[static_cast<size_t>(n * inputs + k)];
          ASSERT_EQ(out[static_cast<size_t>(t * outputs + n)], sum + bias[static_cast<size_t>(n)]);
          ASSERT_EQ(w.at(n, 3), rows[static_cast<size_t>(n * inputs + 3)]);
        }
    }
  }
}

TEST(ScalarOps, RmsNormScalesToUnitMeanSquare) {
  const float x[] = {3, -4, 0, 12, 1};
  const float weight[] = {1, 2, 1, -1, 0.5f};
  float out[5];
  rms_norm(x, 5, weight, 0.5f, out);
  const double root = std::sqrt(170.0 / 5 + 0.5);
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(out[i], x[i] * weight[i] / root, 1e-6);
}

TEST(ScalarOps, RotateTurnsHalfSplitPairsAndLeavesTheRest) {
  const Rope rope{{1.0f, 0.25f}, 1.5f};
  float x[] = {1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, -6};
  const std::vector<float> before(x, x + 12);
  rotate(x, 2, 6, rope, 3);
  for (size_t head = 0; head < 2; ++head) {
    for (size_t j = 0; j < 2; ++j) {
      const double angle = 3 * (j == 0 ? 1.0 : 0.25);
      const double a = static_cast<double>(before[head * 6 + j]), b = static_cast<double>(before[head * 6 + j + 2]);
      EXPECT_NEAR(x[head * 6 + j], 1.5 * (a * std::cos(angle) - b * std::sin(angle)), 1e-5);
      EXPECT_NEAR(x[head * 6 + j + 2], 1.5 * (b * std::cos(angle) + a * std::sin(angle)), 1e-5);
    }
    EXPECT_EQ(x[head * 6 + 4], before[head * 6 + 4]);
    EXPECT_EQ(x[head * 6 + 5], before[head * 6 + 5]);
  }
}

TEST(ScalarOps, SiluMulGatesAlsoFarOut) {
  float gate[] = {0, 1, -1, 200, -200};
  const float up[] = {5, 2, 3, 2, 7};
  silu_mul(gate, up, 5);
  EXPECT_EQ(gate[0], 0);
  EXPECT_NEAR(gate[1], 2 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(gate[2], -3 / (1 + std::exp(1.0)), 1e-6);
  EXPECT_EQ(gate[3], 400);
  EXPECT_EQ(gate[4], 0);
}

TEST(ScalarOps, ArgmaxTakesTheLowestOfEquals) {
  const float values[] = {1, 7, 3, 7};
  EXPECT_EQ(argmax(values, 4), 1);
}

}  // namespace
}  // namespace gristmill::device::reference
