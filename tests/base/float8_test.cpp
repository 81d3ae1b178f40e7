#include "base/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gristmill {
namespace {

TEST(Float8, HasAllItsValues) {
  EXPECT_EQ(fp8_e4m3_to_f32(0x00), 0.0f);
  EXPECT_EQ(fp8_e4m3_to_f32(0x01), 0x1p-9f);
  EXPECT_EQ(fp8_e4m3_to_f32(0x07), 7 * 0x1p-9f);
  EXPECT_EQ(fp8_e4m3_to_f32(0x08), 0x1p-6f);
  EXPECT_EQ(fp8_e4m3_to_f32(0x38), 1.0f);
  EXPECT_EQ(fp8_e4m3_to_f32(0xb9), -1.125f);
  EXPECT_EQ(fp8_e4m3_to_f32(0x7e), 448.0f);
  EXPECT_TRUE(std::isnan(fp8_e4m3_to_f32(0x7f)) && std::isnan(fp8_e4m3_to_f32(0xff)));
  EXPECT_TRUE(std::signbit(fp8_e4m3_to_f32(0x80)));
}

TEST(Float8, EveryValueSurvivesTheWayBack) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    EXPECT_EQ(f32_to_fp8_e4m3(fp8_e4m3_to_f32(static_cast<uint8_t>(code))), code);
  }
}

TEST(Float8, RoundsToTheNearestEven) {
  for (int code = 0; code < 0x7e; ++code) {
    const float low = fp8_e4m3_to_f32(static_cast<uint8_t>(code));
    const float high = fp8_e4m3_to_f32(static_cast<uint8_t>(code + 1)), middle = (low + high) / 2;
    EXPECT_EQ(f32_to_fp8_e4m3(middle), code % 2 == 0 ? code : code + 1) << code;
    EXPECT_EQ(f32_to_fp8_e4m3(std::nextafter(middle, low)), code) << code;
    EXPECT_EQ(f32_to_fp8_e4m3(-std::nextafter(middle, high)), code + 1 + 0x80) << code;
  }
}

TEST(Float8, SaturatesAndKeepsNan) {
  EXPECT_EQ(f32_to_fp8_e4m3(1e9f), 0x7e);
  EXPECT_EQ(f32_to_fp8_e4m3(-std::numeric_limits<float>::infinity()), 0xfe);
  EXPECT_EQ(f32_to_fp8_e4m3(std::numeric_limits<float>::quiet_NaN()) & 0x7f, 0x7f);
  EXPECT_EQ(f32_to_fp8_e4m3(1e-20f), 0);
}

}  // namespace
}  // namespace gristmill
