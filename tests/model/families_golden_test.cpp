// Every architecture of Hugging Face folders against transformers in float32: our own tiny checkpoints
// (tests/golden/make_hf_families.py), the same as GGUF files (make_gguf_families.py), and larger ones where there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "device/reference/delta_net.h"
#include "device/reference/inspect.h"
#include "device/reference/scalar_ops.h"
#include "model/golden.h"

namespace gristmill::model {
namespace {

constexpr float kTolerance = 2e-3f;
constexpr int kTokens = 384;
constexpr int kThreads = 2;

struct Family {
  std::string name;
  std::string folder;
  std::string golden;
};

std::vector<Family> families() {
  std::vector<Family> all;
  for (const char* name :
       {"llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "qwen3_5", "qwen3_5_moe", "minimax_m2", "minimax_m2_fp8"}) {
    const std::string folder = cat(GRISTMILL_TEST_DIR "/golden/hf/", name);
    all.push_back({cat("own_", name), folder, folder + "/golden.safetensors"});
  }
  for (const char* name : {"qwen2", "qwen3", "qwen3_moe", "qwen3_5", "qwen3_5_moe", "minimax_m2"})
    all.push_back({cat("gguf_", name), cat(GRISTMILL_TEST_DIR "/golden/gguf/", name, ".gguf"),
                   cat(GRISTMILL_TEST_DIR "/golden/hf/", name, "/golden.safetensors")});
  const std::string shared = GRISTMILL_SHARED_DATA "/golden/";
  for (const auto& [name, golden] :
       std::vector<std::pair<std::string, std::string>>{{"tiny-llama", "tiny-llama"},
                                                        {"tiny-qwen3-moe", "tiny-qwen3-moe"},
                                                        {"tiny-qwen3-moe-sharded", "tiny-qwen3-moe"},
                                                        {"tiny-qwen3_5-dense", "tiny-qwen3_5-dense"},
                                                        {"tiny-qwen3_5-moe", "tiny-qwen3_5-moe"},
                                                        {"tiny-minimax-m2", "tiny-minimax-m2"},
                                                        {"tiny-minimax-m2-fp8", "tiny-minimax-m2-fp8"}})
    all.push_back({name, shared + name, shared + "golden/" + golden + "/text.safetensors"});
  return all;
}

std::string test_name(const ::testing::TestParamInfo<Family>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// The tensors of a golden file.
class FamilyGolden {
 public:
  explicit FamilyGolden(const std::string& path) : file_(weights::SafetensorsFile::open(path)) {}

  std::vector<std::string> prompts() const {
    std::vector<std::string> names;
    constexpr std::string_view kEnding = ".input_ids";
    for (const std::string& name : file_->names())
      if (name.ends_with(kEnding)) names.push_back(name.substr(0, name.size() - kEnding.size()));
    return names;
  }
  bool has(const std::string& name) const { return file_->contains(name); }
  std::vector<int64_t> shape(const std::string& name) const { return file_->tensor(name).shape; }
  std::vector<float> floats(const std::string& name) const { return read<float>(name); }
  std::vector<int32_t> ids(const std::string& name) const { return read<int32_t>(name); }

 private:
  template <class T>
  std::vector<T> read(const std::string& name) const {
    const TensorView tensor = file_->tensor(name);
    std::vector<T> values(tensor.bytes.size() / sizeof(T));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
  std::shared_ptr<const weights::SafetensorsFile> file_;
};

class FamilyTest : public ::testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(GetParam().golden)) GTEST_SKIP() << GetParam().golden << " is absent";
  }
  Model load(const BuildOptions& options) const { return load_model(GetParam().folder, options); }
  static std::vector<std::unique_ptr<device::Backend>> backends() {
    std::vector<std::unique_ptr<device::Backend>> all;
    all.push_back(device::make_reference_backend());
    all.push_back(device::make_cpu_backend(kThreads, device::ActivationMode::f32));
    return all;
  }
};

TEST_P(FamilyTest, LogitsHiddenStatesAndContinuationsAgreeWithTransformers) {
  const FamilyGolden golden(GetParam().golden);
  const Model model = load({.exact = true, .tap_layers = true});
  const auto width = static_cast<size_t>(model.config.hidden);
  for (const auto& backend : backends()) {
    SCOPED_TRACE(backend->name());
    Runner runner(*backend, model, DType::f32, kTokens);
    float logit_error = 0, hidden_error = 0;
    ASSERT_FALSE(golden.prompts().empty());
    for (const std::string& prompt : golden.prompts()) {
      SCOPED_TRACE(prompt);
      const std::vector<int32_t> ids = golden.ids(prompt + ".input_ids");
      const std::vector<float> expected = golden.floats(prompt + ".logits");
      const std::vector<float> got = runner.logits(ids);
      ASSERT_EQ(got.size(), expected.size());
      logit_error = std::max(logit_error, largest_difference(got.data(), expected.data(), got.size()));
      const std::vector<int32_t> continuation = golden.ids(prompt + ".greedy_ids");
      EXPECT_EQ(runner.greedy(ids, continuation.size()), continuation);
      if (!golden.has(prompt + ".hidden")) continue;
      const std::vector<float> hidden = golden.floats(prompt + ".hidden");
      runner.restart();
      const device::StepResult& result = runner.step(ids, false);
      ASSERT_EQ(hidden.size(), result.taps.size() * ids.size() * width);
      for (size_t slot = 0; slot < result.taps.size(); ++slot)
        hidden_error =
            std::max(hidden_error, largest_difference(result.taps[slot].data(),
                                                      hidden.data() + slot * ids.size() * width, ids.size() * width));
    }
    std::printf("%s, %s: largest error of logits %.1e, of hidden states %.1e\n", GetParam().name.c_str(),
                backend->name().c_str(), logit_error, hidden_error);
    EXPECT_LT(logit_error, kTolerance);
    EXPECT_LT(hidden_error, kTolerance);
  }
}

TEST_P(FamilyTest, ChunksOfAnySizeGiveTheSameBits) {
  const FamilyGolden golden(GetParam().golden);
  const Model model = load({.exact = true});
  for (const auto& backend : backends()) {
    SCOPED_TRACE(backend->name());
    Runner runner(*backend, model, DType::f32, kTokens);
    for (const std::string& prompt : golden.prompts()) {
      SCOPED_TRACE(prompt);
      const std::vector<int32_t> ids = golden.ids(prompt + ".input_ids");
      const std::vector<float> whole = runner.logits(ids);
      for (const size_t chunk : {1u, 7u, 16u, 64u}) EXPECT_TRUE(runner.logits(ids, chunk) == whole) << chunk;
    }
  }
}

TEST_P(FamilyTest, CompactWeightsStayClose) {
  // bfloat16 checkpoints are the same numbers in the compact form; only the products of FP8 blocks are rounded.
  const FamilyGolden golden(GetParam().golden);
  const Model model = load({});
  const auto backend = device::make_cpu_backend(kThreads, device::ActivationMode::int8);
  Runner runner(*backend, model, DType::f32, kTokens);
  const bool fp8 = GetParam().name.ends_with("fp8");
  for (const std::string& prompt : golden.prompts()) {
    const std::vector<float> expected = golden.floats(prompt + ".logits");
    const std::vector<float> got = runner.logits(golden.ids(prompt + ".input_ids"));
    ASSERT_EQ(got.size(), expected.size());
    double error = 0;
    for (size_t i = 0; i < got.size(); ++i) error += std::fabs(got[i] - expected[i]);
    EXPECT_LT(error / static_cast<double>(got.size()), fp8 ? 0.05 : 1e-4) << prompt;
  }
}

TEST_P(FamilyTest, RoutersChooseTheSameExperts) {
  const FamilyGolden golden(GetParam().golden);
  const Model model = load({.exact = true, .tap_layers = false, .tap_router_inputs = true});
  std::vector<const device::Moe*> mixtures;
  for (const device::Op& op : model.program->ops())
    if (const auto* moe = std::get_if<device::MoeOp>(&op)) mixtures.push_back(&moe->moe);
  EXPECT_EQ(mixtures.empty(), !golden.has(golden.prompts()[0] + ".route_ids"));
  if (mixtures.empty()) return;
  const auto width = static_cast<size_t>(model.config.hidden);
  const auto backend = device::make_cpu_backend(kThreads, device::ActivationMode::f32);
  Runner runner(*backend, model, DType::f32, kTokens);
  int compared = 0;
  for (const std::string& prompt : golden.prompts()) {
    const std::vector<int32_t> ids = golden.ids(prompt + ".input_ids");
    const std::vector<int32_t> expected = golden.ids(prompt + ".route_ids");
    const auto k = static_cast<size_t>(golden.shape(prompt + ".route_ids").back());
    runner.restart();
    const device::StepResult& result = runner.step(ids, false);
    ASSERT_EQ(result.taps.size(), mixtures.size());
    ASSERT_EQ(expected.size(), mixtures.size() * ids.size() * k);
    for (size_t layer = 0; layer < mixtures.size(); ++layer) {
      const device::Moe& moe = *mixtures[layer];
      std::vector<float> router(static_cast<size_t>(moe.experts) * width), bias(static_cast<size_t>(moe.experts));
      model.program->weight(moe.router).read_f32(0, moe.experts, router.data());
      if (moe.select_bias) model.program->weight(*moe.select_bias).read_f32(0, 1, bias.data());
      for (size_t t = 0; t < ids.size(); ++t) {
        std::vector<float> scores, weights(k);
        for (size_t e = 0; e < bias.size(); ++e)
          scores.push_back(std::inner_product(&router[e * width], &router[e * width] + width,
                                              result.taps[layer].data() + t * width, 0.0f));
        std::vector<int32_t> chosen(k);
        device::reference::route(moe, moe.select_bias ? bias.data() : nullptr, scores.data(), chosen.data(),
                                 weights.data());
        const auto* const row = &expected[(layer * ids.size() + t) * k];
        EXPECT_THAT(chosen, ::testing::UnorderedElementsAreArray(row, row + k)) << prompt << " layer " << layer;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 0);
}

/// The last three inputs of every channel before a convolution, oldest first, as transformers keeps them.
std::vector<float> conv_tail(const device::DeltaNet& op, const float* state, int32_t tokens) {
  const device::reference::DeltaNetLayout layout({op.v_heads, op.k_heads, op.k_dim, op.v_dim, op.conv_width});
  const int tail = op.conv_width - 1, keys = op.k_heads * op.k_dim;
  std::vector<float> all(static_cast<size_t>((2 * keys + op.v_heads * op.v_dim) * tail));
  for (int group = 0; group < op.k_heads; ++group) {
    const float* const inputs = state + static_cast<size_t>(group) * layout.group_floats;
    for (int c = 0; c < layout.channels; ++c) {
      const int channel = c < op.k_dim       ? group * op.k_dim + c
                          : c < 2 * op.k_dim ? keys + group * op.k_dim + c - op.k_dim
                                             : 2 * keys + group * layout.values * op.v_dim + c - 2 * op.k_dim;
      for (int j = 0; j < tail; ++j)
        all[static_cast<size_t>(channel * tail + j)] =
            inputs[(tokens - tail + j) % op.conv_width * layout.channels + c];
    }
  }
  return all;
}

class RecurrentStateTest : public FamilyTest {};

TEST_P(RecurrentStateTest, AgreesWithTransformers) {
  const FamilyGolden golden(GetParam().golden);
  const Model model = load({.exact = true});
  std::vector<const device::DeltaNet*> layers;
  std::vector<int> indexes;  // of the layers among all
  int index = 0;
  for (const device::Op& op : model.program->ops()) {
    if (const auto* delta_net = std::get_if<device::DeltaNetOp>(&op)) {
      layers.push_back(&delta_net->delta_net);
      indexes.push_back(index);
    }
    if (std::holds_alternative<device::DeltaNetOp>(op) || std::holds_alternative<device::AttentionOp>(op)) ++index;
  }
  const auto backend = device::make_reference_backend();
  Runner runner(*backend, model, DType::f32, kTokens);
  int compared = 0;
  for (const std::string& prompt : golden.prompts()) {
    if (!golden.has(cat(prompt, ".recurrent_state.", indexes[0]))) continue;
    const std::vector<int32_t> ids = golden.ids(prompt + ".input_ids");
    const auto tokens = static_cast<int32_t>(ids.size());
    runner.restart();
    runner.step(ids, false);
    const float* state = device::reference::recurrent_state(runner.executable(), 0).data();
    ASSERT_NE(state, nullptr);
    for (size_t i = 0; i < layers.size(); ++i) {
      SCOPED_TRACE(cat(prompt, " layer ", indexes[i]));
      const device::DeltaNet& op = *layers[i];
      const device::reference::DeltaNetLayout layout({op.v_heads, op.k_heads, op.k_dim, op.v_dim, op.conv_width});
      const std::vector<float> expected = golden.floats(cat(prompt, ".recurrent_state.", indexes[i]));
      std::vector<float> got(expected.size());
      ASSERT_EQ(expected.size(), static_cast<size_t>(op.v_heads * op.k_dim * op.v_dim));
      for (int group = 0; group < op.k_heads; ++group)
        device::reference::delta_net_state(op, layout, state + static_cast<size_t>(group) * layout.group_floats, tokens,
                                           got.data() + group * layout.values * op.k_dim * op.v_dim);
      EXPECT_LT(largest_difference(got.data(), expected.data(), got.size()), 1e-4f);
      const std::vector<float> tail = conv_tail(op, state, tokens);
      const std::vector<float> expected_tail = golden.floats(cat(prompt, ".conv_state.", indexes[i]));
      ASSERT_EQ(tail.size(), expected_tail.size());
      EXPECT_LT(largest_difference(tail.data(), expected_tail.data(), tail.size()), 1e-4f);
      state += layout.floats;
      ++compared;
    }
  }
  EXPECT_GT(compared, 0);
}

std::vector<Family> families_with_golden_states() {
  std::vector<Family> some = families();
  std::erase_if(some, [](const Family& each) { return !each.name.starts_with("tiny-qwen3_5"); });
  return some;
}
INSTANTIATE_TEST_SUITE_P(Families, RecurrentStateTest, ::testing::ValuesIn(families_with_golden_states()), test_name);

INSTANTIATE_TEST_SUITE_P(Families, FamilyTest, ::testing::ValuesIn(families()), test_name);

}  // namespace
}  // namespace gristmill::model
