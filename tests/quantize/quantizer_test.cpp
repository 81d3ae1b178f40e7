// The quantizer on tiny folders: what it writes follows the vendor's loading rules, is read back with the same codes,
// and computes nearly the same.
#include "quantize/quantizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <regex>
#include <set>
#include <sstream>

#include "base/json.h"
#include "device/backend.h"
#include "model/model.h"
#include "weights/gguf_bytes.h"
#include "weights/mapped_file.h"
#include "weights/row_quantizer.h"
#include "weights/safetensors.h"
#include "weights/safetensors_bytes.h"
#include "weights/safetensors_folder.h"

namespace gristmill::quantize {
namespace {

using gristmill::testing::error_of;
using gristmill::testing::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string source(const std::string& name) {
  return GRISTMILL_TEST_DIR "/golden/hf/" + name;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<int32_t> calibration_ids() {
  std::vector<int32_t> ids(60);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 13 % 90);
  return ids;
}

InputRanges ranges_of(const std::string& folder) {
  SilentProgress silent;
  return measure_input_ranges(folder, {calibration_ids()}, 2, silent);
}

/// A quantized copy of one of our tiny folders.
struct Quantized {
  TemporaryFolder parent;
  std::string folder = parent.path("quantized");
  QuantizeReport report;

  Quantized(const std::string& name, Scheme scheme, bool quarot = false, const std::string& recipe = "",
            uint64_t shard_bytes = uint64_t{1} << 30) {
    QuantizeOptions options;
    options.source = source(name);
    options.target = folder;
    options.scheme = scheme;
    options.quarot = quarot;
    options.recipe = recipe;
    options.shard_bytes = shard_bytes;
    options.threads = 2;
    InputRanges ranges;
    SilentProgress silent;
    if (scheme == Scheme::w8a8_static) ranges = calibrate(options, {calibration_ids()}, silent);
    report = quantize_folder(options, ranges, silent);
  }
};

std::vector<float> logits(const std::string& folder) {
  const model::Model model = model::load_model(folder, {});
  const auto backend = device::make_cpu_backend(2, device::ActivationMode::int8);
  const auto executable = backend->compile(model.program, {40, 1, 40, 64}, {DType::f32, 16});
  std::vector<int32_t> blocks{0, 1, 2, 3}, ids(40), rows(40);
  device::BindOptions bind;
  bind.num_blocks = 4;
  bind.num_states = 1;
  executable->bind(bind);
  std::iota(rows.begin(), rows.end(), 0);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 11 % 90);
  const device::SequenceStep sequence{0, 40, 0, blocks, 0};
  const std::vector<uint8_t> want(40, 1);
  const auto& result = executable->wait(executable->launch({40, 1, 40, false}, {ids, {&sequence, 1}, rows, want}));
  std::vector<float> all;
  for (const float* row : result.logits) all.insert(all.end(), row, row + model.config.vocabulary);
  return all;
}

double loss(const std::vector<float>& got, const std::vector<float>& expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += std::fabs(got[i] - expected[i]);
    size += std::fabs(expected[i]);
  }
  return error / size;
}

QuantizeOptions options_for(const std::string& source, const std::string& target, Scheme scheme = Scheme::w8a8) {
  QuantizeOptions options;
  options.source = source;
  options.target = target;
  options.scheme = scheme;
  options.threads = 2;
  return options;
}

TEST(QuantizeFolder, TakesTrailingSlashesOffTheNameOfTheFolder) {
  const TemporaryFolder parent;
  SilentProgress silent;
  quantize_folder(options_for(source("llama"), parent.path("out//")), {}, silent);
  EXPECT_TRUE(std::filesystem::exists(parent.path("out/config.json")));
  EXPECT_FALSE(std::filesystem::exists(parent.path("out/.partial")));
  EXPECT_FALSE(std::filesystem::exists(parent.path("out.partial")));
  EXPECT_THAT(error_of([] { new_folder(""); }), HasSubstr("empty name"));
  EXPECT_THAT(error_of([&] { new_folder(parent.path("out/")); }), HasSubstr("exists already"));
  std::filesystem::create_symlink("nowhere", parent.path("link"));
  EXPECT_THAT(error_of([&] { new_folder(parent.path("link")); }), HasSubstr("exists already"));
  EXPECT_EQ(new_folder(parent.path("a/./b/")), parent.path("a/b"));
}

TEST(QuantizeFolder, RefusesWeightsThatAreNotFiniteByTensorAndLeavesNothing) {
  const TemporaryFolder parent;
  const std::string damaged = parent.path("damaged");
  std::filesystem::copy(source("llama"), damaged);
  gristmill::testing::fill_with_nan(damaged + "/model.safetensors");
  SilentProgress silent;
  for (const Scheme scheme : {Scheme::w8a8, Scheme::w4a8})
    EXPECT_THAT(error_of([&] { quantize_folder(options_for(damaged, parent.path("out"), scheme), {}, silent); }),
                AllOf(HasSubstr(damaged + ": tensor \""), HasSubstr("not finite")));
  EXPECT_FALSE(std::filesystem::exists(parent.path("out")));
  EXPECT_FALSE(std::filesystem::exists(parent.path("out.partial")));
}

TEST(QuantizeFolder, RefusesOneInfiniteWeightOfAMatrixThatIsQuantized) {
  const TemporaryFolder parent;
  const std::string damaged = parent.path("damaged"), name = "model.layers.1.mlp.up_proj.weight";
  std::filesystem::copy(source("llama"), damaged);
  uint64_t offset = 0;
  size_t width = 0;
  {
    const weights::MappedFile whole(damaged + "/model.safetensors");
    const uint64_t header = *reinterpret_cast<const uint64_t*>(whole.bytes().data());
    const Json root = parse_json("header", whole.text().substr(8, header));
    const Json* const tensor = root.find(name);
    ASSERT_NE(tensor, nullptr);
    width = tensor->find("dtype")->string == "F32" ? 4 : 2;
    offset = 8 + header + static_cast<uint64_t>(tensor->find("data_offsets")->array[1].integer) - width;
  }
  {
    // The highest two bytes of infinity are 0x7f80 in float32 and bfloat16.
    std::fstream file(damaged + "/model.safetensors", std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(width == 4 ? "\0\0\x80\x7f" : "\x80\x7f", static_cast<std::streamsize>(width));
  }
  SilentProgress silent;
  EXPECT_THAT(error_of([&] { quantize_folder(options_for(damaged, parent.path("out")), {}, silent); }),
              HasSubstr(damaged + ": tensor \"" + name + "\": holds a number that is not finite"));
  EXPECT_FALSE(std::filesystem::exists(parent.path("out.partial")));  // other tensors had been written
}

TEST(QuantizeFolder, RefusesInputsOfCalibrationThatAreNotFinite) {
  const TemporaryFolder parent;
  InputRanges ranges = ranges_of(source("llama"));
  ranges.begin()->second.high = INFINITY;
  SilentProgress silent;
  EXPECT_THAT(error_of([&] {
                quantize_folder(options_for(source("llama"), parent.path("out"), Scheme::w8a8_static), ranges, silent);
              }),
              AllOf(HasSubstr(ranges.begin()->first), HasSubstr("calibration are not finite")));
}

/// vLLM-Ascend's way through such a folder, as its published code goes: files by glob, the description's types by
/// name, fused modules by their shards, expert 0 for all experts.
void walk_loading_rules(const std::string& folder) {
  const auto weights = weights::SafetensorsFolder::open(folder);
  const Json index = parse_json("index", read(folder + "/quant_model_weights.safetensors.index.json"));
  const Json description = parse_json("description", read(folder + "/quant_model_description.json"));
  const Json config = parse_json("config", read(folder + "/config.json"));
  EXPECT_EQ(config.find("quantization_config"), nullptr);
  uint64_t total = 0;
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.insert(entry.path().filename().string());
  for (const auto& [tensor, file] : index.find("weight_map")->object) {
    EXPECT_TRUE(files.contains(file.string)) << file.string;
    EXPECT_TRUE(std::regex_match(file.string, std::regex("quant_model_weights-[0-9]{5}-of-[0-9]{5}\\.safetensors")));
    total += weights->tensor(tensor).bytes.size();
  }
  EXPECT_EQ(index.find("metadata")->find("total_size")->integer, static_cast<int64_t>(total));
  for (const char* const key : {"version", "model_quant_type", "group_size", "metadata", "optional"})
    EXPECT_NE(description.find(key), nullptr) << key;
  const auto type = [&](const std::string& tensor) {
    const Json* const entry = description.find(tensor);
    EXPECT_NE(entry, nullptr) << tensor;  // a missing key is an error there
    return entry == nullptr ? std::string() : entry->string;
  };
  const int64_t group = description.find("group_size")->integer;
  for (const std::string& name : weights->names()) {
    const std::string kind = type(name);
    const TensorView tensor = weights->tensor(name);
    if (!name.ends_with(".weight") || kind == "FLOAT") {
      EXPECT_TRUE(kind != "FLOAT" || tensor.type != StorageType::i8) << name;
      continue;
    }
    const std::string base = name.substr(0, name.size() - 7);
    EXPECT_EQ(tensor.type, StorageType::i8) << name;
    const int64_t rows = kind == "W4A8_DYNAMIC" ? 2 * tensor.shape[0] : tensor.shape[0];
    const auto part = [&](const char* suffix, StorageType dtype, const std::vector<int64_t>& shape) {
      ASSERT_TRUE(weights->contains(base + suffix)) << base << suffix;
      EXPECT_EQ(weights->tensor(base + suffix).type, dtype) << base << suffix;
      EXPECT_EQ(weights->tensor(base + suffix).shape, shape) << base << suffix;
      EXPECT_EQ(type(base + suffix), kind);
    };
    if (kind == "W8A8") {
      part(".input_scale", StorageType::f32, {1});
      part(".input_offset", StorageType::f32, {1});
      part(".deq_scale", StorageType::f32, {rows});
      part(".quant_bias", StorageType::i32, {rows});
      continue;
    }
    part(".weight_scale", StorageType::f32, {rows, 1});
    part(".weight_offset", StorageType::f32, {rows, 1});
    if (kind != "W4A8_DYNAMIC") continue;
    if (group != 0) {
      part(".weight_scale_second", StorageType::f32, {rows, tensor.shape[1] / group});
      part(".weight_offset_second", StorageType::f32, {rows, tensor.shape[1] / group});
    }
    const bool row_parallel = base.ends_with("down_proj") || base.ends_with("o_proj") || base.ends_with("w2");
    part(".scale_bias", StorageType::f32, {rows, row_parallel && tensor.shape[1] % 16 == 0 ? 16 : 1});
  }
  // Fused modules need shards of one type.
  const auto same = [&](const std::string& prefix, const std::vector<std::string>& shards) {
    if (!weights->contains(prefix + shards[0] + ".weight")) return;
    for (const std::string& shard : shards)
      EXPECT_EQ(type(prefix + shard + ".weight"), type(prefix + shards[0] + ".weight")) << prefix << shard;
  };
  for (const std::string& name : weights->names()) {
    EXPECT_EQ(name.find("experts.gate_up_proj"), std::string::npos) << "experts must be split";
    const size_t layer = name.find("layers.");
    if (layer == std::string::npos) continue;
    const std::string prefix = name.substr(0, name.find('.', layer + 7) + 1);
    same(prefix + "self_attn.", {"q_proj", "k_proj", "v_proj"});
    same(prefix + "mlp.", {"gate_proj", "up_proj"});
    for (const auto& [at, shards] : std::vector<std::pair<std::string, std::vector<std::string>>>{
             {"mlp.experts.", {"gate_proj", "up_proj", "down_proj"}},
             {"block_sparse_moe.experts.", {"w1", "w2", "w3"}}})
      for (int e = 0; weights->contains(cat(prefix, at, e, ".", shards[0], ".weight")); ++e)
        for (const std::string& shard : shards)
          EXPECT_EQ(type(cat(prefix, at, e, ".", shard, ".weight")), type(cat(prefix, at, "0.", shards[0], ".weight")));
  }
}

struct Case {
  const char* folder;
  Scheme scheme;
  bool quarot;
  double most;  ///< relative loss of logits
  const char* name;
  const char* recipe = "";
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class Quantizer : public ::testing::TestWithParam<Case> {};

TEST_P(Quantizer, WritesWhatTheLoadingRulesAskForAndLosesLittle) {
  const Case& c = GetParam();
  const Quantized quantized(c.folder, c.scheme, c.quarot, c.recipe);
  walk_loading_rules(quantized.folder);
  EXPECT_EQ(std::filesystem::exists(quantized.folder + "/optional/quarot.safetensors"), c.quarot);
  EXPECT_FALSE(std::filesystem::exists(quantized.folder + ".partial"));
  EXPECT_FALSE(std::filesystem::exists(quantized.folder + ".rotated"));
  const double lost = loss(logits(quantized.folder), logits(source(c.folder)));
  std::printf("%s: relative loss of logits %.3f\n", c.name, lost);
  EXPECT_LT(lost, c.most);
  EXPECT_GT(lost, 0);
  for (const auto& [layer, sums] : quantized.report.layers) {
    EXPECT_GT(sums.matrices, 0) << layer;
    EXPECT_LT(std::sqrt(sums.error / sums.size), 0.15) << layer;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Quantizer,
    ::testing::Values(Case{"llama", Scheme::w8a8, false, 0.08, "llama_w8a8"},
                      Case{"llama", Scheme::w8a8_static, false, 0.15, "llama_static"},
                      Case{"llama", Scheme::w4a8, false, 0.6, "llama_w4a8"},
                      Case{"llama", Scheme::w8a8, true, 0.1, "llama_quarot"},
                      Case{"qwen2", Scheme::w8a8, true, 0.1, "qwen2_quarot"},
                      Case{"qwen2", Scheme::w8a8_static, false, 0.15, "qwen2_static"},
                      Case{"qwen3", Scheme::w8a8, true, 0.1, "qwen3_tied_quarot"},
                      Case{"qwen3_moe", Scheme::w4a8, false, 0.7, "qwen3_moe_w4a8"},
                      Case{"qwen3_moe", Scheme::w8a8, true, 0.15, "qwen3_moe_quarot"},
                      Case{"qwen3_5", Scheme::w8a8, false, 0.1, "qwen3_5_w8a8"},
                      Case{"qwen3_5_moe", Scheme::w4a8, false, 0.6, "qwen3_5_moe_w4a8"},
                      Case{"qwen3_5_moe", Scheme::w8a8, false, 0.25, "qwen3_5_moe_all", "all-linear"},
                      Case{"qwen3_5", Scheme::w8a8, true, 0.12, "qwen3_5_quarot"},
                      Case{"qwen3_5_moe", Scheme::w8a8, true, 0.25, "qwen3_5_moe_all_quarot", "all-linear"},
                      Case{"llama", Scheme::w8a8_static, true, 0.15, "llama_static_quarot"},
                      Case{"qwen3_5", Scheme::w8a8_static, true, 0.2, "qwen3_5_static_quarot"},
                      Case{"minimax_m2", Scheme::w8a8, true, 0.12, "minimax_quarot"},
                      Case{"minimax_m2", Scheme::w8a8_static, false, 0.15, "minimax_static"},
                      Case{"minimax_m2_fp8", Scheme::w8a8, false, 0.12, "minimax_from_fp8"}),
    [](const auto& each) { return std::string(each.param.name); });

TEST(QuantizeFolder, CodesAreThoseOfTheRows) {
  const Quantized quantized("llama", Scheme::w8a8);
  const auto floats = weights::SafetensorsFolder::open(source("llama"));
  const auto codes = weights::SafetensorsFolder::open(quantized.folder);
  int compared = 0;
  for (const std::string& name : floats->names()) {
    if (codes->tensor(name).type != StorageType::i8) {
      const TensorView a = floats->tensor(name), b = codes->tensor(name);
      EXPECT_EQ(a.type, b.type);
      EXPECT_TRUE(std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end())) << name;
      continue;
    }
    const auto exact = weights::make_weight_source(floats, name, weights::ReadAs::exact);
    std::vector<float> row(static_cast<size_t>(exact->columns()));
    std::vector<int8_t> wanted(row.size());
    const TensorView view = codes->tensor(name), scales = codes->tensor(name + "_scale");
    for (int64_t r = 0; r < exact->rows(); ++r) {
      float scale = 0, stored = 0;
      exact->read_f32(r, 1, row.data());
      weights::quantize_row_int8(row.data(), exact->columns(), wanted.data(), &scale);
      std::memcpy(&stored, scales.bytes.data() + r * 4, 4);
      ASSERT_EQ(stored, scale);
      ASSERT_EQ(std::memcmp(view.bytes.data() + r * exact->columns(), wanted.data(), wanted.size()), 0) << name;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 14);
}

TEST(QuantizeFolder, ShardsEndBeforeTheLimitAndReadBackTheSame) {
  const Quantized one("qwen3_moe", Scheme::w8a8), many("qwen3_moe", Scheme::w8a8, false, "", 20000);
  EXPECT_EQ(one.report.shards, 1u);
  EXPECT_GT(many.report.shards, 3u);
  walk_loading_rules(many.folder);
  for (const auto& entry : std::filesystem::directory_iterator(many.folder))
    if (entry.path().extension() == ".safetensors") {
      EXPECT_LT(std::filesystem::file_size(entry.path()), 20000u + 8000u) << entry.path();
    }
  EXPECT_EQ(logits(one.folder), logits(many.folder));
}

TEST(QuantizeFolder, ExportsTheRotationThatItFolded) {
  const Quantized quantized("minimax_m2", Scheme::w8a8, true);
  const auto file = weights::SafetensorsFile::open(quantized.folder + "/optional/quarot.safetensors");
  const TensorView q = file->tensor("global_rotation");
  ASSERT_EQ(q.shape, (std::vector<int64_t>{32, 32}));
  const Json description = parse_json("description", read(quantized.folder + "/quant_model_description.json"));
  EXPECT_EQ(description.find("optional")->find("quarot")->find("rotation_map")->find("global_rotation")->string,
            "optional/quarot.safetensors");
  // Draft heads get the plain embeddings back as rotated * Q'.
  const auto plain = weights::SafetensorsFolder::open(source("minimax_m2"));
  const auto rotated = weights::SafetensorsFolder::open(quantized.folder);
  const auto a = weights::make_weight_source(plain, "model.embed_tokens.weight", weights::ReadAs::exact);
  const auto b = weights::make_weight_source(rotated, "model.embed_tokens.weight", weights::ReadAs::exact);
  std::vector<float> matrix(32 * 32), row(32), turned(32);
  std::memcpy(matrix.data(), q.bytes.data(), q.bytes.size());
  for (int64_t r = 0; r < 20; ++r) {
    a->read_f32(r, 1, row.data());
    b->read_f32(r, 1, turned.data());
    for (size_t i = 0; i < 32; ++i) {
      float back = 0;
      for (size_t j = 0; j < 32; ++j) back += turned[j] * matrix[i * 32 + j];
      EXPECT_NEAR(back, row[i], 0.02f);
    }
  }
}

TEST(QuantizeFolder, RefusesWhatItCannotDo) {
  const auto error = [](QuantizeOptions options) {
    TemporaryFolder parent;
    if (options.target.empty()) options.target = parent.path("out");
    SilentProgress silent;
    return error_of([&] { quantize_folder(options, {}, silent); });
  };
  QuantizeOptions options;
  options.source = source("nowhere");
  EXPECT_THAT(error(options), HasSubstr("nowhere"));
  options.source = GRISTMILL_TEST_DIR "/golden/quant/ascend_llama";
  EXPECT_THAT(error(options), HasSubstr("quantized already"));
  options.source = GRISTMILL_TEST_DIR "/golden/quant/int8_llama";
  EXPECT_THAT(error(options), HasSubstr("only float weights"));
  options.source = source("llama");
  options.target = source("llama");
  EXPECT_THAT(error(options), HasSubstr("exists already"));
  options.target.clear();
  options.recipe = "half";
  EXPECT_THAT(error(options), HasSubstr("half"));
  options.recipe.clear();
  options.scheme = Scheme::w8a8_static;
  EXPECT_THAT(error(options), HasSubstr("calibration did not reach"));
  options.scheme = Scheme::w4a8_group;
  options.source = source("qwen3_moe");
  EXPECT_THAT(error(options), HasSubstr("no group of 256"));
}

/// The folder's model with weights of float32, so that rotating them loses next to nothing; `more` tensors besides.
void write_float32(const std::string& from, const std::string& to, const std::vector<std::string>& more = {}) {
  const auto checkpoint = weights::SafetensorsFolder::open(from);
  gristmill::testing::SafetensorsBytes bytes;
  for (const std::string& name : checkpoint->names()) {
    const auto tensor = weights::make_weight_source(checkpoint, name, weights::ReadAs::exact);
    std::vector<float> values(static_cast<size_t>(tensor->rows() * tensor->columns()));
    tensor->read_f32(0, tensor->rows(), values.data());
    bytes.add(name, "F32", checkpoint->tensor(name).shape, values);
  }
  for (const std::string& name : more) bytes.add(name, "F32", {2, 2}, std::vector<float>(4, 1.0f));
  std::filesystem::create_directories(to);
  std::filesystem::copy(from + "/config.json", to + "/config.json");
  std::ofstream(to + "/model.safetensors", std::ios::binary) << bytes.bytes();
}

TEST(QuantizeFolder, RotatingAloneChangesNothingOfTheModel) {
  for (const char* const name : {"llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_5", "qwen3_5_moe", "minimax_m2"}) {
    const TemporaryFolder parent;
    write_float32(source(name), parent.path("source"));
    QuantizeOptions options = options_for(parent.path("source"), parent.path("rotated"));
    options.quarot = options.only_rotate = true;
    SilentProgress silent;
    quantize_folder(options, {}, silent);
    const double lost = loss(logits(options.target), logits(options.source));
    std::printf("%s rotated: relative change of logits %.1e\n", name, lost);
    EXPECT_LT(lost, 2e-5) << name;
    EXPECT_GT(lost, 0) << name;
  }
}

TEST(QuantizeFolder, LeavesOutDraftHeadsWhereItRotates) {
  const TemporaryFolder parent;
  const std::string draft = "mtp.fc.weight";
  write_float32(source("qwen3_5"), parent.path("source"), {draft});
  QuantizeOptions options = options_for(parent.path("source"), parent.path("out"));
  SilentProgress silent;
  EXPECT_EQ(quantize_folder(options, {}, silent).left_out, 0);
  EXPECT_TRUE(weights::SafetensorsFolder::open(options.target)->contains(draft));
  options.quarot = true;
  options.target = parent.path("rotated");
  EXPECT_EQ(quantize_folder(options, {}, silent).left_out, 1);
  EXPECT_FALSE(weights::SafetensorsFolder::open(options.target)->contains(draft));
}

TEST(InputRanges, CoverWhatEveryLinearReads) {
  const InputRanges ranges = ranges_of(source("llama"));
  EXPECT_EQ(ranges.size(), 14u);
  for (const auto& [name, range] : ranges) {
    EXPECT_LT(range.low, 0) << name;
    EXPECT_GT(range.high, 0) << name;
  }
  EXPECT_EQ(ranges.at("model.layers.0.self_attn.q_proj.weight").high,
            ranges.at("model.layers.0.self_attn.k_proj.weight").high);
  SilentProgress silent;
  EXPECT_THAT(error_of([&] { measure_input_ranges(source("llama"), {}, 1, silent); }), HasSubstr("at least one token"));
}

}  // namespace
}  // namespace gristmill::quantize
