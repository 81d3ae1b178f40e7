#include "weights/row_quantizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "device/cpu/random_program.h"
#include "weights/gguf_bytes.h"
#include "weights/quant_recipe.h"
#include "weights/quantized_source.h"

namespace gristmill::weights {
namespace {

std::vector<float> normal_row(size_t columns, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> row(columns);
  for (float& value : row) value = normal(random);
  return row;
}

double error_of(const std::vector<float>& row, const std::vector<int8_t>& codes, float scale) {
  double error = 0;
  for (size_t k = 0; k < row.size(); ++k) {
    const double left = static_cast<double>(row[k]) - static_cast<double>(codes[k]) * static_cast<double>(scale);
    error += left * left;
  }
  return error;
}

TEST(RowQuantizer, Int8UsesTheLargestWeightAndRoundsTiesToEven) {
  const std::vector<float> row{127.0f, 0.5f, 1.5f, -2.5f, -127.0f, 0.0f};
  std::vector<int8_t> codes(row.size());
  float scale = 0;
  quantize_row_int8(row.data(), 6, codes.data(), &scale);
  EXPECT_EQ(scale, 1.0f);
  EXPECT_EQ(codes, (std::vector<int8_t>{127, 0, 2, -2, -127, 0}));
  const std::vector<float> zeros(6, 0.0f);
  quantize_row_int8(zeros.data(), 6, codes.data(), &scale);
  EXPECT_EQ(scale, 0x1p-23f);
  EXPECT_EQ(codes, std::vector<int8_t>(6, 0));
}

TEST(RowQuantizer, Int4IsNoWorseThanLeastSquaresStepsFromTheLargestWeight) {
  double total = 0, plain = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> row = normal_row(200, seed);
    std::vector<int8_t> codes(row.size());
    float scale = 0;
    quantize_row_int4(row.data(), 200, codes.data(), &scale);
    const double got = error_of(row, codes, scale);
    // The published search, written down again: s = max / 7, then s = sum w q / sum q^2, 50 times, the best is kept.
    float largest = 0;
    for (const float value : row) largest = std::max(largest, std::fabs(value));
    float s = largest / 7;
    double best = INFINITY;
    for (int step = 0; step < 50; ++step) {
      std::vector<int8_t> q(row.size());
      double products = 0, squares = 0;
      for (size_t k = 0; k < row.size(); ++k) {
        q[k] = static_cast<int8_t>(std::min(7.0f, std::max(-8.0f, std::nearbyint(row[k] / s))));
        products += static_cast<double>(row[k]) * q[k];
        squares += q[k] * q[k];
      }
      best = std::min(best, error_of(row, q, s));
      if (step == 0) plain += best;
      s = static_cast<float>(products / squares);
    }
    EXPECT_LE(got, best * (1 + 1e-6)) << seed;
    total += got;
  }
  EXPECT_LT(total, 0.9 * plain);
}

TEST(RowQuantizer, GroupsFollowTheirOwnSizes) {
  std::vector<float> row = normal_row(128, 3);
  for (size_t k = 0; k < 32; ++k) row[k] *= 0.01f;  // would all be zeros with one scale
  std::vector<int8_t> codes(row.size());
  float first = 0;
  std::vector<float> second(4);
  quantize_row_int4_groups(row.data(), 128, 32, codes.data(), &first, second.data());
  double error = 0, size = 0;
  for (size_t k = 0; k < 32; ++k) {
    const double value = static_cast<double>(codes[k]) * second[0] * first;
    error += (value - row[k]) * (value - row[k]);
    size += static_cast<double>(row[k]) * row[k];
  }
  EXPECT_LT(error, 0.05 * size);
}

/// Ones, and one number that is not finite.
class DamagedWeight final : public device::WeightSource {
 public:
  explicit DamagedWeight(float value) : WeightSource("model.layers.0.x", 2, 40, {}, 320), value_(value) {}
  void read_f32(int64_t first, int64_t count, float* out) const override {
    std::fill_n(out, count * columns(), 1.0f);
    if (first + count == 2) out[(count - 1) * columns() + 37] = value_;
  }
  void read_16(int64_t, int64_t, uint16_t*) const override {}
  void read_codes(int64_t, int64_t, const device::CodeRows&) const override {}

 private:
  float value_;
};

TEST(QuantizedSource, RefusesWeightsThatAreNotFiniteByTensor) {
  std::vector<uint8_t> codes(40);
  float scale = 0;
  for (const float value : {NAN, INFINITY, -INFINITY})
    for (const WeightBits bits : {WeightBits::int8, WeightBits::int4}) {
      const auto source =
          quantize_source(std::make_shared<DamagedWeight>(value), bits, std::make_shared<QuantizationErrors>());
      EXPECT_EQ(gristmill::testing::error_of(
                    [&] { source->read_codes(0, 1, {codes.data(), nullptr, nullptr, &scale, nullptr}); }),
                "");
      EXPECT_THAT(gristmill::testing::error_of(
                      [&] { source->read_codes(1, 1, {codes.data(), nullptr, nullptr, &scale, nullptr}); }),
                  ::testing::HasSubstr("tensor \"model.layers.0.x\": holds a number that is not finite"));
    }
}

TEST(QuantizedSource, GivesTheCodesOfItsRowsAndTheirValues) {
  const auto base = std::make_shared<device::cpu::RandomWeight>("model.layers.3.x", 9, 50, device::cpu::kF32, 4);
  for (const WeightBits bits : {WeightBits::int8, WeightBits::int4}) {
    const auto source = quantize_source(base, bits, std::make_shared<QuantizationErrors>());
    std::vector<uint8_t> codes(9 * 50);
    std::vector<float> scales(9), values(9 * 50), exact(9 * 50);
    source->read_codes(0, 9, {codes.data(), nullptr, nullptr, scales.data(), nullptr});
    source->read_f32(0, 9, values.data());
    base->read_f32(0, 9, exact.data());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i], static_cast<float>(static_cast<int8_t>(codes[i])) * scales[i / 50]);
      EXPECT_NEAR(values[i], exact[i], scales[i / 50] * (bits == WeightBits::int8 ? 0.51f : 4.0f));
    }
    source->release();
    EXPECT_GT(base->released, 0);
  }
}

TEST(QuantRecipe, KeepsWhatEachFamilyKeepsInFloat) {
  const auto bits = [](QuantRecipe recipe, bool w4a8, const char* name) { return bits_of(recipe, w4a8, name); };
  const QuantRecipe minimax = recipe_for("MiniMaxM2ForCausalLM", true);
  EXPECT_EQ(bits(minimax, false, "model.layers.0.self_attn.o_proj.weight"), WeightBits::int8);
  EXPECT_EQ(bits(minimax, true, "model.layers.0.self_attn.q_proj.weight"), WeightBits::int8);
  EXPECT_EQ(bits(minimax, true, "model.layers.0.block_sparse_moe.experts.7.w2.weight"), WeightBits::int4);
  EXPECT_EQ(bits(minimax, true, "model.layers.0.block_sparse_moe.gate.weight"), WeightBits::as_stored);
  const QuantRecipe moe = recipe_for("Qwen3_5MoeForConditionalGeneration", true);
  EXPECT_EQ(bits(moe, false, "model.language_model.layers.3.self_attn.o_proj.weight"), WeightBits::as_stored);
  EXPECT_EQ(bits(moe, false, "model.language_model.layers.3.self_attn.v_proj.weight"), WeightBits::int8);
  EXPECT_EQ(bits(moe, false, "model.language_model.layers.0.linear_attn.in_proj_qkv.weight"), WeightBits::as_stored);
  EXPECT_EQ(bits(moe, false, "model.language_model.layers.0.mlp.shared_expert.up_proj.weight"), WeightBits::as_stored);
  EXPECT_EQ(bits(moe, true, "model.language_model.layers.0.mlp.experts.gate_up_proj"), WeightBits::int4);
  EXPECT_EQ(bits(moe, false, "mtp.layers.0.mlp.experts.0.gate_proj.weight"), WeightBits::as_stored);
  EXPECT_EQ(bits(moe, false, "model.visual.blocks.0.mlp.down_proj.weight"), WeightBits::as_stored);
  const QuantRecipe dense = recipe_for("Qwen3_5ForCausalLM", false);
  EXPECT_EQ(bits(dense, false, "model.layers.3.self_attn.o_proj.weight"), WeightBits::int8);
  EXPECT_EQ(bits(dense, true, "model.layers.3.mlp.up_proj.weight"), WeightBits::int4);
  const QuantRecipe all = recipe_for("LlamaForCausalLM", false);
  EXPECT_EQ(bits(all, true, "blk.3.ffn_down.weight"), WeightBits::int4);
  EXPECT_EQ(bits(all, false, "model.layers.1.linear_attn.out_proj.weight"), WeightBits::int8);
  EXPECT_EQ(bits(all, false, "model.layers.1.mlp.shared_expert_gate.weight"), WeightBits::as_stored);
  for (const char* name : {"lm_head.weight", "model.embed_tokens.weight", "model.layers.0.self_attn.q_norm.weight",
                           "model.layers.0.self_attn.q_proj.bias", "token_embd.weight", "output.weight"})
    EXPECT_EQ(bits(all, false, name), WeightBits::as_stored) << name;
}

}  // namespace
}  // namespace gristmill::weights
