// Codes, accumulators and results of every quantization scheme against stored vectors, where there are any, and int4
// unpacking against an independent table.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/json.h"
#include "device/reference/matrix.h"
#include "weights/ascend_linear.h"
#include "weights/channel_source.h"
#include "weights/gguf_bytes.h"
#include "weights/safetensors.h"
#include "weights/safetensors_bytes.h"
#include "weights/weight_views.h"

namespace gristmill::weights {
namespace {

using gristmill::testing::SafetensorsBytes;
using gristmill::testing::TemporaryFolder;

/// A file whose tensors T are called X.T.
class Prefixed final : public Checkpoint {
 public:
  explicit Prefixed(std::shared_ptr<const SafetensorsFile> file) : file_(std::move(file)) {}
  std::string path() const override { return file_->path(); }
  bool contains(std::string_view name) const override {
    return name.starts_with("X.") && file_->contains(name.substr(2));
  }
  TensorView tensor(std::string_view name) const override {
    return file_->tensor(name.starts_with("X.") ? name.substr(2) : name);
  }
  std::vector<std::string> names() const override { return file_->names(); }
  void drop_pages(std::span<const std::byte> bytes) const override { file_->drop_pages(bytes); }

 private:
  std::shared_ptr<const SafetensorsFile> file_;
};

template <class T>
std::vector<T> values(const SafetensorsFile& file, const char* name) {
  const TensorView tensor = file.tensor(name);
  std::vector<T> all(tensor.bytes.size() / sizeof(T));
  std::memcpy(all.data(), tensor.bytes.data(), tensor.bytes.size());
  return all;
}

std::shared_ptr<const QuantDescription> describe(const TemporaryFolder& folder, const std::string& type, int group) {
  folder.write("quant_model_description.json", cat(R"({"X.weight": ")", type, R"(", "group_size": )", group, "}"));
  return QuantDescription::find(folder.path(""));
}

/// One vector of an ascend scheme; returns how many numbers were compared.
void check_vector(const SafetensorsFile& file, const std::shared_ptr<const Checkpoint>& checkpoint, const Json& info) {
  const std::string scheme = info.find("scheme")->string;
  const Json* const group_size = info.find("group_size");
  const int group = group_size == nullptr ? 0 : static_cast<int>(group_size->integer);
  const TensorView x_view = file.tensor("x"), y_view = file.tensor("y");
  const int64_t rows = y_view.shape[1], columns = x_view.shape[1], tokens = x_view.shape[0];
  QuantType type = QuantType::w8a8_dynamic;
  if (scheme == "W8A8") type = QuantType::w8a8;
  if (scheme == "W4A8_DYNAMIC") type = QuantType::w4a8_dynamic;
  if (scheme == "W8A16") type = QuantType::w8a16;
  TemporaryFolder folder;
  const AscendLinear linear =
      make_ascend_linear(checkpoint, *describe(folder, scheme, group), "X", type, rows, columns, ReadAs::compact);
  const device::Encoding& encoding = linear.weight->encoding();
  EXPECT_EQ(linear.holds_bias, type == QuantType::w8a8);

  const std::vector<float> x = values<float>(file, "x"), y = values<float>(file, "y");
  std::vector<float> memory(device::reference::matrix_bytes(*linear.weight) / sizeof(float) + 1), got(y.size());
  const auto matrix = device::reference::read_matrix(*linear.weight, memory.data());
  std::vector<float> bias;
  if (file.contains("bias") && !linear.holds_bias) bias = values<float>(file, "bias");
  device::reference::multiply(x.data(), static_cast<int>(tokens), matrix, bias.empty() ? nullptr : bias.data(),
                              got.data());
  if (type == QuantType::w8a16) {
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(got[i], y[i], 1e-5);
    return;
  }
  if (encoding.group == 0) {
    EXPECT_EQ(got, y);
  } else {
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(got[i], y[i], 2e-6 * std::max(1.0f, std::fabs(y[i])));
  }
  if (file.contains("weight_int4")) {
    const auto codes = values<int8_t>(file, "weight_int4");
    EXPECT_EQ(std::vector<int8_t>(matrix.codes, matrix.codes + rows * columns), codes);
  }
  const auto x_q = values<int8_t>(file, "x_q");
  const auto sums = values<int32_t>(file, file.contains("acc") ? "acc" : "acc_group");
  const int64_t per_group = encoding.group == 0 ? columns : encoding.group, groups = columns / per_group;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<int8_t> codes(static_cast<size_t>(columns));
    const float scale =
        device::reference::quantize_activations(x.data() + t * columns, columns, encoding.input, codes.data());
    if (file.contains("x_scale")) {
      EXPECT_EQ(scale, values<float>(file, "x_scale")[static_cast<size_t>(t)]);
    }
    ASSERT_EQ(codes, std::vector<int8_t>(x_q.begin() + t * columns, x_q.begin() + (t + 1) * columns)) << t;
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t g = 0; g < groups; ++g) {
        int32_t sum = 0;
        for (int64_t k = g * per_group; k < (g + 1) * per_group; ++k)
          sum += codes[static_cast<size_t>(k)] * matrix.codes[n * columns + k];
        ASSERT_EQ(sum, sums[static_cast<size_t>((t * rows + n) * groups + g)]);
      }
  }
}

TEST(QuantVectors, CodesAccumulatorsAndResultsAreTheStoredOnes) {
  const std::string folder = GRISTMILL_SHARED_DATA "/quant/vectors";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is absent";
  int checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto file = SafetensorsFile::open(entry.path().string());
    const Json info = parse_json("case", file->metadata().at("case"));
    const std::string scheme = info.find("scheme")->string;
    SCOPED_TRACE(entry.path().filename().string());
    const auto checkpoint = std::make_shared<Prefixed>(file);
    if (scheme == "W8A8" || scheme == "W8A8_DYNAMIC" || scheme == "W4A8_DYNAMIC" || scheme == "W8A16") {
      check_vector(*file, checkpoint, info);
      ++checked;
    } else if (scheme == "FP8_CHANNEL") {
      const TensorView weight = file->tensor("weight");
      const auto source = make_block_fp8_source(file, "weight", "weight_scale", 1, weight.columns(), ReadAs::exact);
      std::vector<float> got(static_cast<size_t>(weight.rows() * weight.columns()));
      source->read_f32(0, weight.rows(), got.data());
      EXPECT_EQ(got, values<float>(*file, "weight_deq"));
      ++checked;
    }
  }
  EXPECT_GE(checked, 24);
}

TEST(ChannelSource, UnpacksEveryByteOfInt4Pairs) {
  // B39: against a table written down independently of the packing.
  constexpr int kSigned[16] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  TemporaryFolder folder;
  const auto file =
      SafetensorsFile::open(folder.write("w.safetensors", SafetensorsBytes().add("w", "I8", {1, 256}, bytes).bytes()));
  for (const bool paired : {true, false}) {
    ChannelCodes codes;
    codes.name = "w";
    codes.tensor = file->tensor("w");
    codes.storage = paired ? CodeStorage::int4_row_pairs : CodeStorage::int4_bytes;
    codes.rows = paired ? 2 : 1;
    codes.columns = 256;
    codes.scales.assign(static_cast<size_t>(codes.rows), 0.5f);
    const auto source = make_channel_source(file, codes, ReadAs::compact);
    std::vector<uint8_t> got(static_cast<size_t>(codes.rows * 256));
    std::vector<float> scales(static_cast<size_t>(codes.rows)), floats(got.size());
    source->read_codes(0, codes.rows, {got.data(), nullptr, nullptr, scales.data(), nullptr});
    source->read_f32(0, codes.rows, floats.data());
    for (int i = 0; i < 256; ++i) {
      EXPECT_EQ(static_cast<int8_t>(got[static_cast<size_t>(i)]), kSigned[i % 16]) << i;
      EXPECT_EQ(floats[static_cast<size_t>(i)], 0.5f * static_cast<float>(kSigned[i % 16])) << i;
      if (paired) {
        EXPECT_EQ(static_cast<int8_t>(got[static_cast<size_t>(256 + i)]), kSigned[i / 16]) << i;
      }
    }
  }
}

}  // namespace
}  // namespace gristmill::weights
