// Quantized folders: each format's linears bit for bit against an independent computation (tests/golden/
// make_quant_models.py), and what a damaged or unknown one is refused with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "device/reference/matrix.h"
#include "model/golden.h"
#include "weights/gguf_bytes.h"
#include "weights/safetensors_bytes.h"

namespace gristmill::model {
namespace {

using gristmill::testing::error_of;
using gristmill::testing::SafetensorsBytes;
using gristmill::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string fixture(const std::string& name) {
  return GRISTMILL_TEST_DIR "/golden/quant/" + name;
}

/// Products of whole matrices, with the rows of one linear picked out.
class Expected {
 public:
  explicit Expected(const std::string& name)
      : file_(weights::SafetensorsFile::open(fixture(name) + "/expected/linears.safetensors")) {}

  bool has(const std::string& linear) const { return file_->contains(linear + ".y"); }
  size_t linears() const {
    size_t count = 0;
    for (const std::string& name : file_->names()) count += name.ends_with(".y") ? 1 : 0;
    return count;
  }
  /// Compares outputs [first, first + count) of `weight` with those of the linear.
  void compare(const std::string& linear, const device::WeightSource& weight, int64_t first, int64_t count) const {
    constexpr int kRows = 4;
    const std::vector<float> x = floats(cat("x.", weight.columns())), wanted = floats(linear + ".y");
    std::vector<float> memory(device::reference::matrix_bytes(weight) / sizeof(float) + 1);
    const device::reference::Matrix matrix = device::reference::read_matrix(weight, memory.data());
    std::vector<float> y(static_cast<size_t>(kRows * weight.rows()));
    device::reference::multiply(x.data(), kRows, matrix, nullptr, y.data());
    ASSERT_EQ(wanted.size(), static_cast<size_t>(kRows * count)) << linear;
    const bool exact = file_->tensor(linear + ".exact").bytes[0] != std::byte{0};
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t n = 0; n < count; ++n) {
        const float got = y[static_cast<size_t>(r * weight.rows() + first + n)];
        const float want = wanted[static_cast<size_t>(r * count + n)];
        if (exact) {
          ASSERT_EQ(got, want) << linear << " " << r << " " << n;
        } else {
          ASSERT_NEAR(got, want, 1e-5) << linear << " " << r << " " << n;
        }
      }
  }

 private:
  std::vector<float> floats(const std::string& name) const {
    const TensorView tensor = file_->tensor(name);
    std::vector<float> values(tensor.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
  std::shared_ptr<const weights::SafetensorsFile> file_;
};

class QuantFixture : public ::testing::TestWithParam<const char*> {};

TEST_P(QuantFixture, EveryLinearGivesTheIndependentResult) {
  const Expected expected(GetParam());
  const Model model = load_model(fixture(GetParam()), {});
  size_t compared = 0;
  const auto whole = [&](device::WeightRef ref) {
    const device::WeightSource& weight = model.program->weight(ref);
    const std::string linear = weight.name().substr(0, weight.name().rfind(".weight"));
    if (!expected.has(linear)) return;
    expected.compare(linear, weight, 0, weight.rows());
    ++compared;
  };
  int layer = 0;
  for (const device::Op& op : model.program->ops()) {
    if (const auto* linear = std::get_if<device::LinearOp>(&op))
      for (const device::Linear& each : linear->linears) whole(each.weight);
    if (const auto* head = std::get_if<device::HeadOp>(&op)) whole(head->vocabulary);
    if (const auto* mix = std::get_if<device::MoeOp>(&op)) {
      const device::Moe& moe = mix->moe;
      const device::WeightSource &gate_up = model.program->weight(moe.gate_up), &down = model.program->weight(moe.down);
      layer = std::stoi(gate_up.name().substr(gate_up.name().find("layers.") + 7));
      for (int64_t e = 0; e < moe.experts; ++e) {
        const std::string expert = cat("model.layers.", layer, ".mlp.experts.", e, ".");
        expected.compare(expert + "gate_proj", gate_up, 2 * e * moe.width, moe.width);
        expected.compare(expert + "up_proj", gate_up, (2 * e + 1) * moe.width, moe.width);
        expected.compare(expert + "down_proj", down, e * down.rows() / moe.experts, down.rows() / moe.experts);
        compared += 3;
      }
    }
  }
  EXPECT_EQ(compared, expected.linears());
}

TEST_P(QuantFixture, BothBackEndsStayClose) {
  const Model model = load_model(fixture(GetParam()), {});
  std::vector<int32_t> ids;
  for (int i = 0; i < 30; ++i) ids.push_back(i * 7 % 96);
  const auto slow = device::make_reference_backend();
  const auto fast = device::make_cpu_backend(2, device::ActivationMode::int8);
  Runner a(*slow, model), b(*fast, model);
  const std::vector<float> expected = a.logits(ids), got = b.logits(ids);
  EXPECT_EQ(b.logits(ids, 7), got);
  // A last bit of a norm can turn a code of an activation into its neighbour, never more.
  double error = 0;
  for (size_t i = 0; i < got.size(); ++i) error += std::fabs(got[i] - expected[i]);
  EXPECT_LT(error / static_cast<double>(got.size()), 0.02);
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantFixture,
                         ::testing::Values("ascend_llama", "ascend_qwen3_moe", "fp8_llama", "int8_llama"),
                         [](const auto& each) { return std::string(each.param); });

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
    case StorageType::i8:
      return "I8";
    case StorageType::i32:
      return "I32";
    case StorageType::i64:
      return "I64";
    default:
      return "F8_E4M3";
  }
}

/// A fixture that can be changed tensor by tensor.
class Changed {
 public:
  explicit Changed(const std::string& name) : config(read(fixture(name) + "/config.json")) {
    description = read(fixture(name) + "/quant_model_description.json");
    file_ = weights::SafetensorsFile::open(fixture(name) + (description.empty()
                                                                ? "/model.safetensors"
                                                                : "/quant_model_weights-00001-of-00001.safetensors"));
    for (const std::string& each : file_->names()) {
      const TensorView view = file_->tensor(each);
      tensors[each] = {dtype_name(view.type), view.shape,
                       std::string(reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size())};
    }
  }
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
    std::string data;
  };
  /// The message that loading throws, "" when it works.
  std::string error(const BuildOptions& options = {}) const {
    TemporaryFolder folder;
    write(folder);
    return error_of([&] { load_model(folder.path(""), options); });
  }
  void write(TemporaryFolder& folder) const {
    SafetensorsBytes bytes;
    for (const auto& [name, tensor] : tensors) bytes.add(name, tensor.dtype, tensor.shape, tensor.data);
    folder.write("config.json", config);
    if (!description.empty()) folder.write(description_name, description);
    folder.write("weights.safetensors", bytes.bytes());
  }
  Changed& describe(const std::string& tensor, const std::string& type) {
    const size_t at = description.find("\"" + tensor + "\": \"");
    EXPECT_NE(at, std::string::npos) << tensor;
    const size_t value = at + tensor.size() + 5, end = description.find('"', value);
    description.replace(value, end - value, type);
    return *this;
  }
  Changed& forget(const std::string& tensor) {
    const size_t at = description.find("\"" + tensor + "\"");
    EXPECT_NE(at, std::string::npos) << tensor;
    description.erase(at, description.find(',', at) + 1 - at);
    return *this;
  }

  std::string config, description, description_name = "quant_model_description.json";
  std::map<std::string, Tensor> tensors;

 private:
  std::shared_ptr<const weights::SafetensorsFile> file_;
};

const std::string kQ = "model.layers.0.self_attn.q_proj", kK = "model.layers.0.self_attn.k_proj",
                  kV = "model.layers.0.self_attn.v_proj", kO = "model.layers.0.self_attn.o_proj",
                  kGate = "model.layers.0.mlp.gate_proj";

TEST(AscendFolder, LoadsUnchangedAndUnderItsOlderName) {
  Changed folder("ascend_llama");
  EXPECT_EQ(folder.error(), "");
  EXPECT_EQ(folder.error({.quantization = "ascend"}), "");
  folder.description_name = "quant_model_description_w8a8_dynamic.json";
  EXPECT_EQ(folder.error(), "");
}

TEST(AscendFolder, AMissingEntryOfAnInt8TensorIsNamedWithTheFile) {
  EXPECT_THAT(Changed("ascend_llama").forget(kQ + ".weight").error(),
              AllOf(HasSubstr("quant_model_description.json"), HasSubstr(kQ + ".weight"), HasSubstr("int8")));
  EXPECT_EQ(Changed("ascend_llama").forget(kV + ".weight").error(), "");  // a float tensor is FLOAT
}

TEST(AscendFolder, DescriptionAndTensorsMustAgree) {
  EXPECT_THAT(Changed("ascend_llama").describe(kQ + ".weight", "FLOAT").error(),
              AllOf(HasSubstr(kQ + ".weight"), HasSubstr("FLOAT")));
  EXPECT_THAT(Changed("ascend_llama").describe(kV + ".weight", "W8A8_DYNAMIC").error(),
              AllOf(HasSubstr(kV + ".weight"), HasSubstr("W8A8_DYNAMIC"), HasSubstr("not I8")));
  EXPECT_THAT(Changed("ascend_llama").describe(kQ + ".weight_scale", "W8A16").error(),
              AllOf(HasSubstr(kQ + ".weight_scale"), HasSubstr("W8A16"), HasSubstr("W8A8_DYNAMIC")));
}

TEST(AscendFolder, TypesThatAreNotBuiltAreRefusedByTensor) {
  for (const char* type : {"W4A4_DYNAMIC", "W8A8_MXFP8", "WFP8AFP8_DYNAMIC", "W4A16", "surprise"})
    EXPECT_THAT(Changed("ascend_llama").describe(kQ + ".weight", type).error(),
                AllOf(HasSubstr(kQ + ".weight"), HasSubstr(type), HasSubstr("supported: FLOAT, W8A8")));
}

TEST(AscendFolder, MissingPartsAreNamed) {
  for (const auto& [base, part] : std::vector<std::pair<std::string, std::string>>{{kQ, ".weight_scale"},
                                                                                   {kK, ".input_scale"},
                                                                                   {kK, ".input_offset"},
                                                                                   {kK, ".deq_scale"},
                                                                                   {kK, ".quant_bias"},
                                                                                   {kO, ".weight_scale"},
                                                                                   {kGate, ".weight_scale_second"}}) {
    Changed folder("ascend_llama");
    folder.tensors.erase(base + part);
    EXPECT_THAT(folder.error(), AllOf(HasSubstr(base + part), HasSubstr("missing")));
  }
}

TEST(AscendFolder, WrongShapesAreNamed) {
  const auto with = [](const std::string& name, const std::function<void(Changed::Tensor&)>& change) {
    Changed folder("ascend_llama");
    change(folder.tensors.at(name));
    return folder.error();
  };
  const auto halve = [](Changed::Tensor& tensor) {
    tensor.shape[0] /= 2;
    tensor.data.resize(tensor.data.size() / 2);
  };
  EXPECT_THAT(with(kQ + ".weight_scale", halve), HasSubstr(kQ + ".weight_scale"));
  EXPECT_THAT(with(kQ + ".weight", halve), AllOf(HasSubstr(kQ + ".weight"), HasSubstr("[16, 32]")));
  EXPECT_THAT(with(kK + ".quant_bias", halve), HasSubstr(kK + ".quant_bias"));
  EXPECT_THAT(with(kK + ".deq_scale", halve), HasSubstr(kK + ".deq_scale"));
  EXPECT_THAT(with(kO + ".weight", halve), AllOf(HasSubstr(kO + ".weight"), HasSubstr("[8, 32]")));
  EXPECT_THAT(with(kGate + ".weight_scale_second", halve), HasSubstr(kGate + ".weight_scale_second"));
  EXPECT_THAT(with(kQ + ".weight_scale",
                   [](Changed::Tensor& tensor) { tensor.data.replace(0, 4, std::string("\0\0\xc0\x7f", 4)); }),
              AllOf(HasSubstr(kQ + ".weight_scale"), HasSubstr("finite")));
  EXPECT_THAT(with(kQ + ".weight_offset",
                   [](Changed::Tensor& tensor) { tensor.data.replace(0, 4, std::string("\0\0\x80\x3f", 4)); }),
              AllOf(HasSubstr(kQ + ".weight_offset"), HasSubstr("offset")));
  EXPECT_THAT(with(kK + ".input_scale", [](Changed::Tensor& tensor) { tensor.data.assign(4, '\0'); }),
              AllOf(HasSubstr(kK + ".input_scale"), HasSubstr("positive")));
}

TEST(AscendFolder, AnOddNumberOfRowsCannotBePacked) {
  Changed folder("ascend_llama");
  // 33 tokens of a W4A8 head cannot lie in pairs.
  const size_t at = folder.config.find("\"vocab_size\": 96");
  ASSERT_NE(at, std::string::npos);
  folder.config.replace(at, 16, "\"vocab_size\": 33");
  folder.tensors["model.embed_tokens.weight"] = {"BF16", {33, 32}, std::string(33 * 64, '\0')};
  folder.tensors["lm_head.weight"] = {"I8", {16, 32}, std::string(16 * 32, '\0')};
  folder.describe("lm_head.weight", "W4A8_DYNAMIC");
  EXPECT_THAT(folder.error(), AllOf(HasSubstr("lm_head.weight"), HasSubstr("odd"), HasSubstr("33")));
}

/// The fixture with scales and offsets of a C8 cache.
Changed with_cache_scales() {
  Changed folder("ascend_llama");
  const auto numbers = [](float first, float step) {
    std::string data;
    for (int i = 0; i < 16; ++i) {
      const float value = first + step * static_cast<float>(i);
      data.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    return Changed::Tensor{"F32", {16}, data};
  };
  for (const char* const layer : {"0", "1"})
    for (const char* const projection : {"k_proj", "v_proj"}) {
      const std::string base = cat("model.layers.", layer, ".self_attn.", projection);
      folder.tensors[base + ".kv_cache_scale"] = numbers(0.5f, 0.25f);
      folder.tensors[base + ".kv_cache_offset"] = numbers(-3, 1);
    }
  folder.description.insert(1, R"("kv_cache_type": "C8",)");
  return folder;
}

TEST(AscendFolder, CacheScalesReachTheAttentionAndWhatIsWrongWithThemIsNamed) {
  const auto with = [](const std::function<void(Changed&)>& change) {
    Changed folder = with_cache_scales();
    change(folder);
    return folder.error();
  };
  const std::string scale = kV + ".kv_cache_scale", offset = kK + ".kv_cache_offset";
  EXPECT_EQ(with([&](Changed& folder) { folder.tensors.erase(offset); }), "");  // zeros
  EXPECT_THAT(with([&](Changed& folder) { folder.tensors.erase(scale); }), AllOf(HasSubstr(scale), HasSubstr("C8")));
  EXPECT_THAT(with([&](Changed& folder) { folder.tensors.at(scale).data.replace(4, 4, 4, '\0'); }),
              AllOf(HasSubstr(scale), HasSubstr("positive")));
  EXPECT_THAT(with([&](Changed& folder) {
                folder.tensors.at(scale).shape = {8};
                folder.tensors.at(scale).data.resize(32);
              }),
              AllOf(HasSubstr(scale), HasSubstr("8 elements"), HasSubstr("16")));
  TemporaryFolder folder;
  with_cache_scales().write(folder);
  const Model model = load_model(folder.path(""), {});
  size_t layers = 0;
  for (const device::Op& op : model.program->ops()) {
    const auto* const attention = std::get_if<device::AttentionOp>(&op);
    if (attention == nullptr) continue;
    ++layers;
    ASSERT_TRUE(attention->attention.cache_scales.has_value());
    EXPECT_EQ(attention->attention.cache_scales->v_scale[2], 1.0f);
    EXPECT_EQ(attention->attention.cache_scales->k_offset[2], -1.0f);
  }
  EXPECT_EQ(layers, 2u);
}

/// Logits of the folder's model on the CPU back end.
std::vector<float> logits_of(const Changed& changed, const BuildOptions& options = {}) {
  TemporaryFolder folder;
  changed.write(folder);
  std::vector<int32_t> ids;
  for (int i = 0; i < 30; ++i) ids.push_back(i * 7 % 90);
  const Model model = load_model(folder.path(""), options);
  const auto backend =
      device::make_cpu_backend(2, options.exact ? device::ActivationMode::f32 : device::ActivationMode::int8);
  return Runner(*backend, model).logits(ids);
}

/// Mean size of the difference, relative to that of `a`.
double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += std::fabs(a[i] - b[i]);
    size += std::fabs(a[i]);
  }
  return error / size;
}

/// The class and group of the first mixture's gate and up rows.
device::Encoding experts_of(const Changed& changed) {
  TemporaryFolder folder;
  changed.write(folder);
  const Model model = load_model(folder.path(""), {});
  for (const device::Op& op : model.program->ops())
    if (const auto* mix = std::get_if<device::MoeOp>(&op)) return model.program->weight(mix->moe.gate_up).encoding();
  return {};
}

TEST(AscendFolder, ExpertsOfALayerMayBeQuantizedInDifferentWays) {
  const Changed plain("ascend_qwen3_moe");
  const std::vector<float> expected = logits_of(plain);
  EXPECT_EQ(experts_of(plain).cls, device::ComputeClass::i4_channel);
  const std::string base = "model.layers.0.mlp.experts.2.up_proj";
  const std::string bytes = plain.tensors.at(base + ".weight").data;
  const auto code = [&](size_t row, size_t k) {
    const auto byte = static_cast<uint8_t>(bytes[row / 2 * 32 + k]);
    return static_cast<int>((row % 2 == 0 ? byte & 15u : byte >> 4) ^ 8u) - 8;
  };
  // The same codes in 8 bits give the same bits.
  Changed wider("ascend_qwen3_moe");
  std::string wide;
  for (size_t row = 0; row < 20; ++row)
    for (size_t k = 0; k < 32; ++k) wide.push_back(static_cast<char>(code(row, k)));
  wider.tensors[base + ".weight"] = {"I8", {20, 32}, wide};
  wider.tensors.erase(base + ".scale_bias");
  for (const char* part : {".weight", ".weight_scale", ".weight_offset"}) wider.describe(base + part, "W8A8_DYNAMIC");
  EXPECT_EQ(experts_of(wider).cls, device::ComputeClass::i8_channel);
  EXPECT_EQ(logits_of(wider), expected);
  // One in groups among others without: the same scales, added up group by group.
  Changed grouped("ascend_qwen3_moe");
  std::string ones;
  for (int i = 0; i < 20 * 2; ++i) ones.append("\0\0\x80\x3f", 4);
  grouped.tensors[base + ".weight_scale_second"] = {"F32", {20, 2}, ones};
  grouped.description.insert(1, "\"" + base + ".weight_scale_second\": \"W4A8_DYNAMIC\",");
  EXPECT_EQ(experts_of(grouped).group, 16);
  EXPECT_LT(relative_difference(expected, logits_of(grouped)), 0.01);
  // A float expert makes all of them float.
  Changed mixed("ascend_qwen3_moe");
  const std::string scales = plain.tensors.at(base + ".weight_scale").data;
  std::string floats;
  for (size_t row = 0; row < 20; ++row) {
    float scale = 0;
    std::memcpy(&scale, scales.data() + row * 4, 4);
    for (size_t k = 0; k < 32; ++k) {
      const float value = static_cast<float>(code(row, k)) * scale;
      floats.append(reinterpret_cast<const char*>(&value), 4);
    }
  }
  mixed.tensors[base + ".weight"] = {"F32", {20, 32}, floats};
  for (const char* part : {".weight_scale", ".weight_offset", ".scale_bias"}) mixed.tensors.erase(base + part);
  mixed.describe(base + ".weight", "FLOAT");
  EXPECT_EQ(experts_of(mixed).cls, device::ComputeClass::f32);
  EXPECT_LT(relative_difference(expected, logits_of(mixed)), 0.05);
}

TEST(AscendFolder, WeightsAloneAreKeptInInt8) {
  Changed folder("ascend_llama");
  for (const char* part : {".weight", ".weight_scale", ".weight_offset"}) folder.describe(kQ + part, "W8A16");
  TemporaryFolder written;
  folder.write(written);
  const Model model = load_model(written.path(""), {});
  std::set<std::string> found;
  for (const device::Op& op : model.program->ops())
    if (const auto* linear = std::get_if<device::LinearOp>(&op))
      for (const device::Linear& each : linear->linears) {
        const device::WeightSource& weight = model.program->weight(each.weight);
        if (weight.encoding().cls == device::ComputeClass::i8_float) found.insert(weight.name());
      }
  EXPECT_EQ(found, (std::set<std::string>{kQ + ".weight", "model.layers.1.mlp.up_proj.weight"}));
  EXPECT_LT(relative_difference(logits_of(Changed("ascend_llama")), logits_of(folder)), 0.05);
}

TEST(AscendFolder, DamagedDescriptionsAreRefused) {
  Changed folder("ascend_llama");
  const std::string whole = folder.description;
  for (size_t length = 0; length < whole.size(); length += 97) {
    folder.description = whole.substr(0, std::max<size_t>(length, 1));
    EXPECT_THAT(folder.error(), HasSubstr("quant_model_description.json")) << length;
  }
  folder.description = "[]";
  EXPECT_THAT(folder.error(), HasSubstr("quant_model_description.json"));
  folder.description = R"({"version": "1.0.0"})";
  EXPECT_THAT(folder.error(), HasSubstr("names no tensor"));
  folder.description = whole;
  folder.description.insert(1, R"("metadata": {"quarot": {"heads_rotation": {"layers": [1]}}}, "x": 5,)");
  folder.description.erase(folder.description.rfind("\"metadata\""), std::string("\"metadata\": {},").size());
  EXPECT_THAT(folder.error(), HasSubstr("metadata.quarot"));
}

TEST(AscendFolder, TheFlagNeedsADescription) {
  EXPECT_THAT(error_of([] { load_model(GRISTMILL_TEST_DIR "/golden/hf/llama", {.quantization = "ascend"}); }),
              AllOf(HasSubstr("--quantization ascend"), HasSubstr("quant_model_description.json")));
}

TEST(AscendFolder, StaticWeightsInFloat32KeepTheirBias) {
  // Inputs that a static scale clips are a loss that float32 does not have, so the scale is made wide, and the offset's
  // and bias's part is seen to be there by leaving it out.
  Changed folder("ascend_llama");
  const auto widen = [&](const std::string& part, float factor) {
    std::string& data = folder.tensors.at(kK + part).data;
    float value = 0;
    for (size_t at = 0; at < data.size(); at += 4) {
      std::memcpy(&value, data.data() + at, 4);
      value *= factor;
      std::memcpy(data.data() + at, &value, 4);
    }
  };
  widen(".input_scale", 2);
  Changed::Tensor& deq = folder.tensors.at(kK + ".deq_scale");
  std::string floats;
  for (size_t at = 0; at < deq.data.size(); at += 8) {
    float value = 0;
    std::memcpy(&value, deq.data.data() + at, 4);
    value *= 2;
    floats.append(reinterpret_cast<const char*>(&value), 4);
  }
  deq = {"F32", {16}, floats};
  const std::vector<float> codes = logits_of(folder), exact = logits_of(folder, {.exact = true});
  EXPECT_LT(relative_difference(exact, codes), 0.1);
  folder.tensors.at(kK + ".quant_bias").data.assign(16 * 4, '\0');
  EXPECT_GT(relative_difference(exact, logits_of(folder, {.exact = true})), 0.2);
}

/// Mean size of the difference of logits from the float model's.
double loss_of(const std::string& path, const BuildOptions& options) {
  std::vector<int32_t> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(i * 11 % 90);
  const auto backend = device::make_cpu_backend(2, device::ActivationMode::int8);
  const Model exact = load_model(path, {}), quantized = load_model(path, options);
  Runner a(*backend, exact), b(*backend, quantized);
  const std::vector<float> expected = a.logits(ids), got = b.logits(ids);
  double error = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += std::fabs(got[i] - expected[i]);
    size += std::fabs(expected[i]);
  }
  return error / size;
}

TEST(QuantizationAtLoad, LosesLittleAndMoreWithFewerBits) {
  for (const char* name :
       {"/golden/hf/llama", "/golden/hf/qwen3_moe", "/golden/hf/qwen3_5_moe", "/golden/hf/minimax_m2"}) {
    const std::string path = std::string(GRISTMILL_TEST_DIR) + name;
    const double w8a8 = loss_of(path, {.quantization = "w8a8"}), w4a8 = loss_of(path, {.quantization = "w4a8"});
    std::printf("%s: relative loss of logits W8A8 %.3f, W4A8 %.3f\n", name, w8a8, w4a8);
    EXPECT_GT(w8a8, 0) << name;
    EXPECT_LT(w8a8, 0.1) << name;
    EXPECT_GT(w4a8, w8a8) << name;
    EXPECT_LT(w4a8, 0.6) << name;
  }
}

TEST(QuantizationAtLoad, TakesTheNumbersOfGgufBlocks) {
  const std::string path = GRISTMILL_TEST_DIR "/golden/tiny_llama.gguf";
  const double w8a8 = loss_of(path, {.quantization = "w8a8"}), w4a8 = loss_of(path, {.quantization = "w4a8"});
  EXPECT_GT(w8a8, 0);
  EXPECT_LT(w8a8, 0.1);
  EXPECT_GT(w4a8, w8a8);
  EXPECT_LT(w4a8, 0.6);
  const Model model = load_model(path, {.quantization = "w8a8"});
  size_t linears = 0;
  for (const device::Op& op : model.program->ops())
    if (const auto* linear = std::get_if<device::LinearOp>(&op))
      for (const device::Linear& each : linear->linears) {
        EXPECT_EQ(model.program->weight(each.weight).encoding().cls, device::ComputeClass::i8_channel);
        ++linears;
      }
  EXPECT_GT(linears, 0u);
}

TEST(QuantizationAtLoad, RequantizesTheFloatLinearsOfAnAscendFolder) {
  const std::string path = fixture("ascend_qwen3_moe");
  EXPECT_EQ(loss_of(path, {.float_linears = "bf16"}), 0);
  EXPECT_GT(loss_of(path, {.float_linears = "int8"}), 0);
  EXPECT_LT(loss_of(path, {.float_linears = "int8"}), loss_of(path, {.float_linears = "int4"}));
}

TEST(QuantizationAtLoad, RefusesWhatDoesNotGoTogether) {
  const auto error = [](const std::string& path, const BuildOptions& options) {
    return error_of([&] { load_model(path, options); });
  };
  const std::string floats = GRISTMILL_TEST_DIR "/golden/hf/llama", gguf = GRISTMILL_TEST_DIR "/golden/tiny_llama.gguf";
  EXPECT_THAT(error(fixture("ascend_llama"), {.quantization = "w8a8"}), HasSubstr("quant_model_description.json"));
  EXPECT_THAT(error(fixture("int8_llama"), {.quantization = "w4a8"}), HasSubstr("quantized already"));
  EXPECT_THAT(error(floats, {.float_linears = "int8"}), HasSubstr("--float-linears int8"));
  EXPECT_THAT(error(floats, {.quantization = "fp8"}), HasSubstr("--quantization fp8"));
  EXPECT_THAT(error(floats, {.quantization = "gguf"}), HasSubstr("GGUF"));
  EXPECT_THAT(error(gguf, {.quantization = "ascend"}), HasSubstr("Hugging Face"));
  EXPECT_THAT(error(floats, {.exact = true, .quantization = "w8a8"}), HasSubstr("--dtype float32"));
  EXPECT_THAT(error(floats, {.quantization = "awq"}), AllOf(HasSubstr("awq"), HasSubstr("choose ascend")));
  EXPECT_EQ(error(fixture("fp8_llama"), {.quantization = "compressed-tensors"}), "");
}

TEST(CompressedTensors, OtherFormatsAreRefused) {
  const auto error = [](const std::string& part, const std::string& by) {
    const std::string config = read(fixture("int8_llama") + "/config.json");
    TemporaryFolder folder;
    std::string changed = config;
    const size_t at = changed.find(part);
    EXPECT_NE(at, std::string::npos) << part;
    changed.replace(at, part.size(), by);
    folder.write("config.json", changed);
    folder.write("model.safetensors", read(fixture("int8_llama") + "/model.safetensors"));
    return error_of([&] { load_model(folder.path(""), {}); });
  };
  EXPECT_THAT(error("\"int-quantized\"", "\"pack-quantized\""),
              AllOf(HasSubstr("quantization_config.format"), HasSubstr("pack-quantized"), HasSubstr("supported")));
  EXPECT_THAT(error("\"int-quantized\"", "\"nvfp4-pack-quantized\""), HasSubstr("nvfp4-pack-quantized"));
  EXPECT_THAT(error("\"dynamic\": true", "\"dynamic\": false"), HasSubstr("config_groups.group_0"));
  EXPECT_THAT(error("\"symmetric\": true", "\"symmetric\": false"), HasSubstr("symmetric"));
  EXPECT_THAT(error("\"channel\"", "\"group\""), HasSubstr("weights.strategy"));
  EXPECT_EQ(error("\"channel\"", "\"channel\""), "");
}

TEST(ForeignFormats, AreRefusedByTensorWithWhatIsSupported) {
  for (const auto& [tensor, format] :
       std::vector<std::pair<const char*, const char*>>{{".qweight", "GPTQ"},
                                                        {".weight_packed", "packed int4"},
                                                        {".weight_scale_2", "NVFP4"},
                                                        {".heads_rotation", "while the model runs"}}) {
    Changed folder("ascend_llama");
    folder.tensors[kV + tensor] = {"I32", {1}, std::string(4, '\0')};
    EXPECT_THAT(folder.error(), AllOf(HasSubstr(kV + tensor), HasSubstr(format), HasSubstr("supported: float")));
  }
}

TEST(CompressedTensors, MissingScalesAreNamed) {
  Changed folder("int8_llama");
  folder.tensors.erase(kQ + ".weight_scale");
  EXPECT_THAT(folder.error(), AllOf(HasSubstr(kQ + ".weight_scale"), HasSubstr("missing")));
}

}  // namespace
}  // namespace gristmill::model
