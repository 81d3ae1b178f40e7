#include "weights/gguf_blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <vector>

#include "weights/safetensors.h"

namespace gristmill::weights {
namespace {

struct NamedType {
  const char* name;
  const char* file;
  StorageType type;
};
constexpr NamedType kTypes[] = {
    {"F32", "f32", StorageType::f32},          {"F16", "f16", StorageType::f16},
    {"BF16", "bf16", StorageType::bf16},       {"Q4_0", "q4_0", StorageType::q4_0},
    {"Q4_1", "q4_1", StorageType::q4_1},       {"Q5_0", "q5_0", StorageType::q5_0},
    {"Q5_1", "q5_1", StorageType::q5_1},       {"Q8_0", "q8_0", StorageType::q8_0},
    {"Q2_K", "q2_k", StorageType::q2_k},       {"Q3_K", "q3_k", StorageType::q3_k},
    {"Q4_K", "q4_k", StorageType::q4_k},       {"Q5_K", "q5_k", StorageType::q5_k},
    {"Q6_K", "q6_k", StorageType::q6_k},       {"IQ4_NL", "iq4_nl", StorageType::iq4_nl},
    {"IQ4_XS", "iq4_xs", StorageType::iq4_xs}, {"MXFP4", "mxfp4", StorageType::mxfp4},
};

/// Same bits, but for the sign of zero and the payload of not-a-number.
bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || a == b || (std::isnan(a) && std::isnan(b));
}

void expect_same_values(StorageType type, const TensorView& raw, const TensorView& values) {
  const int64_t count = values.columns();
  ASSERT_EQ(raw.bytes.size(), row_bytes(type, count));
  std::vector<float> got(static_cast<size_t>(count)), expected(static_cast<size_t>(count));
  std::memcpy(expected.data(), values.bytes.data(), values.bytes.size());
  dequantize(type, raw.bytes.data(), count, got.data());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(same(got[i], expected[i])) << i << ": " << got[i] << " " << expected[i];
}

TEST(GgufBlocks, EveryTypeEqualsTheGoldenValuesBitForBit) {
  const auto file = SafetensorsFile::open(GRISTMILL_TEST_DIR "/golden/gguf_blocks.safetensors");
  for (const NamedType& type : kTypes) {
    SCOPED_TRACE(type.name);
    expect_same_values(type.type, file->tensor(std::string(type.name) + ".raw"),
                       file->tensor(std::string(type.name) + ".values"));
  }
}

TEST(GgufBlocks, EveryTypeEqualsTheSharedVectorsBitForBit) {
  const std::string folder = GRISTMILL_SHARED_DATA "/quant/vectors/gguf/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is absent";
  for (const NamedType& type : kTypes) {
    SCOPED_TRACE(type.name);
    const auto file = SafetensorsFile::open(folder + "gguf_" + type.file + ".safetensors");
    expect_same_values(type.type, file->tensor("raw"), file->tensor("deq"));
  }
}

TEST(GgufBlocks, RowsMayLieAtAnyAddress) {
  const auto file = SafetensorsFile::open(GRISTMILL_TEST_DIR "/golden/gguf_blocks.safetensors");
  for (const NamedType& type : kTypes) {
    SCOPED_TRACE(type.name);
    TensorView raw = file->tensor(std::string(type.name) + ".raw");
    std::vector<std::byte> moved(raw.bytes.size() + 1);
    std::copy(raw.bytes.begin(), raw.bytes.end(), moved.begin() + 1);
    raw.bytes = std::span(moved).subspan(1);
    expect_same_values(type.type, raw, file->tensor(std::string(type.name) + ".values"));
  }
}

}  // namespace
}  // namespace gristmill::weights
