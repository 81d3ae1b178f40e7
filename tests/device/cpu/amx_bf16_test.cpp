// Linears of bfloat16 weights in tiles, over emulated instructions, against their definition (amx_bf16.h) in plain C++.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/half.h"
#include "device/cpu/amx_bf16_linear.h"
#include "device/cpu/emulated_amx.h"
#include "device/cpu/emulated_x86.h"
#include "device/cpu/kernels.h"
#include "device/cpu/random_program.h"

namespace gristmill::device::cpu {
namespace {

struct Packed {
  PackedWeight weight;
  std::vector<std::byte> bytes;

  explicit Packed(const WeightSource& source) : weight(packed_form(source, portable_kernels(), false)) {
    bytes.resize(weight.bytes());  // nothing behind the last panel, so that a sanitizer sees reads beyond it
    pack_panels(source, weight, 0, weight.panels(), bytes.data());
    weight.data = bytes.data();
  }
};

std::vector<float> activations(int rows, int64_t width, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(rows * width));
  for (float& value : x) value = normal(random);
  return x;
}

std::vector<float> run(const PackedWeight& w, const std::vector<float>& x, int rows) {
  const int64_t stride = w.panels() * w.panel;
  std::vector<float> padded(static_cast<size_t>(rows * stride)), y;
  amx_bf16_linear<EmulatedTiles, EmulatedBf16>(w, 0, w.panels(), x.data(), w.inputs, rows, padded.data(), stride);
  for (int r = 0; r < rows; ++r)
    y.insert(y.end(), padded.begin() + r * stride, padded.begin() + r * stride + w.outputs);
  return y;
}

float zero_if_denormal(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

float defined(const float* x, const float* w, int64_t inputs) {
  float y = 0;
  for (int64_t first = 0; first < inputs; first += 32) {
    float even = 0, odd = 0;
    for (int64_t k = first; k < std::min(first + 32, inputs); ++k) {
      float& sum = k % 2 == 0 ? even : odd;
      const float rounded = bf16_to_f32(f32_to_bf16(zero_if_denormal(x[k])));
      sum = zero_if_denormal(std::fma(rounded, zero_if_denormal(w[k]), sum));
    }
    y = zero_if_denormal(y + zero_if_denormal(even + odd));
  }
  return y;
}

TEST(AmxBf16Kernels, FollowTheirDefinitionForAnySize) {
  for (const auto& [outputs, inputs] :
       {std::pair<int64_t, int64_t>{1, 1}, {3, 31}, {33, 32}, {40, 95}, {64, 160}, {17, 2}}) {
    const RandomWeight source("w", outputs, inputs, kBf16, 5);
    std::vector<float> w(static_cast<size_t>(outputs * inputs));
    source.read_f32(0, outputs, w.data());
    const Packed packed(source);
    for (int rows : {1, 2, 15, 16, 17, 32, 33, 64}) {
      const auto x = activations(rows, inputs, 6);
      const auto y = run(packed.weight, x, rows);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t n = 0; n < outputs; ++n)
          ASSERT_EQ(y[static_cast<size_t>(r * outputs + n)],
                    defined(&x[static_cast<size_t>(r * inputs)], &w[static_cast<size_t>(n * inputs)], inputs))
              << outputs << "x" << inputs << " M " << rows << " row " << r << " output " << n;
    }
  }
}

TEST(AmxBf16Kernels, ARowHasTheSameBitsInAnyBatch) {
  const int64_t outputs = 40, inputs = 161;
  const RandomWeight source("w", outputs, inputs, kBf16, 7);
  const Packed packed(source);
  const auto x = activations(70, inputs, 8);
  const auto whole = run(packed.weight, x, 70);
  for (int rows : {1, 3, 16, 31, 50})
    for (int first : {0, 7}) {
      const std::vector<float> part(x.begin() + first * inputs, x.begin() + (first + rows) * inputs);
      const std::vector<float> expected(whole.begin() + first * outputs, whole.begin() + (first + rows) * outputs);
      ASSERT_EQ(run(packed.weight, part, rows), expected) << rows << " from " << first;
    }
}

TEST(AmxBf16Kernels, TakeTinyValuesAsZero) {
  const RandomWeight source("w", 2, 64, kBf16, 9);
  std::vector<float> w(128);
  source.read_f32(0, 2, w.data());
  const Packed packed(source);
  auto x = activations(2, 64, 10);
  for (size_t k = 0; k < x.size(); ++k) x[k] *= k % 3 == 0 ? 1e-40f : 1e-37f;
  const auto y = run(packed.weight, x, 2);
  for (size_t r = 0; r < 2; ++r)
    for (size_t n = 0; n < 2; ++n) EXPECT_EQ(y[r * 2 + n], defined(&x[r * 64], &w[n * 64], 64));
}

}  // namespace
}  // namespace gristmill::device::cpu
