// Quantized checkpoints with stored references (GRISTMILL_SHARED_DATA), layer by layer: each layer gets the reference's
// own input, since a last bit that turns a code into its neighbour grows from layer to layer.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "base/json.h"
#include "device/cpu/static_cache.h"
#include "model/golden.h"
#include "weights/gguf_bytes.h"
#include "weights/safetensors_bytes.h"
#include "weights/safetensors_folder.h"

namespace gristmill::model {
namespace {

using gristmill::testing::SafetensorsBytes;
using gristmill::testing::TemporaryFolder;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string dtype_name(StorageType type) {
  switch (type) {
    case StorageType::f32:
      return "F32";
    case StorageType::bf16:
      return "BF16";
    case StorageType::f16:
      return "F16";
    case StorageType::i32:
      return "I32";
    case StorageType::i64:
      return "I64";
    default:
      return "I8";
  }
}

struct Quantized {
  std::string folder, golden;
  std::unique_ptr<TemporaryFolder> made = std::make_unique<TemporaryFolder>();

  explicit Quantized(const std::string& name)
      : folder(GRISTMILL_SHARED_DATA "/quant/models/" + name),
        golden(GRISTMILL_SHARED_DATA "/quant/models/golden/" + name + ".safetensors") {}

  /// A model of one layer: layer `index`, behind a table whose rows are `inputs`.
  std::string one_layer(int index, const std::vector<float>& inputs, int64_t width) const {
    const auto checkpoint = weights::SafetensorsFolder::open(folder);
    const int64_t tokens = static_cast<int64_t>(inputs.size()) / width;
    SafetensorsBytes bytes;
    std::string description = read(folder + "/quant_model_description.json");
    const std::string own = cat("layers.", index, ".");
    for (const std::string& name : checkpoint->names()) {
      const TensorView view = checkpoint->tensor(name);
      std::string to = name;
      if (const size_t at = name.find(".layers."); at != std::string::npos && !name.starts_with("mtp")) {
        if (name.compare(at + 1, own.size(), own) != 0) continue;
        to.replace(at + 1, own.size(), "layers.0.");
        if (to != name) description = std::regex_replace(description, std::regex("\"" + to + "\": \"[^\"]*\","), "");
      } else if (name.ends_with("embed_tokens.weight")) {
        bytes.add(name, "F32", {tokens, width}, inputs);
        continue;
      } else if (name == "lm_head.weight") {
        bytes.add(name, "F32", {tokens, width}, inputs);
        continue;
      }
      bytes.add(to, dtype_name(view.type), view.shape,
                std::string(reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size()));
    }
    if (index != 0) {
      const auto rename = [&](const std::string& from, const std::string& to) {
        for (size_t at = 0; (at = description.find(from, at)) != std::string::npos; at += to.size())
          description.replace(at, from.size(), to);
      };
      rename("." + own, ".layers.0.");
      rename(".layers.layers.0.", ".layers.0.");
    }
    std::string config = read(folder + "/config.json");
    config = std::regex_replace(config, std::regex("\"num_hidden_layers\": [0-9]+"), "\"num_hidden_layers\": 1");
    config = std::regex_replace(config, std::regex("\"vocab_size\": [0-9]+"), cat("\"vocab_size\": ", tokens));
    std::smatch types;
    if (std::regex_search(config, types, std::regex("\"layer_types\": \\[([^\\]]*)\\]"))) {
      std::vector<std::string> all;
      const std::string list = types[1];
      const std::regex word("\"[a-z_]+\"");
      for (std::sregex_iterator at(list.begin(), list.end(), word), end; at != end; ++at) all.push_back(at->str());
      const std::string only = cat("\"layer_types\": [", all[static_cast<size_t>(index)], "]");
      config.replace(static_cast<size_t>(types.position(0)), static_cast<size_t>(types.length(0)), only);
    }
    made->write("config.json", config);
    made->write("quant_model_description.json", description);
    made->write("model.safetensors", bytes.bytes());
    return made->path("");
  }
};

class QuantLayers : public ::testing::TestWithParam<const char*> {};

/// int8 where the checkpoint has scales for that.
DType cache_of(const Model& model) {
  for (const device::Op& op : model.program->ops())
    if (const auto* attention = std::get_if<device::AttentionOp>(&op))
      return attention->attention.cache_scales ? DType::i8 : DType::f32;
  return DType::f32;
}

std::vector<float> floats(const weights::SafetensorsFile& file, const std::string& name) {
  const TensorView tensor = file.tensor(name);
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

TEST_P(QuantLayers, EveryLayerStaysWithinItsTolerance) {
  const Quantized quantized(GetParam());
  if (!std::filesystem::exists(quantized.golden)) GTEST_SKIP() << quantized.golden << " is absent";
  const auto golden = weights::SafetensorsFile::open(quantized.golden);
  const Json report = parse_json("report", golden->metadata().at("report"));
  const std::vector<Json>& layers = report.find("layers")->array;
  std::string prompt;
  for (const Json& each : report.find("prompts")->array)
    if (golden->contains(each.string + ".hidden")) prompt = each.string;
  ASSERT_FALSE(prompt.empty());
  const std::vector<int64_t> shape = golden->tensor(prompt + ".hidden").shape;
  const std::vector<float> hidden = floats(*golden, prompt + ".hidden");
  const auto size = static_cast<size_t>(shape[1] * shape[2]);
  ASSERT_EQ(shape[0], static_cast<int64_t>(layers.size()) + 1);
  std::vector<int32_t> ids(static_cast<size_t>(shape[1]));
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<std::unique_ptr<device::Backend>> backends;
  backends.push_back(device::make_reference_backend());
  backends.push_back(device::make_cpu_backend(2, device::ActivationMode::int8));
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const std::vector<float> input(hidden.begin() + static_cast<std::ptrdiff_t>(layer * size),
                                   hidden.begin() + static_cast<std::ptrdiff_t>((layer + 1) * size));
    const Model model = load_model(quantized.one_layer(static_cast<int>(layer), input, shape[2]), {.tap_layers = true});
    const auto number = [&](const char* key) { return layers[layer].find(key)->number; };
    for (const auto& backend : backends) {
      Runner runner(*backend, model, cache_of(model));
      const auto output = runner.step(ids, false).taps[1];
      std::vector<double> errors;
      double sum = 0;
      for (size_t i = 0; i < size; ++i) {
        errors.push_back(
            std::fabs(static_cast<double>(output[i]) - static_cast<double>(hidden[(layer + 1) * size + i])));
        sum += errors.back();
      }
      std::sort(errors.begin(), errors.end());
      const double mean = sum / static_cast<double>(size), p99 = errors[size * 99 / 100];
      std::printf("%s layer %zu, %s: mean %.1e, p99 %.1e\n", GetParam(), layer, backend->name().c_str(), mean, p99);
      // The CPU back end reads int8 caches with 16-bit codes of queries and softmax weights, not with floats.
      const double words = cache_of(model) == DType::i8 && backend->name() == "cpu" ? 5e-4 * number("out_std") : 0;
      EXPECT_LE(mean, 3 * number("jitter_mean_abs") + 1e-6 * number("out_std") + words)
          << layer << " " << backend->name();
      EXPECT_LE(p99, 3 * number("jitter_p99_abs") + 1e-5 * number("out_std") + 10 * words)
          << layer << " " << backend->name();
    }
  }
}

/// Kullback-Leibler divergence of softmax(q) from softmax(p), in nats.
double divergence(const float* p, const float* q, size_t count) {
  const auto log_sum = [count](const float* x) {
    const double highest = static_cast<double>(*std::max_element(x, x + count));
    double sum = 0;
    for (size_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(x[i]) - highest);
    return highest + std::log(sum);
  };
  const double log_p = log_sum(p), log_q = log_sum(q);
  double total = 0;
  for (size_t i = 0; i < count; ++i) {
    const double lp = static_cast<double>(p[i]) - log_p;
    total += std::exp(lp) * (lp - (static_cast<double>(q[i]) - log_q));
  }
  return total;
}

TEST_P(QuantLayers, TheWholeModelKeepsTheDistribution) {
  const Quantized quantized(GetParam());
  if (!std::filesystem::exists(quantized.golden)) GTEST_SKIP() << quantized.golden << " is absent";
  const auto golden = weights::SafetensorsFile::open(quantized.golden);
  const Json report = parse_json("report", golden->metadata().at("report"));
  const Model model = load_model(quantized.folder, {});
  const auto backend = device::make_cpu_backend(2, device::ActivationMode::int8);
  Runner runner(*backend, model, cache_of(model));
  double total = 0;
  size_t positions = 0;
  const auto vocabulary = static_cast<size_t>(model.config.vocabulary);
  for (const Json& prompt : report.find("prompts")->array) {
    const TensorView view = golden->tensor(prompt.string + ".input_ids");
    std::vector<int32_t> ids(view.bytes.size() / sizeof(int32_t));
    std::memcpy(ids.data(), view.bytes.data(), view.bytes.size());
    const std::vector<float> expected = floats(*golden, prompt.string + ".logits"), got = runner.logits(ids);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t at = 0; at < got.size(); at += vocabulary, ++positions)
      total += divergence(&expected[at], &got[at], vocabulary);
  }
  const double mean = total / static_cast<double>(positions);
  std::printf("%s: mean KL %.1e\n", GetParam(), mean);
  EXPECT_LE(mean, report.find("tolerance")->find("kl_mean")->number);
}

TEST(QuantGolden, CacheCodesEqualTheVector) {
  const std::string path = GRISTMILL_SHARED_DATA "/quant/vectors/kv_c8_6x2x32.safetensors";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
  const auto file = weights::SafetensorsFile::open(path);
  const std::vector<float> k = floats(*file, "k"), scale = floats(*file, "kv_cache_scale"),
                           offset = floats(*file, "kv_cache_offset"), wanted = floats(*file, "k_deq");
  const TensorView codes = file->tensor("k_q");
  constexpr int kTokens = 6, kHeads = 2, kDim = 32;
  const device::cpu::StaticCache cache({scale, offset, scale, offset}, kDim);
  for (int t = 0; t < kTokens; ++t)
    for (int h = 0; h < kHeads; ++h) {
      const auto first = static_cast<size_t>((t * kHeads + h) * kDim);
      std::vector<uint8_t> got(kDim);
      EXPECT_EQ(cache.encode_k(h, &k[first], got.data()), 1.0f);
      EXPECT_EQ(std::memcmp(got.data(), codes.bytes.data() + first, kDim), 0) << t << " " << h;
      // As values they come back the same way.
      std::vector<float> back(got.size());
      for (size_t d = 0; d < back.size(); ++d) back[d] = static_cast<float>(static_cast<int8_t>(got[d]));
      cache.finish(h, back.data());
      EXPECT_EQ(std::memcmp(back.data(), &wanted[first], sizeof(float) * kDim), 0) << t << " " << h;
    }
}

INSTANTIATE_TEST_SUITE_P(Models, QuantLayers,
                         ::testing::Values("tiny-llama-w8a8", "tiny-llama-w8a8-static", "tiny-llama-w4a8-g48",
                                           "tiny-llama-w8a16", "tiny-qwen3-moe-w4a8", "tiny-qwen3_5-moe-w8a8",
                                           "tiny-qwen3_5-moe-w4a8", "tiny-minimax-m2-w8a8-quarot",
                                           "tiny-minimax-m2-w8a8c8-quarot"),
                         [](const auto& each) {
                           std::string name = each.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace gristmill::model
