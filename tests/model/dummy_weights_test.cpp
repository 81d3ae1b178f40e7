// Weights made up for a config.json, and changes of it from the command line.
#include "weights/dummy_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/half.h"
#include "model/golden.h"
#include "weights/gguf_bytes.h"

namespace gristmill::model {
namespace {

using device::ComputeClass;
using gristmill::testing::error_of;
using ::testing::HasSubstr;

const std::string kConfigs = GRISTMILL_TEST_DIR "/../bench/configs/";
const std::string kTiny = GRISTMILL_TEST_DIR "/golden/hf/";

Model dummy(const std::string& folder, const std::string& overrides, ComputeClass cls = ComputeClass::bf16) {
  BuildOptions options;
  options.load_format = LoadFormat::dummy;
  options.dummy_class = cls;
  options.hf_overrides = overrides;
  return load_model(folder, options);
}

std::vector<float> numbers(ComputeClass cls, int64_t rows, int64_t columns, int64_t first, int64_t count) {
  const auto source = weights::make_dummy_source("w", rows, columns, cls);
  std::vector<float> all(static_cast<size_t>(count * columns));
  source->read_f32(first, count, all.data());
  return all;
}

TEST(DummyWeights, DependOnNameAndPlaceOnly) {
  for (const ComputeClass cls : {ComputeClass::f32, ComputeClass::bf16, ComputeClass::i8_group, ComputeClass::i4_group,
                                 ComputeClass::i8_channel, ComputeClass::i4_channel}) {
    const std::vector<float> whole = numbers(cls, 40, 64, 0, 40), part = numbers(cls, 40, 64, 30, 5);
    EXPECT_EQ(std::vector<float>(whole.begin() + 30 * 64, whole.begin() + 35 * 64), part) << name_of(cls);
    const auto other = weights::make_dummy_source("v", 40, 64, cls);
    std::vector<float> others(whole.size());
    other->read_f32(0, 40, others.data());
    EXPECT_NE(others, whole) << name_of(cls);
    double sum = 0, squares = 0;
    for (const float x : whole) sum += x, squares += x * x;
    EXPECT_NEAR(sum / static_cast<double>(whole.size()), 0, 0.02) << name_of(cls);
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(whole.size())) * 8, 1, 0.4) << name_of(cls);
  }
}

TEST(DummyWeights, CodesAndPatternsAreTheNumbers) {
  const auto halves = weights::make_dummy_source("w", 3, 10, ComputeClass::bf16);
  std::vector<uint16_t> bits(30);
  halves->read_16(0, 3, bits.data());
  const std::vector<float> expected = numbers(ComputeClass::bf16, 3, 10, 0, 3);
  for (size_t i = 0; i < bits.size(); ++i) EXPECT_EQ(bf16_to_f32(bits[i]), expected[i]);
  for (const ComputeClass cls : {ComputeClass::i8_group, ComputeClass::i4_group}) {
    const auto source = weights::make_dummy_source("w", 2, 64, cls);
    std::vector<uint8_t> codes(128);
    std::vector<uint16_t> scales(4);
    device::CodeRows room;
    room.codes = codes.data();
    room.scales = scales.data();
    source->read_codes(0, 2, room);
    const std::vector<float> values = numbers(cls, 2, 64, 0, 2);
    for (size_t i = 0; i < codes.size(); ++i) {
      const int code =
          cls == ComputeClass::i4_group ? codes[i] - source->encoding().zero : static_cast<int8_t>(codes[i]);
      EXPECT_EQ(f16_to_f32(scales[i / 32]) * static_cast<float>(code), values[i]);
    }
  }
  for (const ComputeClass cls : {ComputeClass::i8_channel, ComputeClass::i4_channel}) {
    const auto source = weights::make_dummy_source("w", 2, 50, cls);
    std::vector<uint8_t> codes(100);
    std::vector<float> scales(2);
    device::CodeRows room;
    room.codes = codes.data();
    room.channel_scales = scales.data();
    source->read_codes(0, 2, room);
    const std::vector<float> values = numbers(cls, 2, 50, 0, 2);
    int lowest = 0, highest = 0;
    for (size_t i = 0; i < codes.size(); ++i) {
      const int code = static_cast<int8_t>(codes[i]);
      EXPECT_EQ(scales[i / 50] * static_cast<float>(code), values[i]);
      lowest = std::min(lowest, code), highest = std::max(highest, code);
    }
    EXPECT_LE(lowest, cls == ComputeClass::i4_channel ? -7 : -100);
    EXPECT_GE(lowest, cls == ComputeClass::i4_channel ? -8 : -128);
    EXPECT_LE(highest, cls == ComputeClass::i4_channel ? 7 : 127);
  }
}

TEST(DummyWeights, EveryTinyConfigRuns) {
  for (const char* name : {"llama", "qwen3_moe", "qwen3_5", "qwen3_5_moe", "minimax_m2", "minimax_m2_fp8"}) {
    const Model model = dummy(kTiny + name, "", ComputeClass::i4_group);
    const auto backend = device::make_cpu_backend(2, device::ActivationMode::int8);
    Runner runner(*backend, model);
    const std::vector<float> logits = runner.logits({1, 2, 3, 4, 5});
    for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit)) << name;
    EXPECT_GT(*std::max_element(logits.begin(), logits.end()), 0.01f) << name;
  }
}

TEST(DummyWeights, PublishedShapesAreBuiltFromTheirConfigAlone) {
  // Nothing is allocated before a back end binds, so even the whole models can be laid out anywhere.
  const Model minimax = dummy(kConfigs + "minimax-m2.5", "");
  EXPECT_EQ(minimax.config.layers, 62);
  const Model qwen = dummy(kConfigs + "qwen3.5-122b-a10b", "");
  EXPECT_EQ(qwen.config.layers, 48);
  EXPECT_EQ(qwen.program->caches().size(), 12u);
  EXPECT_EQ(qwen.program->states().size(), 36u);
  int64_t parameters[2] = {0, 0};
  for (int i = 0; i < 2; ++i)
    for (const device::WeightDecl& decl : (i == 0 ? minimax : qwen).program->weights())
      parameters[i] += decl.source->rows() * decl.source->columns();
  EXPECT_NEAR(static_cast<double>(parameters[0]) / 1e9, 228.7, 1.0);
  EXPECT_NEAR(static_cast<double>(parameters[1]) / 1e9, 122.1, 1.5);
}

TEST(HfOverrides, TakeFewerLayers) {
  EXPECT_EQ(dummy(kConfigs + "minimax-m2.5", R"({"num_hidden_layers": 2})").config.layers, 2);
  // The key stands in text_config only; the list of layer types is cut to it.
  const Model qwen = dummy(kTiny + "qwen3_5_moe", R"({"num_hidden_layers": 3})");
  EXPECT_EQ(qwen.config.layers, 3);
  EXPECT_EQ(qwen.program->states().size(), 3u);
  EXPECT_EQ(dummy(kTiny + "qwen3_5_moe", R"({"text_config": {"num_hidden_layers": 3}})").config.layers, 3);
}

TEST(HfOverrides, NewKeysAtTheRootLeaveTheTextTowersInPlace) {
  // Each new key may move the root's members; the key after it is merged into the text tower nevertheless.
  const Model model = dummy(kTiny + "qwen3_5_moe",
                            R"({"new_a": 1, "new_b": 2, "new_c": {"d": 3}, "num_hidden_layers": 3, "new_e": null})");
  EXPECT_EQ(model.config.layers, 3);
  EXPECT_EQ(model.program->states().size(), 3u);
}

TEST(HfOverrides, MergeObjectsMemberByMember) {
  const Model plain = dummy(kTiny + "llama", "");
  const Model changed = dummy(kTiny + "llama", R"({"rope_parameters": {"factor": 4.0}, "rms_norm_eps": 0.5})");
  EXPECT_EQ(changed.config.norm_eps, 0.5f);
  EXPECT_NE(changed.config.rope.inv_freq, plain.config.rope.inv_freq);
  EXPECT_EQ(changed.config.rope.inv_freq.front(), plain.config.rope.inv_freq.front());  // the other keys stay
}

TEST(HfOverrides, FaultsNameTheFlagOrTheKey) {
  const auto error = [&](const std::string& overrides) { return error_of([&] { dummy(kTiny + "llama", overrides); }); };
  EXPECT_THAT(error("{"), HasSubstr("--hf-overrides"));
  EXPECT_THAT(error("[1]"), HasSubstr("--hf-overrides: must be a JSON object"));
  EXPECT_THAT(error(R"({"hidden_size": "wide"})"), HasSubstr("key \"hidden_size\": must be a whole number"));
  EXPECT_THAT(error(R"({"architectures": ["GPT2LMHeadModel"]})"), HasSubstr("\"GPT2LMHeadModel\" is not supported"));
  BuildOptions options;
  options.hf_overrides = "{}";
  EXPECT_THAT(error_of([&] { load_model(GRISTMILL_TEST_DIR "/golden/tiny_llama.gguf", options); }),
              HasSubstr("has no config.json to override"));
  options.hf_overrides = "";
  options.load_format = LoadFormat::dummy;
  EXPECT_THAT(error_of([&] { load_model(GRISTMILL_TEST_DIR "/golden/tiny_llama.gguf", options); }),
              HasSubstr("is not a Hugging Face folder"));
  options.load_format = LoadFormat::gguf;
  EXPECT_THAT(error_of([&] { load_model(kTiny + "llama", options); }), HasSubstr("--load-format gguf"));
}

TEST(DummyWeights, CanBeQuantizedAtLoad) {
  BuildOptions options;
  options.load_format = LoadFormat::dummy;
  for (const auto& [how, cls] : {std::pair{"w8a8", ComputeClass::i8_channel}, {"w4a8", ComputeClass::i4_channel}}) {
    options.quantization = how;
    const Model model = load_model(kTiny + "llama", options);
    int quantized = 0;
    for (const device::WeightDecl& weight : model.program->weights()) quantized += weight.source->encoding().cls == cls;
    EXPECT_EQ(quantized, 14) << how;
  }
  for (const char* how : {"ascend", "fp8"}) {
    options.quantization = how;
    EXPECT_THAT(error_of([&] { load_model(kTiny + "llama", options); }), HasSubstr("made-up weights"));
  }
}

}  // namespace
}  // namespace gristmill::model
