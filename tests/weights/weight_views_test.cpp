#include "weights/weight_views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/half.h"
#include "weights/gguf_bytes.h"
#include "weights/safetensors.h"
#include "weights/safetensors_bytes.h"

namespace gristmill::weights {
namespace {

using device::ComputeClass;
using device::WeightSource;
using gristmill::testing::error_of;
using gristmill::testing::SafetensorsBytes;
using gristmill::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> values(const WeightSource& source, int64_t first = 0, int64_t count = -1) {
  if (count < 0) count = source.rows();
  std::vector<float> all(static_cast<size_t>(count * source.columns()));
  source.read_f32(first, count, all.data());
  return all;
}
std::vector<float> values_16(const WeightSource& source, int64_t first, int64_t count) {
  std::vector<uint16_t> bits(static_cast<size_t>(count * source.columns()));
  source.read_16(first, count, bits.data());
  std::vector<float> all;
  for (const uint16_t each : bits) all.push_back(bf16_to_f32(each));
  return all;
}
std::vector<uint16_t> bf16(const std::vector<float>& of) {
  std::vector<uint16_t> bits;
  for (const float each : of) bits.push_back(f32_to_bf16(each));
  return bits;
}

class WeightViews : public ::testing::Test {
 protected:
  TemporaryFolder folder;
  SafetensorsBytes bytes;

  std::shared_ptr<const SafetensorsFile> open() {
    return SafetensorsFile::open(folder.write("w.safetensors", bytes.bytes()));
  }
};

TEST_F(WeightViews, SelectRowsInAnyOrder) {
  bytes.add("w", "BF16", {4, 2}, bf16({0, 1, 2, 3, 4, 5, 6, 7}));
  const auto base = make_weight_source(open(), "w", ReadAs::compact);
  const auto view = select_rows("odd", base, {3, 1, 1});
  EXPECT_EQ(view->name(), "odd");
  EXPECT_EQ(view->rows(), 3);
  EXPECT_EQ(view->encoding().cls, ComputeClass::bf16);
  EXPECT_THAT(values(*view), ElementsAre(6, 7, 2, 3, 2, 3));
  EXPECT_THAT(values_16(*view, 1, 2), ElementsAre(2, 3, 2, 3));
  view->release();
  EXPECT_THAT(error_of([&] { select_rows("x", base, {4}); }), AllOf(HasSubstr("w"), HasSubstr("no row 4 of 4")));
  EXPECT_THAT(error_of([&] { select_rows("x", base, {}); }), HasSubstr("no rows"));
}

TEST_F(WeightViews, ConcatenateRowsAcrossTheirBorders) {
  bytes.add("a", "BF16", {1, 2}, bf16({0, 1})).add("b", "BF16", {3, 2}, bf16({2, 3, 4, 5, 6, 7}));
  bytes.add("c", "F32", {1, 2}, std::vector<float>{8, 9}).add("d", "F32", {1, 3}, std::vector<float>{1, 2, 3});
  const auto file = open();
  const auto part = [&](const char* name) { return make_weight_source(file, name, ReadAs::compact); };
  const auto alike = concatenate_rows("all", {part("a"), part("b"), part("a")});
  EXPECT_EQ(alike->rows(), 5);
  EXPECT_EQ(alike->encoding().cls, ComputeClass::bf16);
  EXPECT_THAT(values(*alike), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 0, 1));
  EXPECT_THAT(values(*alike, 3, 2), ElementsAre(6, 7, 0, 1));
  EXPECT_THAT(values_16(*alike, 0, 2), ElementsAre(0, 1, 2, 3));
  const auto mixed = concatenate_rows("all", {part("b"), part("c")});
  EXPECT_EQ(mixed->encoding().cls, ComputeClass::f32);
  EXPECT_THAT(values(*mixed, 2, 2), ElementsAre(6, 7, 8, 9));
  mixed->release();
  EXPECT_THAT(error_of([&] { concatenate_rows("all", {part("a"), part("d")}); }),
              AllOf(HasSubstr("d"), HasSubstr("3 columns")));
  EXPECT_THAT(error_of([&] { concatenate_rows("all", {}); }), HasSubstr("no parts"));
}

TEST_F(WeightViews, ConcatenateAndSelectCodes) {
  // Two Q8_0 blocks would need a GGUF file; the view only passes the room on, which a source of codes shows.
  class Codes final : public WeightSource {
   public:
    explicit Codes(uint8_t first)
        : WeightSource("codes", 2, 32, {ComputeClass::i8_group, 32, 0, true}, 64), first_(first) {}
    void read_f32(int64_t, int64_t, float*) const override {}
    void read_16(int64_t, int64_t, uint16_t*) const override {}
    void read_codes(int64_t first, int64_t count, const device::CodeRows& out) const override {
      for (int64_t i = 0; i < count; ++i) {
        const auto value = static_cast<uint8_t>(first_ + first + i);
        std::fill_n(out.codes + i * 32, 32, value);
        out.scales[i] = value;
        out.mins[i] = static_cast<uint16_t>(value + 100);
      }
    }

   private:
    uint8_t first_;
  };
  const auto both = concatenate_rows("both", {std::make_shared<Codes>(10), std::make_shared<Codes>(20)});
  const auto view = select_rows("view", both, {3, 0, 2});
  std::vector<uint8_t> codes(3 * 32);
  std::vector<uint16_t> scales(3), mins(3);
  view->read_codes(0, 3, {codes.data(), scales.data(), mins.data()});
  EXPECT_THAT(scales, ElementsAre(21, 10, 20));
  EXPECT_THAT(mins, ElementsAre(121, 110, 120));
  EXPECT_EQ(codes[31], 21);
  EXPECT_EQ(codes[32], 10);
}

TEST_F(WeightViews, AddOneInFloat32) {
  bytes.add("w", "BF16", {2}, bf16({0.25f, 0.00390625f}));
  const auto view = add_one(make_weight_source(open(), "w", ReadAs::compact));
  EXPECT_EQ(view->encoding().cls, ComputeClass::f32);
  EXPECT_THAT(values(*view), ElementsAre(1.25f, 1.00390625f));
}

TEST_F(WeightViews, AnyFloatTypeIsAWeight) {
  bytes.add("f64", "F64", {2}, std::vector<double>{0.5, 1e-3});
  bytes.add("fp8", "F8_E4M3", {2}, std::vector<uint8_t>{0x38, 0xb9});
  const auto file = open();
  EXPECT_THAT(values(*make_weight_source(file, "f64", ReadAs::compact)), ElementsAre(0.5f, 1e-3f));
  EXPECT_THAT(values(*make_weight_source(file, "fp8", ReadAs::compact)), ElementsAre(1.0f, -1.125f));
}

TEST_F(WeightViews, BlockFp8CropsTheLastBlocks) {
  bytes.add("w", "F8_E4M3", {3, 3}, std::vector<uint8_t>(9, 0x39));  // 1.125
  bytes.add("s", "F32", {2, 2}, std::vector<float>{1, 10, 100, 1.0009765625f});
  bytes.add("r", "F32", {3, 1}, std::vector<float>{1, 2, 3});
  bytes.add("t", "F32", {2, 1}, std::vector<float>{1, 1}).add("x", "BF16", {3, 3}, std::vector<uint16_t>(9));
  const auto file = open();
  const auto exact = make_block_fp8_source(file, "w", "s", 2, 2, ReadAs::exact);
  EXPECT_EQ(exact->encoding().cls, ComputeClass::f32);
  EXPECT_THAT(values(*exact),
              ElementsAre(1.125f, 1.125f, 11.25f, 1.125f, 1.125f, 11.25f, 112.5f, 112.5f, 1.125f * 1.0009765625f));
  const auto compact = make_block_fp8_source(file, "w", "s", 2, 2, ReadAs::compact);
  EXPECT_EQ(compact->encoding(), (device::Encoding{ComputeClass::f8_float, 2}));
  EXPECT_EQ(values(*compact), values(*exact));
  std::vector<uint8_t> codes(6);
  std::vector<float> scales(4);
  compact->read_codes(1, 2, {codes.data(), nullptr, nullptr, scales.data()});
  EXPECT_THAT(codes, ::testing::Each(0x39));
  EXPECT_THAT(scales, ElementsAre(1, 10, 100, 1.0009765625f));
  const auto row_scales = make_block_fp8_source(file, "w", "r", 1, 3, ReadAs::compact);
  EXPECT_EQ(row_scales->encoding(), (device::Encoding{ComputeClass::f8_float, 0}));
  EXPECT_THAT(error_of([&] { make_block_fp8_source(file, "w", "t", 2, 2, ReadAs::exact); }),
              AllOf(HasSubstr("\"t\""), HasSubstr("[2, 1]"), HasSubstr("[2, 2]")));
  EXPECT_THAT(error_of([&] { make_block_fp8_source(file, "x", "s", 2, 2, ReadAs::exact); }),
              AllOf(HasSubstr("\"x\""), HasSubstr("not FP8")));
}

TEST_F(WeightViews, AnFp8CodeThatIsNaNIsNamedByItsTensorAndRow) {
  std::vector<uint8_t> codes(6, 0x39);
  codes[4] = 0xff;
  bytes.add("w", "F8_E4M3", {2, 3}, codes).add("s", "F32", {1, 1}, std::vector<float>{1});
  const auto source = make_block_fp8_source(open(), "w", "s", 2, 3, ReadAs::compact);
  std::vector<uint8_t> read(6);
  std::vector<float> scales(2);
  const device::CodeRows rows{read.data(), nullptr, nullptr, scales.data()};
  source->read_codes(0, 1, rows);
  EXPECT_THAT(error_of([&] { source->read_codes(0, 2, rows); }),
              AllOf(HasSubstr("\"w\""), HasSubstr("row 1"), HasSubstr("not finite")));
}

}  // namespace
}  // namespace gristmill::weights
