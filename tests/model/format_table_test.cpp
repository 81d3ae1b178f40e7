// The tables of formats in docs/quantization.md and the README's row of weights say what this test sees: each row is
// loaded from a fixture, its class is that of the model, its accuracy is measured. GRISTMILL_WRITE_DOCS=1 writes them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/float8.h"
#include "base/half.h"
#include "base/json.h"
#include "device/reference/matrix.h"
#include "model/model.h"
#include "weights/block_codes.h"
#include "weights/gguf_blocks.h"
#include "weights/safetensors.h"

namespace gristmill::model {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The compute class in words.
std::string words_of(const device::Encoding& encoding) {
  const std::string group = encoding.group == 0 ? "output" : "group of an output";
  switch (encoding.cls) {
    case device::ComputeClass::f32:
      return "float32";
    case device::ComputeClass::f16:
      return "float16";
    case device::ComputeClass::bf16:
      return "bfloat16";
    case device::ComputeClass::i4_group:
    case device::ComputeClass::i8_group:
      return cat(encoding.cls == device::ComputeClass::i4_group ? "4-bit codes, " : "int8 codes, ", encoding.group,
                 " columns a scale", encoding.has_min ? " and minimum" : "");
    case device::ComputeClass::i8_float:
      return cat("int8 codes, float32 scale per ", group, ", float activations");
    case device::ComputeClass::f8_float:
      return cat("FP8 codes, float32 scale per ", group, ", float activations");
    case device::ComputeClass::i8_channel:
    case device::ComputeClass::i4_channel:
      return cat(encoding.cls == device::ComputeClass::i8_channel ? "int8 codes, " : "int4 codes, ",
                 "float32 scale per ", group, ", int8 activations ",
                 encoding.input ? "with the stored scale and offset" : "per token");
  }
  return "?";
}

/// What a row of the second table says.
struct Seen {
  std::string cls, checked;
};

std::vector<float> floats(const weights::SafetensorsFile& file, const std::string& name) {
  const TensorView tensor = file.tensor(name);
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

const device::WeightSource& find(const Model& model, const std::string& name) {
  for (const device::WeightDecl& weight : model.program->weights())
    if (weight.source->name() == name) return *weight.source;
  throw Error(cat("the model has no weight ", name));
}

/// A linear of tests/golden/quant/NAME against its independent result. `part`: rows of a matrix of experts.
Seen see(const std::string& folder, const std::string& weight, const std::string& linear, int64_t rows = 0) {
  const std::string path = cat(GRISTMILL_TEST_DIR "/golden/quant/", folder);
  const Model model = load_model(path, {});
  const device::WeightSource& source = find(model, weight);
  const auto expected = weights::SafetensorsFile::open(path + "/expected/linears.safetensors");
  const std::vector<float> x = floats(*expected, cat("x.", source.columns())),
                           wanted = floats(*expected, linear + ".y");
  constexpr int kRows = 4;
  std::vector<float> memory(device::reference::matrix_bytes(source) / sizeof(float) + 1);
  const device::reference::Matrix matrix = device::reference::read_matrix(source, memory.data());
  std::vector<float> y(static_cast<size_t>(kRows * source.rows()));
  device::reference::multiply(x.data(), kRows, matrix, nullptr, y.data());
  if (rows == 0) rows = source.rows();
  float worst = 0;
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t n = 0; n < rows; ++n)
      worst = std::max(
          worst, std::fabs(y[static_cast<size_t>(r * source.rows() + n)] - wanted[static_cast<size_t>(r * rows + n)]));
  EXPECT_EQ(wanted.size(), static_cast<size_t>(kRows * rows)) << linear;
  return {words_of(source.encoding()), worst == 0      ? "bit for bit"
                                       : worst < 1e-5f ? "within 1e-5"
                                                       : cat("off by ", worst)};
}

/// FP8 in blocks against fp8 * scale.
Seen see_blocks() {
  const std::string path = GRISTMILL_TEST_DIR "/golden/hf/minimax_m2_fp8",
                    name = "model.layers.0.self_attn.q_proj.weight";
  const Model model = load_model(path, {});
  const device::WeightSource& source = find(model, name);
  const auto file = weights::SafetensorsFile::open(path + "/model.safetensors");
  const std::vector<float> scales = floats(*file, name + "_scale_inv");
  const TensorView scale_view = file->tensor(name + "_scale_inv"), codes = file->tensor(name);
  const Json config = parse_json("config.json", read(path + "/config.json"));
  const auto& block = config.find("quantization_config")->find("weight_block_size")->array;
  bool exact = true;
  std::vector<float> row(static_cast<size_t>(source.columns()));
  for (int64_t r = 0; r < source.rows(); ++r) {
    source.read_f32(r, 1, row.data());
    for (int64_t k = 0; k < source.columns(); ++k) {
      const float scale =
          scales[static_cast<size_t>(r / block[0].integer * scale_view.columns() + k / block[1].integer)];
      const float value =
          fp8_e4m3_to_f32(static_cast<uint8_t>(codes.bytes[static_cast<size_t>(r * source.columns() + k)]));
      exact = exact && row[static_cast<size_t>(k)] == value * scale;
    }
  }
  return {words_of(source.encoding()), exact ? "bit for bit" : "not exact"};
}

/// FLOAT beside quantized matrices: the file's bits.
Seen see_floats() {
  const std::string path = GRISTMILL_TEST_DIR "/golden/quant/ascend_llama",
                    name = "model.layers.0.self_attn.v_proj.weight";
  const Model model = load_model(path, {});
  const device::WeightSource& source = find(model, name);
  const auto file = weights::SafetensorsFile::open(path + "/quant_model_weights-00001-of-00001.safetensors");
  const TensorView view = file->tensor(name);
  std::vector<uint16_t> patterns(view.bytes.size() / 2);
  source.read_16(0, source.rows(), patterns.data());
  const bool same = std::memcmp(patterns.data(), view.bytes.data(), view.bytes.size()) == 0;
  return {cat(words_of(source.encoding()), ", as stored"), same ? "bit for bit" : "not exact"};
}

struct Format {
  std::string name, recognised, short_name;
  Seen seen;
};

std::vector<Format> folder_formats() {
  const std::string layer = "model.layers.0.", self = layer + "self_attn.", mlp = layer + "mlp.";
  const auto llama = [](const std::string& base) { return see("ascend_llama", base + ".weight", base); };
  const std::string description = "`quant_model_description*.json`", config = "`quantization_config`";
  return {
      {"ascend (msmodelslim) FLOAT", description, "", see_floats()},
      {"ascend W8A8_DYNAMIC", description, "ascend W8A8_DYNAMIC", llama(self + "q_proj")},
      {"ascend W8A8_MIX", description, "W8A8_MIX", llama(mlp + "down_proj")},
      {"ascend W8A8 (static); the bias is in `quant_bias` and not added again", description, "W8A8",
       llama(self + "k_proj")},
      {"ascend W4A8_DYNAMIC per channel, two codes a byte", description, "W4A8_DYNAMIC", llama(self + "o_proj")},
      {"ascend W4A8_DYNAMIC in experts", description, "",
       see("ascend_qwen3_moe", layer + "mlp.experts.*.gate_up", mlp + "experts.0.gate_proj", 20)},
      {"ascend W4A8_DYNAMIC in groups of any size, a code a byte", description, "", llama(mlp + "gate_proj")},
      {"ascend W8A16", description, "W8A16", llama("model.layers.1.mlp.up_proj")},
      {"ascend W8A16 with offsets, or in groups", description, "", llama(mlp + "up_proj")},
      {"FP8 in blocks", config, "FP8 in blocks", see_blocks()},
      {"FP8 per channel (compressed-tensors float-quantized)", config, "FP8 per channel",
       see("fp8_llama", self + "q_proj.weight", self + "q_proj")},
      {"FP8 per tensor", config, "FP8 per tensor", see("fp8_llama", mlp + "down_proj.weight", mlp + "down_proj")},
      {"compressed-tensors int-quantized, dynamic per token", config, "compressed-tensors int8",
       see("int8_llama", self + "q_proj.weight", self + "q_proj")},
  };
}

struct BlockFormat {
  const char* name;
  StorageType type;
};
constexpr BlockFormat kBlockFormats[] = {
    {"F32", StorageType::f32},     {"F16", StorageType::f16},       {"BF16", StorageType::bf16},
    {"Q4_0", StorageType::q4_0},   {"Q4_1", StorageType::q4_1},     {"Q5_0", StorageType::q5_0},
    {"Q5_1", StorageType::q5_1},   {"Q8_0", StorageType::q8_0},     {"Q2_K", StorageType::q2_k},
    {"Q3_K", StorageType::q3_k},   {"Q4_K", StorageType::q4_k},     {"Q5_K", StorageType::q5_k},
    {"Q6_K", StorageType::q6_k},   {"IQ4_NL", StorageType::iq4_nl}, {"IQ4_XS", StorageType::iq4_xs},
    {"MXFP4", StorageType::mxfp4},
};

/// What the class's codes lose of a type's numbers, on golden blocks: root of mean squares, relative.
std::string loss_of(const weights::SafetensorsFile& file, const BlockFormat& format) {
  const device::Encoding encoding = weights::encoding_of(format.type);
  if (encoding.group == 0) return "none";
  const TensorView raw = file.tensor(std::string(format.name) + ".raw");
  const std::vector<float> exact = floats(file, std::string(format.name) + ".values");
  const auto count = static_cast<int64_t>(exact.size());
  std::vector<uint8_t> codes(exact.size());
  std::vector<uint16_t> scales(exact.size() / 32), mins(exact.size() / 32);
  weights::read_block_codes(format.type, raw.bytes.data(), count, codes.data(), scales.data(),
                            encoding.has_min ? mins.data() : nullptr);
  double error = 0, size = 0;
  for (int64_t k = 0; k < count; ++k) {
    const auto at = static_cast<size_t>(k);
    const float scale = f16_to_f32(scales[at / 32]), min = encoding.has_min ? f16_to_f32(mins[at / 32]) : 0.0f;
    const int code =
        encoding.cls == device::ComputeClass::i4_group ? codes[at] - encoding.zero : static_cast<int8_t>(codes[at]);
    const double got = static_cast<double>(scale) * code + static_cast<double>(min),
                 want = static_cast<double>(exact[at]);
    // Golden blocks hold scales that no model has; binary16 holds MXFP4's from 2^-23 to 2^16.
    if (!std::isfinite(want) || std::fabs(want) > 1e4 || (want != 0 && std::fabs(want) < 1e-6)) continue;
    error += (got - want) * (got - want);
    size += want * want;
  }
  const double relative = std::sqrt(error / size);
  if (relative < 1e-6) return "none";
  char text[32];
  std::snprintf(text, sizeof text, "relative rms %.1e", relative);
  return text;
}

std::vector<std::string> block_table() {
  const auto file = weights::SafetensorsFile::open(GRISTMILL_TEST_DIR "/golden/gguf_blocks.safetensors");
  std::vector<std::string> lines{"| GGUF type | class | loss |", "| --- | --- | --- |"};
  for (const BlockFormat& format : kBlockFormats)
    lines.push_back(cat("| ", format.name, " | ", words_of(weights::encoding_of(format.type)), " | ",
                        loss_of(*file, format), " |"));
  return lines;
}

std::vector<std::string> folder_table(const std::vector<Format>& formats) {
  std::vector<std::string> lines{"| format | recognised by | class | checked |", "| --- | --- | --- | --- |"};
  for (const Format& format : formats)
    lines.push_back(
        cat("| ", format.name, " | ", format.recognised, " | ", format.seen.cls, " | ", format.seen.checked, " |"));
  return lines;
}

std::string readme_row(const std::vector<Format>& formats) {
  std::string folders = "float types", blocks;
  for (const Format& format : formats)
    if (!format.short_name.empty()) folders += ", " + format.short_name;
  for (const BlockFormat& format : kBlockFormats) blocks += cat(blocks.empty() ? "" : ", ", format.name);
  return cat("| Weights | safetensors: ", folders, "; GGUF v2 and v3: ", blocks,
             " ([docs/quantization.md](docs/quantization.md)) |");
}

/// Compares the lines of `path` that follow the one that starts with `head` with `wanted`, or writes them.
void expect_lines(const std::string& path, const std::string& head, const std::vector<std::string>& wanted) {
  std::vector<std::string> lines;
  std::istringstream text(read(path));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  size_t first = 0;
  while (first < lines.size() && !lines[first].starts_with(head)) ++first;
  ASSERT_LT(first, lines.size()) << path << " has no line that starts with " << head;
  size_t end = first + 1;
  if (wanted.size() > 1)
    while (end < lines.size() && lines[end].starts_with("|")) ++end;
  if (std::getenv("GRISTMILL_WRITE_DOCS") != nullptr) {
    lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(first), lines.begin() + static_cast<std::ptrdiff_t>(end));
    lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(first), wanted.begin(), wanted.end());
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    for (const std::string& line : lines) out << line << "\n";
    return;
  }
  EXPECT_EQ(end - first, wanted.size()) << path << ", line " << first + 1;
  for (size_t i = 0; i < wanted.size() && first + i < lines.size(); ++i)
    EXPECT_EQ(lines[first + i], wanted[i])
        << path << ", line " << first + i + 1 << ": GRISTMILL_WRITE_DOCS=1 writes what the test sees";
}

TEST(FormatTable, SaysWhatTheFormatsGive) {
  const std::string root = GRISTMILL_TEST_DIR "/../";
  const std::vector<Format> formats = folder_formats();
  expect_lines(root + "docs/quantization.md", "| GGUF type |", block_table());
  expect_lines(root + "docs/quantization.md", "| format | recognised by |", folder_table(formats));
  expect_lines(root + "README.md", "| Weights |", {readme_row(formats)});
}

}  // namespace
}  // namespace gristmill::model
