// The channel classes of every kernel set against the reference back end's plain integers, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "device/cpu/kernels.h"
#include "device/cpu/random_program.h"
#include "device/cpu/tested_kernels.h"
#include "device/reference/matrix.h"

namespace gristmill::device::cpu {
namespace {

struct Packed {
  PackedWeight weight;
  std::vector<std::byte> bytes;

  Packed(const WeightSource& source, const Kernels& kernels) : weight(packed_form(source, kernels, false)) {
    bytes.resize(weight.bytes());
    pack_panels(source, weight, 0, weight.panels(), bytes.data());
    weight.data = bytes.data();
  }
};

/// Rows quantized as stages do it, in blocks of kRowBlock.
struct Tokens {
  int rows;
  int64_t blocks;
  std::vector<int8_t> codes;
  std::vector<int32_t> sums;
  std::vector<TokenScale> scales;

  Tokens(const Kernels& kernels, const std::vector<float>& x, int row_count, int64_t width, const StaticInput* input)
      : rows(row_count),
        blocks((width + kGroup - 1) / kGroup),
        codes(static_cast<size_t>(rows * blocks * kGroup), 99),
        sums(static_cast<size_t>(rows * blocks)),
        scales(static_cast<size_t>(rows)) {
    for (int r = 0; r < rows; ++r) {
      const int first = r / kRowBlock * kRowBlock, height = std::min(kRowBlock, rows - first);
      kernels.quantize_token(x.data() + r * width, width, input,
                             codes.data() + first * blocks * kGroup + (r - first) * kGroup, height * kGroup,
                             sums.data() + first * blocks + (r - first), height, scales.data() + r);
    }
  }
  TokenBlock block(int first) const {
    return {codes.data() + first * blocks * kGroup, sums.data() + first * blocks, scales.data() + first,
            std::min(kRowBlock, rows - first)};
  }
};

std::vector<float> run(const Kernels& kernels, const Packed& packed, const std::vector<float>& x, int rows) {
  const PackedWeight& w = packed.weight;
  const int64_t stride = w.panels() * w.panel;
  const Tokens tokens(kernels, x, rows, w.inputs, w.input ? &*w.input : nullptr);
  std::vector<float> padded(static_cast<size_t>(rows * stride)), y;
  for (int first = 0; first < rows; first += kRowBlock) {
    const int64_t half = w.panels() / 2;
    float* const to = padded.data() + first * stride;
    kernels.channel_linear(w, 0, half, tokens.block(first), to, stride);
    kernels.channel_linear(w, half, w.panels() - half, tokens.block(first), to + half * w.panel, stride);
  }
  for (int r = 0; r < rows; ++r)
    y.insert(y.end(), padded.begin() + r * stride, padded.begin() + r * stride + w.outputs);
  return y;
}

std::vector<float> reference(const WeightSource& source, const std::vector<float>& x, int rows) {
  std::vector<float> memory(reference::matrix_bytes(source) / sizeof(float) + 1);
  const reference::Matrix matrix = reference::read_matrix(source, memory.data());
  std::vector<float> y(static_cast<size_t>(rows * source.rows()));
  reference::multiply(x.data(), rows, matrix, nullptr, y.data());
  return y;
}

/// Random rows; the second is zero, the third all extremes.
std::vector<float> activations(int rows, int64_t width, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(rows * width));
  for (float& value : x) value = normal(random);
  for (int64_t k = 0; k < width; ++k) {
    if (rows > 1) x[static_cast<size_t>(width + k)] = 0.0f;
    if (rows > 2) x[static_cast<size_t>(2 * width + k)] = random() % 2 == 0 ? 3.0f : -3.0f;
  }
  return x;
}

struct Case {
  const char* name;
  Encoding encoding;
};
const Case kCases[] = {{"w8a8", kW8A8},
                       {"w8a8_static", kW8A8Static},
                       {"w4a8", kW4A8},
                       {"w4a8_group32", kW4A8Group},
                       {"w4a8_group64", {ComputeClass::i4_channel, 64, 0, false}},
                       {"w4a8_group48", {ComputeClass::i4_channel, 48, 0, false}},
                       {"w4a8_group5", {ComputeClass::i4_channel, 5, 0, false}},
                       {"w8a8_group32", {ComputeClass::i8_channel, 32, 0, false}}};

class ChannelKernels : public testing::TestWithParam<Case> {};

TEST_P(ChannelKernels, EverySetGivesTheReferenceBitsForAnySize) {
  const Encoding& encoding = GetParam().encoding;
  const bool nibbles = encoding.cls == ComputeClass::i4_channel;
  for (const auto& [outputs, inputs] :
       {std::pair<int64_t, int64_t>{1, 1}, {3, 31}, {8, 64}, {45, 97}, {64, 576}, {71, 33}, {40, 190}}) {
    RandomWeight source("w", outputs, inputs, encoding, 5);
    for (int64_t row = 0; row < std::min<int64_t>(2, outputs); ++row)  // rows of extreme codes
      for (int64_t k = 0; k < inputs; ++k)
        source.codes()[static_cast<size_t>(row * inputs + k)] =
            static_cast<uint8_t>(row == 0 ? (nibbles ? -8 : -128) : (nibbles ? 7 : 127));
    std::vector<Packed> packed;
    for (const Kernels* kernels : tested_kernels()) packed.emplace_back(source, *kernels);
    for (int rows = 1; rows <= 70; rows += rows < 10 ? 1 : 12) {
      const auto x = activations(rows, inputs, 6);
      const auto expected = reference(source, x, rows);
      for (size_t i = 0; i < packed.size(); ++i) {
        const Kernels& kernels = *tested_kernels()[i];
        ASSERT_EQ(run(kernels, packed[i], x, rows), expected)
            << kernels.name << " " << outputs << "x" << inputs << " M " << rows;
      }
    }
  }
}

TEST_P(ChannelKernels, PackedRowsReadBackAsTheyWere) {
  for (int64_t inputs : {64, 97}) {
    const RandomWeight source("w", 37, inputs, GetParam().encoding, 11);
    std::vector<float> expected(static_cast<size_t>(inputs)), got(expected);
    for (const Kernels* kernels : tested_kernels()) {
      const Packed packed(source, *kernels);
      for (int64_t row : {0, 7, 8, 31, 36}) {
        source.read_f32(row, 1, expected.data());
        read_packed_row(packed.weight, row, got.data());
        EXPECT_EQ(got, expected) << kernels->name << " " << row;
      }
    }
  }
}

TEST_P(ChannelKernels, OneWeightAtAnyPlaceMeetsItsInput) {
  const Encoding& encoding = GetParam().encoding;
  const int64_t outputs = 33, inputs = 67;
  RandomWeight source("w", outputs, inputs, encoding, 12);
  const auto x = activations(1, inputs, 13);
  for (int64_t k = 0; k < inputs; ++k) {
    std::fill(source.codes().begin(), source.codes().end(), uint8_t{0});
    source.codes()[static_cast<size_t>((k * 7) % outputs * inputs + k)] = static_cast<uint8_t>(-8);
    const auto expected = reference(source, x, 1);
    for (const Kernels* kernels : tested_kernels())
      ASSERT_EQ(run(*kernels, Packed(source, *kernels), x, 1), expected) << kernels->name << " " << k;
  }
}

INSTANTIATE_TEST_SUITE_P(Classes, ChannelKernels, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(ChannelKernels, ExtremesOverManyInputsStayExact) {
  // Sums pass 2^24, above which float32 rounds them, and pairs of products reach 2 * 128 * 127.
  const int64_t outputs = 33, inputs = 12288;
  RandomWeight source("w", outputs, inputs, kW8A8, 3);
  std::fill(source.codes().begin(), source.codes().end(), uint8_t{0x80});
  std::vector<float> x(static_cast<size_t>(3 * inputs), -1.0f);
  std::fill(x.begin() + inputs, x.begin() + 2 * inputs, 1.0f);
  for (int64_t k = 0; k < inputs; ++k) x[static_cast<size_t>(2 * inputs + k)] = k % 2 == 0 ? 1.0f : -0.9f;
  const auto expected = reference(source, x, 3);
  for (const Kernels* kernels : tested_kernels())
    EXPECT_EQ(run(*kernels, Packed(source, *kernels), x, 3), expected) << kernels->name;
}

TEST(QuantizeToken, EverySetGivesTheReferenceCodes) {
  const StaticInput fixed{0.02f, 11};
  constexpr float kTiny = 1e-45f, kInfinity = std::numeric_limits<float>::infinity();
  for (int64_t width : {1, 2, 7, 16, 31, 32, 33, 64, 95, 576, 577}) {
    std::vector<std::vector<float>> rows{activations(1, width, 20),
                                         std::vector<float>(static_cast<size_t>(width), 0.0f),
                                         std::vector<float>(static_cast<size_t>(width), kTiny)};
    rows.push_back(rows[0]);
    for (float& value : rows.back()) value *= 1e-43f;  // the scale is a subnormal of few bits
    rows.push_back(rows[0]);
    for (size_t i = 0; i < rows.back().size(); ++i)  // ties
      rows.back()[i] = i == 0 ? 127.0f : static_cast<float>(static_cast<int>(i * 37 % 253) - 126) + 0.5f;
    for (const float odd : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
      rows.push_back(rows[0]);
      rows.back()[rows.back().size() / 2] = odd;
    }
    for (const auto& row : rows)
      for (const StaticInput* input : {static_cast<const StaticInput*>(nullptr), &fixed}) {
        std::vector<int8_t> expected(static_cast<size_t>(width));
        const auto how = input == nullptr ? std::optional<StaticInput>() : *input;
        const float scale = reference::quantize_activations(row.data(), width, how, expected.data());
        for (const Kernels* kernels : tested_kernels()) {
          const Tokens tokens(*kernels, row, 1, width, input);
          EXPECT_EQ(std::vector<int8_t>(tokens.codes.begin(), tokens.codes.begin() + width), expected)
              << kernels->name << " " << width;
          EXPECT_EQ(std::isnan(tokens.scales[0].scale), std::isnan(scale));
          if (!std::isnan(scale)) {
            EXPECT_EQ(tokens.scales[0].scale, scale);
          }
          int32_t sum = 0;
          for (int64_t b = 0; b < tokens.blocks; ++b) {
            int32_t own = 0;
            for (int i = 0; i < kGroup; ++i) own += tokens.codes[static_cast<size_t>(b * kGroup + i)];
            EXPECT_EQ(tokens.sums[static_cast<size_t>(b)], own);
            sum += own;
          }
          EXPECT_EQ(tokens.scales[0].sum, sum);
          for (int64_t k = width; k < tokens.blocks * kGroup; ++k)
            ASSERT_EQ(tokens.codes[static_cast<size_t>(k)], 0) << kernels->name << " behind " << width;
        }
      }
  }
}

TEST(QuantizeToken, AnInputThatIsNoNumberMakesTheScaleNone) {
  const StaticInput fixed{0.02f, 11};
  for (const int64_t width : {1, 16, 33, 577}) {
    for (const int64_t at : {int64_t{0}, width / 2, width - 1}) {
      auto row = activations(1, width, 21);
      row[static_cast<size_t>(at)] = -std::numeric_limits<float>::quiet_NaN();
      for (const StaticInput* input : {static_cast<const StaticInput*>(nullptr), &fixed})
        for (const Kernels* kernels : tested_kernels()) {
          const Tokens tokens(*kernels, row, 1, width, input);
          EXPECT_TRUE(std::isnan(tokens.scales[0].scale)) << kernels->name << " " << width << " " << at;
        }
    }
  }
}

TEST(PackedWeight, StaticInputsAreNotReadAsFloat32) {
  const RandomWeight source("named weight", 8, 32, kW8A8Static, 1);
  try {
    packed_form(source, portable_kernels(), true);
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("named weight"), std::string::npos);
  }
}

}  // namespace
}  // namespace gristmill::device::cpu
