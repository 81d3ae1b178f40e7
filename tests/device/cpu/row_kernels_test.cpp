// Kernels on rows: every set against the portable one bit for bit, and the portable one against float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/float8.h"
#include "base/half.h"
#include "device/cpu/kernels.h"
#include "device/cpu/tested_kernels.h"

namespace gristmill::device::cpu {
namespace {

std::vector<float> random_row(size_t n, uint32_t seed, float size = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, size);
  std::vector<float> x(n);
  for (float& value : x) value = normal(random);
  return x;
}

/// Runs `work(kernels)`, which returns some vector, with each set and compares with the portable result.
template <class Work>
void expect_portable_bits(Work work) {
  const auto expected = work(portable_kernels());
  for (const Kernels* kernels : tested_kernels()) {
    const auto got = work(*kernels);
    ASSERT_EQ(got.size(), expected.size());
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(got[0])), 0) << kernels->name;
  }
}

const size_t kSizes[] = {1, 7, 8, 15, 16, 31, 32, 33, 64, 75, 100, 576};

TEST(RowKernels, RmsNorm) {
  for (size_t n : kSizes) {
    const auto x = random_row(n, 1, 3.0f), w = random_row(n, 2);
    const auto work = [&](const Kernels& kernels) {
      std::vector<float> out(n + 1, 7.0f);
      kernels.rms_norm(x.data(), w.data(), 1e-5f, static_cast<int64_t>(n), out.data());
      return out;
    };
    expect_portable_bits(work);
    const auto out = work(portable_kernels());
    double sum = 0;
    for (float value : x) sum += static_cast<double>(value) * value;
    const double factor = 1 / std::sqrt(sum / static_cast<double>(n) + 1e-5);
    for (size_t i = 0; i < n; ++i) EXPECT_NEAR(out[i], x[i] * factor * w[i], 1e-5) << n << " " << i;
    EXPECT_EQ(out[n], 7.0f) << "wrote beyond the row";
  }
}

TEST(RowKernels, Add) {
  for (size_t n : kSizes) {
    const auto x = random_row(n, 3), y = random_row(n, 4);
    expect_portable_bits([&](const Kernels& kernels) {
      std::vector<float> out(x);
      out.push_back(7.0f);
      kernels.add(out.data(), y.data(), static_cast<int64_t>(n), out.data());
      return out;
    });
  }
}

TEST(RowKernels, SiluMul) {
  for (size_t n : kSizes) {
    auto gate = random_row(n, 5, 4.0f);
    const auto up = random_row(n, 6);
    if (n > 8) {
      gate[0] = 1000.0f;
      gate[1] = -1000.0f;
      gate[2] = 0.0f;
      gate[3] = -88.5f;
    }
    const auto work = [&](const Kernels& kernels) {
      std::vector<float> out(n);
      kernels.silu_mul(gate.data(), up.data(), static_cast<int64_t>(n), out.data());
      return out;
    };
    expect_portable_bits(work);
    const auto out = work(portable_kernels());
    for (size_t i = 0; i < n; ++i) {
      const double expected = gate[i] / (1 + std::exp(-static_cast<double>(gate[i]))) * up[i];
      EXPECT_NEAR(out[i], expected, 1e-6 + 1e-6 * std::fabs(expected)) << gate[i];
    }
  }
}

TEST(RowKernels, QuantizeRoundsToTheNearestCodeAndKeepsSums) {
  auto x = random_row(6 * kGroup, 7);
  std::fill(x.begin(), x.begin() + kGroup, 0.0f);
  std::fill(x.begin() + kGroup, x.begin() + 2 * kGroup, -2.5f);
  for (int i = 0; i < kGroup; ++i) x[static_cast<size_t>(2 * kGroup + i)] = 1e-36f * static_cast<float>(i);
  const auto work = [&](const Kernels& kernels) {
    std::vector<int8_t> codes(6 * kGroup);
    std::vector<GroupScale> scales(6);
    kernels.quantize(x.data(), 6, codes.data(), kGroup, scales.data(), 1);
    std::vector<std::byte> bytes(codes.size() + scales.size() * sizeof(GroupScale));
    std::memcpy(bytes.data(), codes.data(), codes.size());
    std::memcpy(bytes.data() + codes.size(), scales.data(), scales.size() * sizeof(GroupScale));
    return bytes;
  };
  expect_portable_bits(work);
  std::vector<int8_t> codes(6 * kGroup);
  std::vector<GroupScale> scales(6);
  portable_kernels().quantize(x.data(), 6, codes.data(), kGroup, scales.data(), 1);
  for (size_t group = 0; group < 6; ++group) {
    int sum = 0;
    for (size_t i = 0; i < kGroup; ++i) {
      const int code = codes[group * kGroup + i];
      sum += code;
      EXPECT_NEAR(static_cast<float>(code) * scales[group].scale, x[group * kGroup + i],
                  0.5001f * scales[group].scale + 1e-30f);
      EXPECT_GE(code, -127);
    }
    EXPECT_EQ(scales[group].biased, -128 * sum);
    EXPECT_EQ(scales[group].scaled_sum, scales[group].scale * static_cast<float>(sum));
  }
  EXPECT_EQ(scales[0].scale, 0.0f);
  EXPECT_EQ(codes[kGroup], -127);
}

TEST(RowKernels, QuantizeMakesTheScaleOfAGroupWithNaNNone) {
  for (size_t at = 0; at < kGroup; ++at) {
    auto x = random_row(3 * kGroup, 8);
    x[kGroup + at] = at % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::quiet_NaN();
    for (const Kernels* kernels : tested_kernels()) {
      std::vector<int8_t> codes(3 * kGroup, 5);
      std::vector<GroupScale> scales(3);
      kernels->quantize(x.data(), 3, codes.data(), kGroup, scales.data(), 1);
      EXPECT_TRUE(std::isnan(scales[1].scale) && std::isnan(scales[1].scaled_sum)) << kernels->name << " " << at;
      EXPECT_TRUE(std::isfinite(scales[0].scale) && std::isfinite(scales[2].scale)) << kernels->name << " " << at;
      EXPECT_EQ(codes[kGroup], 0);
    }
  }
}

TEST(RowKernels, Rotate) {
  for (int half : {0, 1, 8, 11, 32}) {
    for (int rest : {0, 1, 16}) {
      const int head_dim = 2 * half + rest;
      if (head_dim == 0) continue;
      const auto x = random_row(static_cast<size_t>(head_dim), 8), angles = random_row(static_cast<size_t>(half), 9);
      std::vector<float> cosines, sines;
      for (float angle : angles) {
        cosines.push_back(std::cos(angle));
        sines.push_back(std::sin(angle));
      }
      const auto work = [&](const Kernels& kernels) {
        std::vector<float> out(static_cast<size_t>(head_dim));
        kernels.rotate(x.data(), cosines.data(), sines.data(), half, head_dim, 0.125f, out.data());
        return out;
      };
      expect_portable_bits(work);
      const auto out = work(portable_kernels());
      for (int j = 0; j < half; ++j) {
        const auto a = static_cast<size_t>(j), b = static_cast<size_t>(half + j);
        EXPECT_NEAR(out[a], 0.125 * (x[a] * cosines[a] - x[b] * sines[a]), 1e-6);
        EXPECT_NEAR(out[b], 0.125 * (x[b] * cosines[a] + x[a] * sines[a]), 1e-6);
      }
    }
  }
}

TEST(RowKernels, RoundGoesToTheNearestEven) {
  auto x = random_row(70, 10, 100.0f);
  x[0] = 0.0f;
  x[1] = -0.0f;
  x[2] = std::bit_cast<float>(0x3f808000u);  // halfway between two bfloat16
  x[3] = std::bit_cast<float>(0x3f818000u);
  x[4] = 1e-30f;
  x[5] = 65520.0f;  // overflows binary16
  x[6] = 3.4e38f;
  x[7] = std::numeric_limits<float>::infinity();
  for (DType dtype : {DType::bf16, DType::f16}) {
    for (size_t n : {1u, 9u, 16u, 70u}) {
      const auto work = [&](const Kernels& kernels) {
        std::vector<uint16_t> out(n + 1, 7);
        kernels.round(dtype, x.data(), static_cast<int64_t>(n), out.data());
        return out;
      };
      expect_portable_bits(work);
      const auto out = work(portable_kernels());
      for (size_t i = 0; i < n; ++i) EXPECT_EQ(out[i], dtype == DType::bf16 ? f32_to_bf16(x[i]) : f32_to_f16(x[i]));
      EXPECT_EQ(out[n], 7);
    }
  }
}

TEST(RowKernels, EncodeGivesTheLargestMagnitudeTheLargestCode) {
  auto x = random_row(70, 12, 3.0f);
  x[40] = -20.0f;
  for (DType dtype : {DType::i8, DType::fp8_e4m3}) {
    for (size_t n : {1u, 9u, 16u, 33u, 70u}) {
      float scale = 0;
      const auto work = [&](const Kernels& kernels) {
        std::vector<uint8_t> codes(n + 1, 7);
        scale = kernels.encode(dtype, x.data(), static_cast<int>(n), codes.data());
        return codes;
      };
      expect_portable_bits(work);
      const auto codes = work(portable_kernels());
      const float largest = std::fabs(
          n > 40 ? x[40] : *std::max_element(x.begin(), x.begin() + static_cast<long>(n), [](float a, float b) {
            return std::fabs(a) < std::fabs(b);
          }));
      for (size_t i = 0; i < n; ++i) {
        const bool i8 = dtype == DType::i8;
        const float value = i8 ? static_cast<float>(static_cast<int8_t>(codes[i])) * scale
                               : fp8_e4m3_to_f32(codes[i]) * 0x1p-8f * scale;
        EXPECT_NEAR(value, x[i], i8 ? largest / 253 : std::fabs(x[i]) / 15 + largest * 0x1p-19f) << n << " " << i;
      }
      EXPECT_EQ(codes[n], 7);
    }
    const std::vector<float> zeros(5);
    uint8_t codes[5];
    EXPECT_EQ(portable_kernels().encode(dtype, zeros.data(), 5, codes), 0.0f);
    EXPECT_EQ(codes[0], 0);
    EXPECT_EQ(codes[4], 0);
  }
}

TEST(RowKernels, ArgmaxIsTheFirstMaximum) {
  for (const Kernels* kernels : tested_kernels()) {
    for (size_t n : kSizes) {
      auto x = random_row(n, 11);
      EXPECT_EQ(kernels->argmax(x.data(), static_cast<int64_t>(n)), std::max_element(x.begin(), x.end()) - x.begin());
      for (size_t at : {n / 3, n / 2, n - 1}) x[at] = 100.0f;
      EXPECT_EQ(kernels->argmax(x.data(), static_cast<int64_t>(n)), static_cast<int64_t>(n / 3)) << kernels->name << n;
      std::fill(x.begin(), x.end(), -std::numeric_limits<float>::infinity());
      EXPECT_EQ(kernels->argmax(x.data(), static_cast<int64_t>(n)), 0);
    }
  }
}

}  // namespace
}  // namespace gristmill::device::cpu
