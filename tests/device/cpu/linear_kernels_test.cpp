// The linears of every kernel set: against a plain sum, against the portable set bit for bit, and row by row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "device/cpu/kernels.h"
#include "device/cpu/random_program.h"
#include "device/cpu/tested_kernels.h"

namespace gristmill::device::cpu {
namespace {

/// A source packed for one kernel set.
struct Packed {
  PackedWeight weight;
  std::vector<std::byte> bytes;

  Packed(const WeightSource& source, const Kernels& kernels) : weight(packed_form(source, kernels, false)) {
    bytes.resize(weight.bytes());
    pack_panels(source, weight, 0, weight.panels(), bytes.data());
    weight.data = bytes.data();
  }
};

/// Rows of activations in blocks, as stages lay them out.
struct Quantized {
  int rows;
  int64_t groups;
  std::vector<int8_t> codes;
  std::vector<GroupScale> scales;

  Quantized(const Kernels& kernels, const std::vector<float>& x, int row_count, int64_t columns)
      : rows(row_count),
        groups(columns / kGroup),
        codes(static_cast<size_t>(rows * columns)),
        scales(static_cast<size_t>(rows * groups)) {
    for (int r = 0; r < rows; ++r) {
      const int block = r / kRowBlock * kRowBlock, height = std::min(kRowBlock, rows - block);
      kernels.quantize(x.data() + r * columns, groups, codes.data() + block * columns + (r - block) * kGroup,
                       height * kGroup, scales.data() + block * groups + (r - block), height);
    }
  }
  QuantizedBlock block(int index) const {
    const int first = index * kRowBlock;
    return {codes.data() + first * groups * kGroup, scales.data() + first * groups, std::min(kRowBlock, rows - first)};
  }
};

std::vector<float> activations(int rows, int64_t columns, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(rows * columns));
  for (float& value : x) value = normal(random);
  // A zero group, and one in which every code is an extreme.
  for (int64_t k = 0; k < std::min<int64_t>(columns, kGroup); ++k) x[static_cast<size_t>(k)] = 0.0f;
  if (rows > 1) {
    for (int64_t k = 0; k < std::min<int64_t>(columns, kGroup); ++k) {
      x[static_cast<size_t>(columns + k)] = random() % 2 == 0 ? 3.0f : -3.0f;
    }
  }
  return x;
}

std::vector<float> run(const Kernels& kernels, const Packed& packed, const std::vector<float>& x, int rows) {
  const PackedWeight& w = packed.weight;
  const int64_t stride = w.panels() * w.panel;
  std::vector<float> padded(static_cast<size_t>(rows * stride)), y;
  if (w.coded()) {
    const Quantized quantized(kernels, x, rows, w.inputs);
    for (int block = 0; block * kRowBlock < rows; ++block) {
      // In two calls, so that the first panel of a call is not always the matrix's first.
      const int64_t half = w.panels() / 2;
      float* const to = padded.data() + block * kRowBlock * stride;
      kernels.coded_linear(w, 0, half, quantized.block(block), to, stride);
      kernels.coded_linear(w, half, w.panels() - half, quantized.block(block), to + half * w.panel, stride);
    }
  } else {
    kernels.float_linear(w, 0, w.panels(), x.data(), w.inputs, rows, padded.data(), stride);
  }
  for (int r = 0; r < rows; ++r) {
    y.insert(y.end(), padded.begin() + r * stride, padded.begin() + r * stride + w.outputs);
  }
  return y;
}

struct Case {
  const char* name;
  Encoding encoding;
};
const Case kCases[] = {
    {"q4_1", kQ41}, {"q4_0", kQ40}, {"q8_0", kQ80},           {"q8_1", kQ81},
    {"f32", kF32},  {"f16", kF16},  {"bf16", kBf16},          {"i4_zero_min", {ComputeClass::i4_group, 32, 7, true}},
    {"i8", kW8A16}, {"fp8", kFp8},  {"fp8_group", kFp8Group}, {"fp8_group33", {ComputeClass::f8_float, 33}}};

class LinearKernels : public testing::TestWithParam<Case> {};

TEST_P(LinearKernels, PortableFollowsThePlainSum) {
  const Encoding& encoding = GetParam().encoding;
  const int64_t outputs = 21, inputs = 96;
  const RandomWeight source("w", outputs, inputs, encoding, 3);
  std::vector<float> w(static_cast<size_t>(outputs * inputs));
  source.read_f32(0, outputs, w.data());
  const auto x = activations(5, inputs, 4);
  const auto y = run(portable_kernels(), Packed(source, portable_kernels()), x, 5);
  for (int64_t r = 0; r < 5; ++r) {
    for (int64_t n = 0; n < outputs; ++n) {
      double sum = 0, size = 0;
      for (int64_t k = 0; k < inputs; ++k) {
        sum += static_cast<double>(w[static_cast<size_t>(n * inputs + k)]) * x[static_cast<size_t>(r * inputs + k)];
        size += std::fabs(static_cast<double>(w[static_cast<size_t>(n * inputs + k)])) * 3.0;
      }
      const bool exact = encoding.group == 0 || is_byte_class(encoding.cls);
      const double bound = exact ? 1e-6 * size : size / 127;  // half a step of the activations' codes
      ASSERT_NEAR(y[static_cast<size_t>(r * outputs + n)], sum, bound) << r << " " << n;
    }
  }
}

TEST_P(LinearKernels, EverySetGivesThePortableBits) {
  const Encoding& encoding = GetParam().encoding;
  for (const auto& [outputs, inputs] : {std::pair<int64_t, int64_t>{1, 32}, {8, 64}, {45, 96}, {64, 576}, {71, 32}}) {
    RandomWeight source("w", outputs, inputs, encoding, 5);
    if (encoding.group != 0 && !is_byte_class(encoding.cls)) {  // rows of extreme codes
      for (size_t i = 0; i < static_cast<size_t>(inputs); ++i)
        source.codes()[i] = encoding.cls == ComputeClass::i4_group ? 15 : 0x80;
      if (outputs > 1) {
        for (size_t i = 0; i < static_cast<size_t>(inputs); ++i)
          source.codes()[static_cast<size_t>(inputs) + i] = encoding.cls == ComputeClass::i4_group ? 0 : 0x7f;
      }
    }
    const Packed portable(source, portable_kernels());
    for (int rows = 1; rows <= 70; rows += rows < 14 ? 1 : 8) {
      const auto x = activations(rows, inputs, 6);
      const auto expected = run(portable_kernels(), portable, x, rows);
      for (const Kernels* kernels : tested_kernels()) {
        ASSERT_EQ(run(*kernels, Packed(source, *kernels), x, rows), expected)
            << kernels->name << " " << outputs << "x" << inputs << " M " << rows;
      }
    }
  }
}

class FloatLinearKernels : public testing::TestWithParam<Case> {};

TEST_P(FloatLinearKernels, TakeAnyNumberOfInputs) {
  for (int64_t inputs : {1, 2, 7, 33, 511, 513, 1030}) {
    const RandomWeight source("w", 40, inputs, GetParam().encoding, 7);
    const Packed portable(source, portable_kernels());
    for (int rows : {1, 4, 13, 40}) {
      const auto x = activations(rows, inputs, 8);
      const auto expected = run(portable_kernels(), portable, x, rows);
      for (const Kernels* kernels : tested_kernels()) {
        ASSERT_EQ(run(*kernels, Packed(source, *kernels), x, rows), expected) << kernels->name << " K " << inputs;
      }
    }
  }
}

TEST_P(LinearKernels, ARowHasTheSameBitsInAnyBatch) {
  const int64_t outputs = 70, inputs = 160;
  const RandomWeight source("w", outputs, inputs, GetParam().encoding, 9);
  const auto x = activations(70, inputs, 10);
  for (const Kernels* kernels : tested_kernels()) {
    const Packed packed(source, *kernels);
    const auto whole = run(*kernels, packed, x, 70);
    for (int rows : {1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 33, 64, 65}) {
      for (int first : {0, 5}) {
        const std::vector<float> part(x.begin() + first * inputs, x.begin() + (first + rows) * inputs);
        const std::vector<float> expected(whole.begin() + first * outputs, whole.begin() + (first + rows) * outputs);
        ASSERT_EQ(run(*kernels, packed, part, rows), expected) << kernels->name << " M " << rows << " from " << first;
      }
    }
  }
}

TEST_P(LinearKernels, PackedRowsReadBackAsTheyWere) {
  for (int64_t inputs : {64, 96}) {
    const RandomWeight source("w", 37, inputs, GetParam().encoding, 11);
    std::vector<float> expected(static_cast<size_t>(inputs)), got(expected);
    for (const Kernels* kernels : tested_kernels()) {
      const Packed packed(source, *kernels);
      for (int64_t row : {0, 7, 8, 31, 36}) {
        source.read_f32(row, 1, expected.data());
        read_packed_row(packed.weight, row, got.data());
        for (size_t k = 0; k < got.size(); ++k)
          ASSERT_NEAR(got[k], expected[k], 1e-6 * std::fabs(expected[k]) + 1e-6) << kernels->name << " " << row;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Classes, LinearKernels, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

INSTANTIATE_TEST_SUITE_P(Classes, FloatLinearKernels,
                         testing::Values(Case{"f32", kF32}, Case{"f16", kF16}, Case{"bf16", kBf16},
                                         Case{"fp8_group", kFp8Group}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(PackedWeight, CodedGroupsOfAnotherSizeBecomeFloat32) {
  const RandomWeight source("w", 16, 64, {ComputeClass::i8_group, 16, 0, false}, 12);
  EXPECT_EQ(packed_form(source, portable_kernels(), false).cls, ComputeClass::f32);
  const RandomWeight coded("w", 16, 64, kQ80, 12);
  EXPECT_EQ(packed_form(coded, portable_kernels(), false).cls, ComputeClass::i8_group);
  EXPECT_EQ(packed_form(coded, portable_kernels(), true).cls, ComputeClass::f32);
}

}  // namespace
}  // namespace gristmill::device::cpu
