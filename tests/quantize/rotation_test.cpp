#include "quantize/rotation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/error.h"

namespace gristmill::quantize {
namespace {

TEST(Rotation, IsOrthogonalWithEntriesOfOneSizeForEveryKindOfOrder) {
  // Powers of two; Paley's first (12, 20, 24, 48 ...) and second construction (28, 36); 576 = 16 * 36 is SmolLM2's.
  for (const int64_t n : {1, 2, 8, 64, 12, 20, 24, 28, 36, 96, 144, 192, 288, 576}) {
    const Rotation rotation(n, 1234);
    const std::vector<float> q = rotation.matrix();
    const double size = 1 / std::sqrt(static_cast<double>(n));
    for (const float entry : q) ASSERT_NEAR(std::fabs(entry), size, 1e-6) << n;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j <= i; ++j) {
        double product = 0;
        for (int64_t k = 0; k < n; ++k)
          product += static_cast<double>(q[static_cast<size_t>(i * n + k)]) * q[static_cast<size_t>(j * n + k)];
        ASSERT_NEAR(product, i == j ? 1.0 : 0.0, 1e-5) << n << " " << i << " " << j;
      }
  }
}

TEST(Rotation, DependsOnItsSeedOnly) {
  EXPECT_EQ(Rotation(96, 1).matrix(), Rotation(96, 1).matrix());
  EXPECT_NE(Rotation(96, 1).matrix(), Rotation(96, 2).matrix());
}

TEST(Rotation, RefusesOrdersWithoutAHadamardMatrix) {
  for (const int64_t n : {3, 6, 50, 578}) {
    try {
      const Rotation rotation(n, 1);
      FAIL() << n;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(n)), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace gristmill::quantize
