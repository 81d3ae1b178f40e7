// Every pair of extreme codes beside each other, in every set: where instructions add two products in 16 bits, 8-bit
// pairs reach 2 * 128 * 127 and 4-bit ones are added eight times (saturation), and -128 has no opposite in 8 bits.
#include <gtest/gtest.h>

#include <cmath>

#include "base/half.h"
#include "device/cpu/kernels.h"
#include "device/cpu/random_program.h"
#include "device/cpu/tested_kernels.h"

namespace gristmill::device::cpu {
namespace {

struct Case {
  const char* name;
  Encoding encoding;
};

/// Output n has codes (first, second) of a pair in turns, row r activation codes likewise, over all inputs.
struct Extremes {
  std::vector<std::pair<int, int>> weights, inputs;

  explicit Extremes(const Encoding& encoding) {
    const bool nibbles = encoding.cls == ComputeClass::i4_group || encoding.cls == ComputeClass::i4_channel;
    const bool is_unsigned = encoding.cls == ComputeClass::i4_group;
    // Only static inputs have an activation code of -128.
    const std::vector<int> sides = nibbles ? (is_unsigned ? std::vector<int>{0, 7, 15} : std::vector<int>{-8, 0, 7})
                                           : std::vector<int>{-128, -127, 0, 127};
    for (int a : sides)
      for (int b : sides) weights.emplace_back(a, b);
    const std::vector<int> codes =
        encoding.input ? std::vector<int>{-128, -127, 0, 127} : std::vector<int>{-127, 0, 1, 127};
    for (int a : codes)
      for (int b : codes) inputs.emplace_back(a, b);
  }
  int rows() const { return static_cast<int>(inputs.size()); }
  int64_t outputs() const { return static_cast<int64_t>(weights.size()); }
  static int at(const std::pair<int, int>& pair, int64_t k) { return k % 2 == 0 ? pair.first : pair.second; }
};

RandomWeight weight_of(const Extremes& extremes, int64_t width, const Encoding& encoding) {
  RandomWeight source("w", extremes.outputs(), width, encoding, 1);
  for (size_t n = 0; n < extremes.weights.size(); ++n)
    for (int64_t k = 0; k < width; ++k)
      source.codes()[n * static_cast<size_t>(width) + static_cast<size_t>(k)] =
          static_cast<uint8_t>(Extremes::at(extremes.weights[n], k));
  return source;
}

/// Rows [first, first + count) as [blocks][count][32], zeros behind the last input.
std::vector<int8_t> codes_of(const Extremes& extremes, int first, int count, int64_t width) {
  const int64_t blocks = (width + kGroup - 1) / kGroup;
  std::vector<int8_t> codes(static_cast<size_t>(blocks * count * kGroup));
  for (int64_t k = 0; k < width; ++k)
    for (int r = 0; r < count; ++r)
      codes[static_cast<size_t>((k / kGroup * count + r) * kGroup + k % kGroup)] =
          static_cast<int8_t>(Extremes::at(extremes.inputs[static_cast<size_t>(first + r)], k));
  return codes;
}

int64_t exact_sum(const Extremes& extremes, int row, int64_t output, int64_t first, int64_t end) {
  int64_t sum = 0;
  for (int64_t k = first; k < end; ++k)
    sum += Extremes::at(extremes.weights[static_cast<size_t>(output)], k) *
           Extremes::at(extremes.inputs[static_cast<size_t>(row)], k);
  return sum;
}

struct Packed {
  PackedWeight weight;
  std::vector<std::byte> bytes;

  Packed(const WeightSource& source, const Kernels& kernels) : weight(packed_form(source, kernels, false)) {
    bytes.resize(weight.bytes());
    pack_panels(source, weight, 0, weight.panels(), bytes.data());
    weight.data = bytes.data();
  }
};

class ExtremeCodeKernels : public testing::TestWithParam<Case> {
 protected:
  /// Both in one batch, and row after row.
  template <class Work>
  static void in_batches(int rows, Work work) {
    work(0, rows);
    for (int r = 0; r < rows; ++r) work(r, 1);
  }
};

class CodedExtremes : public ExtremeCodeKernels {};
TEST_P(CodedExtremes, KernelsAddThemExactly) {
  const Encoding& encoding = GetParam().encoding;
  const Extremes extremes(encoding);
  const int64_t width = 3 * kGroup, outputs = extremes.outputs();
  const RandomWeight source = weight_of(extremes, width, encoding);
  std::vector<uint8_t> codes(static_cast<size_t>(outputs * width));
  std::vector<uint16_t> scales(static_cast<size_t>(outputs * 3)), mins(scales.size());
  source.read_codes(0, outputs, {codes.data(), scales.data(), encoding.has_min ? mins.data() : nullptr});
  for (const Kernels* kernels : tested_kernels()) {
    const Packed packed(source, *kernels);
    const int64_t stride = packed.weight.panels() * packed.weight.panel;
    in_batches(extremes.rows(), [&](int first, int count) {
      const std::vector<int8_t> x = codes_of(extremes, first, count, width);
      std::vector<GroupScale> groups;
      for (int64_t g = 0; g < 3; ++g)
        for (int r = 0; r < count; ++r) {
          int32_t sum = 0;
          for (int i = 0; i < kGroup; ++i) sum += x[static_cast<size_t>((g * count + r) * kGroup + i)];
          groups.push_back({0.5f, 0.5f * static_cast<float>(sum), -128 * sum});
        }
      std::vector<float> y(static_cast<size_t>(count * stride));
      kernels->coded_linear(packed.weight, 0, packed.weight.panels(), {x.data(), groups.data(), count}, y.data(),
                            stride);
      for (int r = 0; r < count; ++r)
        for (int64_t n = 0; n < outputs; ++n) {
          float expected = 0;
          for (int64_t g = 0; g < 3; ++g) {
            const float scale = f16_to_f32(scales[static_cast<size_t>(n * 3 + g)]);
            const float min = encoding.has_min ? f16_to_f32(mins[static_cast<size_t>(n * 3 + g)]) : 0.0f;
            const float offset = std::fma(-static_cast<float>(encoding.zero), scale, min);
            const GroupScale& group = groups[static_cast<size_t>(g * count + r)];
            if (encoding.has_min || encoding.zero != 0) expected = std::fma(offset, group.scaled_sum, expected);
            const int64_t sum = exact_sum(extremes, first + r, n, g * kGroup, (g + 1) * kGroup);
            expected = std::fma(static_cast<float>(sum), scale * group.scale, expected);
          }
          ASSERT_EQ(y[static_cast<size_t>(r * stride + n)], expected)
              << kernels->name << " row " << first + r << " output " << n << " of " << count << " rows";
        }
    });
  }
}

class ChannelExtremes : public ExtremeCodeKernels {};
TEST_P(ChannelExtremes, KernelsAddThemExactly) {
  const Encoding& encoding = GetParam().encoding;
  const Extremes extremes(encoding);
  const int64_t outputs = extremes.outputs();
  for (const int64_t width : {1, 31, 64, 97, 127}) {
    const RandomWeight source = weight_of(extremes, width, encoding);
    const int64_t group = encoding.group == 0 ? width : encoding.group, groups = (width + group - 1) / group;
    const int64_t blocks = (width + kGroup - 1) / kGroup;
    std::vector<uint8_t> codes(static_cast<size_t>(outputs * width));
    std::vector<float> scales(static_cast<size_t>(outputs * groups));
    std::vector<int32_t> addends(static_cast<size_t>(outputs));
    source.read_codes(0, outputs,
                      {codes.data(), nullptr, nullptr, scales.data(), encoding.input ? addends.data() : nullptr});
    for (const Kernels* kernels : tested_kernels()) {
      const Packed packed(source, *kernels);
      const int64_t stride = packed.weight.panels() * packed.weight.panel;
      in_batches(extremes.rows(), [&](int first, int count) {
        const std::vector<int8_t> x = codes_of(extremes, first, count, width);
        std::vector<int32_t> sums(static_cast<size_t>(blocks * count));
        std::vector<TokenScale> tokens(static_cast<size_t>(count), {0.25f, 0});
        for (size_t i = 0; i < sums.size(); ++i) {
          for (size_t k = 0; k < kGroup; ++k) sums[i] += x[i * kGroup + k];
          tokens[i % static_cast<size_t>(count)].sum += sums[i];
        }
        std::vector<float> y(static_cast<size_t>(count * stride));
        kernels->channel_linear(packed.weight, 0, packed.weight.panels(), {x.data(), sums.data(), tokens.data(), count},
                                y.data(), stride);
        for (int r = 0; r < count; ++r)
          for (int64_t n = 0; n < outputs; ++n) {
            float expected = 0;
            for (int64_t g = 0; g < groups; ++g) {
              const int64_t sum = exact_sum(extremes, first + r, n, g * group, std::min(width, (g + 1) * group));
              const float scale = scales[static_cast<size_t>(n * groups + g)];
              expected = encoding.group == 0 ? static_cast<float>(sum + addends[static_cast<size_t>(n)]) * scale
                                             : std::fma(static_cast<float>(sum), scale, expected);
            }
            ASSERT_EQ(y[static_cast<size_t>(r * stride + n)], expected * 0.25f)
                << kernels->name << " row " << first + r << " output " << n << " of " << width << " inputs";
          }
      });
    }
  }
}

const auto kName = [](const auto& test) { return std::string(test.param.name); };
INSTANTIATE_TEST_SUITE_P(Kernels, CodedExtremes,
                         testing::Values(Case{"q4_1", kQ41}, Case{"q4_0", kQ40}, Case{"q8_0", kQ80},
                                         Case{"q8_1", kQ81}),
                         kName);
INSTANTIATE_TEST_SUITE_P(Kernels, ChannelExtremes,
                         testing::Values(Case{"w8a8", kW8A8}, Case{"w8a8_static", kW8A8Static}, Case{"w4a8", kW4A8},
                                         Case{"w4a8_group32", kW4A8Group},
                                         Case{"w4a8_group64", {ComputeClass::i4_channel, 64, 0, false}}),
                         kName);

}  // namespace
}  // namespace gristmill::device::cpu
