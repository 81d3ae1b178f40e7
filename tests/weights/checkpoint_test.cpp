#include "weights/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/half.h"
#include "weights/gguf.h"
#include "weights/gguf_blocks.h"
#include "weights/gguf_bytes.h"
#include "weights/safetensors.h"

namespace gristmill::weights {
namespace {

using device::CodeRows;
using device::ComputeClass;
using device::Encoding;
using device::WeightSource;
using gristmill::testing::error_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Tensors in memory. Counts the calls of drop_pages.
class MemoryCheckpoint final : public Checkpoint {
 public:
  void add(const std::string& name, StorageType type, std::vector<int64_t> shape, std::span<const std::byte> bytes) {
    contents_.push_back(std::make_unique<std::vector<std::byte>>(bytes.begin(), bytes.end()));
    tensors_.push_back({name, type, std::move(shape), *contents_.back()});
  }
  std::string path() const override { return "memory"; }
  bool contains(std::string_view name) const override {
    return std::any_of(tensors_.begin(), tensors_.end(), [&](const TensorView& t) { return t.name == name; });
  }
  TensorView tensor(std::string_view name) const override {
    for (const TensorView& t : tensors_)
      if (t.name == name) return t;
    throw Error("missing");
  }
  std::vector<std::string> names() const override { return {}; }
  void drop_pages(std::span<const std::byte> bytes) const override { dropped += bytes.size(); }

  mutable size_t dropped = 0;

 private:
  std::vector<std::unique_ptr<std::vector<std::byte>>> contents_;
  std::vector<TensorView> tensors_;
};

/// Four rows of golden blocks of a type (three of them for the 32-wide types).
std::shared_ptr<MemoryCheckpoint> golden_blocks(const char* name, StorageType type) {
  const auto file = SafetensorsFile::open(GRISTMILL_TEST_DIR "/golden/gguf_blocks.safetensors");
  const TensorView raw = file->tensor(std::string(name) + ".raw");
  const int64_t count = file->tensor(std::string(name) + ".values").columns();
  auto checkpoint = std::make_shared<MemoryCheckpoint>();
  checkpoint->add("w", type, {4, count / 4}, raw.bytes);
  return checkpoint;
}

std::vector<float> exact_values(const WeightSource& source) {
  std::vector<float> values(static_cast<size_t>(source.rows() * source.columns()));
  source.read_f32(0, source.rows(), values.data());
  return values;
}

struct Codes {
  std::vector<uint8_t> codes;
  std::vector<uint16_t> scales, mins;
};

Codes read_all_codes(const WeightSource& source) {
  const auto count = static_cast<size_t>(source.rows() * source.columns());
  const Encoding& e = source.encoding();
  Codes c{std::vector<uint8_t>(count), std::vector<uint16_t>(count / static_cast<size_t>(e.group)),
          std::vector<uint16_t>(e.has_min ? count / static_cast<size_t>(e.group) : 0)};
  source.read_codes(0, source.rows(), {c.codes.data(), c.scales.data(), e.has_min ? c.mins.data() : nullptr});
  return c;
}

/// What the codes stand for: the formulas of ComputeClass.
std::vector<float> decoded(const WeightSource& source) {
  const Codes c = read_all_codes(source);
  const Encoding& e = source.encoding();
  std::vector<float> values(c.codes.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t g = i / static_cast<size_t>(e.group);
    const int code = e.cls == ComputeClass::i4_group ? c.codes[i] - e.zero : static_cast<int8_t>(c.codes[i]);
    values[i] = f16_to_f32(c.scales[g]) * static_cast<float>(code) + (e.has_min ? f16_to_f32(c.mins[g]) : 0.0f);
  }
  return values;
}

struct ClassCase {
  const char* name;
  StorageType type;
  Encoding encoding;
  double rms;  ///< largest root mean square error over that of the weights; 0 = exact
};

constexpr Encoding kInt8{ComputeClass::i8_group, 32, 0, false};
constexpr Encoding kInt8Min{ComputeClass::i8_group, 32, 0, true};
constexpr Encoding kInt4{ComputeClass::i4_group, 32, 8, false};
constexpr Encoding kInt4Min{ComputeClass::i4_group, 32, 0, true};

// Bounds: about 1.5 x what was measured on the golden blocks. Random K-quant blocks have neighbouring groups of very
// different size, so trained weights lose less.
constexpr ClassCase kCases[] = {
    {"Q4_0", StorageType::q4_0, kInt4, 0},        {"Q4_1", StorageType::q4_1, kInt4Min, 0},
    {"Q5_0", StorageType::q5_0, kInt8, 0},        {"Q5_1", StorageType::q5_1, kInt8Min, 0},
    {"Q8_0", StorageType::q8_0, kInt8, 0},        {"IQ4_NL", StorageType::iq4_nl, kInt8, 0},
    {"Q4_K", StorageType::q4_k, kInt4Min, 4e-4},  {"Q5_K", StorageType::q5_k, kInt8Min, 4e-4},
    {"IQ4_XS", StorageType::iq4_xs, kInt8, 4e-4}, {"Q2_K", StorageType::q2_k, kInt8, 6.5e-3},
    {"Q3_K", StorageType::q3_k, kInt8, 6.5e-3},   {"Q6_K", StorageType::q6_k, kInt8, 6.5e-3},
};

TEST(WeightSource, CodesStandForTheValuesWithinTheStatedError) {
  for (const ClassCase& c : kCases) {
    SCOPED_TRACE(c.name);
    const auto source = make_weight_source(golden_blocks(c.name, c.type), "w", ReadAs::compact);
    ASSERT_EQ(source->encoding(), c.encoding);
    const std::vector<float> exact = exact_values(*source);
    const std::vector<float> got = decoded(*source);
    double error = 0, size = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      if (c.rms == 0) {
        ASSERT_EQ(got[i], exact[i]) << i;
      }
      error += std::pow(static_cast<double>(got[i]) - static_cast<double>(exact[i]), 2);
      size += std::pow(static_cast<double>(exact[i]), 2);
    }
    const double relative = std::sqrt(error / size);
    if (c.rms > 0) std::printf("%-6s relative rms error of its codes %.2e\n", c.name, relative);
    EXPECT_LE(relative, c.rms);
  }
}

TEST(WeightSource, RequantizedWeightsAreWithinHalfAScale) {
  for (const StorageType type : {StorageType::q2_k, StorageType::q3_k, StorageType::q6_k}) {
    const auto source = make_weight_source(golden_blocks(layout_of(type).name, type), "w", ReadAs::compact);
    const std::vector<float> exact = exact_values(*source);
    const std::vector<float> got = decoded(*source);
    const Codes codes = read_all_codes(*source);
    for (size_t i = 0; i < exact.size(); ++i)
      ASSERT_LE(std::fabs(got[i] - exact[i]), 0.57f * f16_to_f32(codes.scales[i / 32])) << layout_of(type).name << i;
  }
}

TEST(WeightSource, Mxfp4IsExactWithinTheRangeOfItsScales) {
  // Blocks of the exponents at the edges of binary16, with every code.
  std::vector<std::byte> raw;
  for (const int exponent : {104, 105, 120, 128, 143}) {
    raw.push_back(static_cast<std::byte>(exponent));
    for (int i = 0; i < 16; ++i) raw.push_back(static_cast<std::byte>(i | (15 - i) << 4));
  }
  auto checkpoint = std::make_shared<MemoryCheckpoint>();
  checkpoint->add("w", StorageType::mxfp4, {5, 32}, raw);
  const auto source = make_weight_source(checkpoint, "w", ReadAs::compact);
  EXPECT_EQ(source->encoding(), kInt8);
  EXPECT_EQ(decoded(*source), exact_values(*source));
}

TEST(WeightSource, RequantizingBrokenBlocksGivesFiniteScales) {
  for (const StorageType type : {StorageType::q2_k, StorageType::q3_k, StorageType::q6_k})
    for (const uint16_t scale : {0x7c00, 0xfc00, 0x7e00, 0xffff}) {  // infinities and not-a-numbers
      const BlockLayout layout = layout_of(type);
      std::vector<std::byte> raw(static_cast<size_t>(layout.bytes), std::byte{0x5a});
      for (size_t i = type == StorageType::q2_k ? 80 : raw.size() - 2; i < raw.size(); i += 2)
        std::memcpy(raw.data() + i, &scale, sizeof scale);
      auto checkpoint = std::make_shared<MemoryCheckpoint>();
      checkpoint->add("w", type, {1, layout.elements}, raw);
      const Codes codes = read_all_codes(*make_weight_source(checkpoint, "w", ReadAs::compact));
      for (const uint16_t each : codes.scales) EXPECT_TRUE(std::isfinite(f16_to_f32(each)));
      for (const uint8_t code : codes.codes) EXPECT_GE(static_cast<int8_t>(code), -127);
    }
}

TEST(WeightSource, FloatClassesKeepTheirBits) {
  for (const auto& [name, type, cls] : {std::tuple("F16", StorageType::f16, ComputeClass::f16),
                                        std::tuple("BF16", StorageType::bf16, ComputeClass::bf16)}) {
    const auto checkpoint = golden_blocks(name, type);
    const auto source = make_weight_source(checkpoint, "w", ReadAs::compact);
    EXPECT_EQ(source->encoding().cls, cls);
    std::vector<uint16_t> bits(static_cast<size_t>(source->columns()));
    source->read_16(2, 1, bits.data());
    const auto offset = static_cast<size_t>(2 * source->columns()) * 2;
    EXPECT_EQ(std::memcmp(bits.data(), checkpoint->tensor("w").bytes.data() + offset, bits.size() * 2), 0);
  }
  EXPECT_EQ(make_weight_source(golden_blocks("F32", StorageType::f32), "w", ReadAs::compact)->encoding().cls,
            ComputeClass::f32);
}

TEST(WeightSource, ExactReadingIsFloat32ForEveryFormat) {
  for (const ClassCase& c : kCases) {
    const auto checkpoint = golden_blocks(c.name, c.type);
    const auto exact = make_weight_source(checkpoint, "w", ReadAs::exact);
    EXPECT_EQ(exact->encoding(), Encoding{}) << c.name;
    EXPECT_EQ(exact_values(*exact), exact_values(*make_weight_source(checkpoint, "w", ReadAs::compact))) << c.name;
  }
}

TEST(WeightSource, ReadsAnyRowsFromManyThreads) {
  const auto source = make_weight_source(golden_blocks("Q6_K", StorageType::q6_k), "w", ReadAs::compact);
  const std::vector<float> all = exact_values(*source);
  const Codes codes = read_all_codes(*source);
  std::vector<std::thread> threads;
  for (int64_t row = 0; row < 4; ++row)
    threads.emplace_back([&, row] {
      std::vector<float> values(256);
      std::vector<uint8_t> some(256);
      std::vector<uint16_t> scales(8);
      for (int i = 0; i < 50; ++i) {
        source->read_f32(row, 1, values.data());
        source->read_codes(row, 1, {some.data(), scales.data(), nullptr});
        EXPECT_TRUE(std::equal(values.begin(), values.end(), all.begin() + row * 256));
        EXPECT_TRUE(std::equal(some.begin(), some.end(), codes.codes.begin() + row * 256));
        EXPECT_TRUE(std::equal(scales.begin(), scales.end(), codes.scales.begin() + row * 8));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(WeightSource, KnowsItsTensorAndReleasesItsPages) {
  const auto checkpoint = golden_blocks("Q4_1", StorageType::q4_1);
  const auto source = make_weight_source(checkpoint, "w", ReadAs::compact);
  EXPECT_EQ(source->name(), "w");
  EXPECT_EQ(source->rows(), 4);
  EXPECT_EQ(source->columns(), 96);
  EXPECT_EQ(source->file_bytes(), 4u * 3 * 20);
  source->release();
  EXPECT_EQ(checkpoint->dropped, 240u);
}

TEST(WeightSource, RefusesTypesThatHoldNoWeights) {
  auto checkpoint = std::make_shared<MemoryCheckpoint>();
  checkpoint->add("ids", StorageType::i32, {4}, std::vector<std::byte>(16));
  EXPECT_THAT(error_of([&] { make_weight_source(checkpoint, "ids", ReadAs::exact); }),
              AllOf(HasSubstr("\"ids\""), HasSubstr("I32 holds no weights")));
}

TEST(PermuteRows, ReordersRowsOfEveryClass) {
  const std::vector<int32_t> order = {2, 0, 3, 1};
  for (const ClassCase& c : kCases) {
    SCOPED_TRACE(c.name);
    const auto base = make_weight_source(golden_blocks(c.name, c.type), "w", ReadAs::compact);
    const auto moved = permute_rows(base, order);
    EXPECT_EQ(moved->encoding(), base->encoding());
    EXPECT_EQ(moved->name(), "w");
    const auto columns = static_cast<size_t>(base->columns());
    const std::vector<float> before = exact_values(*base), after = exact_values(*moved);
    const std::vector<float> codes_before = decoded(*base), codes_after = decoded(*moved);
    for (size_t r = 0; r < 4; ++r)
      for (size_t k = 0; k < columns; ++k) {
        const size_t from = static_cast<size_t>(order[r]) * columns + k;
        ASSERT_EQ(after[r * columns + k], before[from]);
        ASSERT_EQ(codes_after[r * columns + k], codes_before[from]);
      }
  }
  const auto half =
      permute_rows(make_weight_source(golden_blocks("F16", StorageType::f16), "w", ReadAs::compact), order);
  std::vector<uint16_t> bits(64);
  half->read_16(0, 4, bits.data());
  const std::vector<float> values = exact_values(*half);
  for (size_t i = 0; i < bits.size(); ++i) EXPECT_EQ(f16_to_f32(bits[i]), values[i]);
}

TEST(PermuteRows, ReordersTheElementsOfAVector) {
  const float values[] = {10, 11, 12, 13};
  auto checkpoint = std::make_shared<MemoryCheckpoint>();
  checkpoint->add("bias", StorageType::f32, {4}, std::as_bytes(std::span(values)));
  const auto moved = permute_rows(make_weight_source(checkpoint, "bias", ReadAs::compact), {3, 1, 0, 2});
  EXPECT_THAT(exact_values(*moved), ElementsAre(13, 11, 10, 12));
}

TEST(PermuteRows, RefusesOrdersThatAreNoPermutation) {
  const auto base = make_weight_source(golden_blocks("Q4_0", StorageType::q4_0), "w", ReadAs::compact);
  for (const std::vector<int32_t>& order :
       {std::vector<int32_t>{0, 1, 2}, {0, 1, 2, 2}, {0, 1, 2, 4}, {0, 1, 2, -1}, {0, 1, 2, 3, 4}})
    EXPECT_THAT(error_of([&] { permute_rows(base, order); }), AllOf(HasSubstr("w: "), HasSubstr("no permutation")));
}

}  // namespace
}  // namespace gristmill::weights
