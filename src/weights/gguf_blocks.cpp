#include "weights/gguf_blocks.h"

#include <bit>
#include <cstring>

#include "base/float8.h"
#include "base/half.h"
#include "weights/block_fields.h"

namespace gristmill::weights {
namespace {

// One function per type, each for one block, in ggml's order of operations (GGUF's block definitions). Elements of the
// 32-wide types: the low nibbles are elements 0..15, the high nibbles 16..31.

void block_f32(const uint8_t* block, float* out) {
  std::memcpy(out, block, 4);
}
void block_f16(const uint8_t* block, float* out) {
  *out = half_at(block);
}
void block_bf16(const uint8_t* block, float* out) {
  *out = bf16_to_f32(u16_at(block));
}

void block_f64(const uint8_t* block, float* out) {
  double value;
  std::memcpy(&value, block, sizeof value);
  *out = static_cast<float>(value);
}
void block_fp8_e4m3(const uint8_t* block, float* out) {
  *out = fp8_e4m3_to_f32(*block);
}

void block_q4_0(const uint8_t* block, float* out) {
  const float d = half_at(block);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(nibble(block + 2, j) - 8);
}

void block_q4_1(const uint8_t* block, float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(nibble(block + 4, j)) + m;
}

void block_q5_0(const uint8_t* block, float* out) {
  const float d = half_at(block);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(five_bits(block + 2, block + 6, j) - 16);
}

void block_q5_1(const uint8_t* block, float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(five_bits(block + 4, block + 8, j)) + m;
}

void block_q8_0(const uint8_t* block, float* out) {
  const float d = half_at(block);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(static_cast<int8_t>(block[2 + j]));
}

void block_iq4_nl(const uint8_t* block, float* out) {
  const float d = half_at(block);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(kIq4Values[nibble(block + 2, j)]);
}

void block_mxfp4(const uint8_t* block, float* out) {
  const float d = e8m0_half(block[0]);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(kMxfp4Values[nibble(block + 1, j)]);
}

void block_q2_k(const uint8_t* block, float* out) {
  const float d = half_at(block + 80);
  const float dmin = half_at(block + 82);
  for (int run = 0; run < 16; ++run) {
    const float scale = d * static_cast<float>(block[run] & 15);
    const float min = dmin * static_cast<float>(block[run] >> 4);
    for (int l = 0; l < 16; ++l) out[16 * run + l] = scale * static_cast<float>(two_bits(block + 16, run, l)) - min;
  }
}

void block_q3_k(const uint8_t* block, float* out) {
  const float d = half_at(block + 108);
  for (int run = 0; run < 16; ++run) {
    const float scale = d * static_cast<float>(q3_k_scale(block + 96, run) - 32);
    const int bit = 4 * (run / 8) + (run % 8) / 2;
    for (int l = 0; l < 16; ++l) {
      const int high = (block[16 * (run % 2) + l] >> bit) & 1;
      out[16 * run + l] = scale * static_cast<float>(two_bits(block + 32, run, l) - (high != 0 ? 0 : 4));
    }
  }
}

void block_q4_k(const uint8_t* block, float* out) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  for (int run = 0; run < 8; ++run) {
    const ScaleMin sm = k_scale_min(block + 4, run);
    const float scale = d * static_cast<float>(sm.scale);
    const float min = dmin * static_cast<float>(sm.min);
    for (int l = 0; l < 32; ++l) out[32 * run + l] = scale * static_cast<float>(q4_k_code(block + 16, run, l)) - min;
  }
}

void block_q5_k(const uint8_t* block, float* out) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  for (int run = 0; run < 8; ++run) {
    const ScaleMin sm = k_scale_min(block + 4, run);
    const float scale = d * static_cast<float>(sm.scale);
    const float min = dmin * static_cast<float>(sm.min);
    for (int l = 0; l < 32; ++l) {
      const int code = q4_k_code(block + 48, run, l) | ((block[16 + l] >> run) & 1) << 4;
      out[32 * run + l] = scale * static_cast<float>(code) - min;
    }
  }
}

void block_q6_k(const uint8_t* block, float* out) {
  const float d = half_at(block + 208);
  for (int run = 0; run < 8; ++run) {
    const int half = run / 4, quarter = run % 4;
    for (int l = 0; l < 32; ++l) {
      const int low = (block[64 * half + 32 * (quarter % 2) + l] >> (4 * (quarter / 2))) & 15;
      const int high = (block[128 + 32 * half + l] >> (2 * quarter)) & 3;
      const float scale = d * static_cast<float>(static_cast<int8_t>(block[192 + 2 * run + l / 16]));
      out[32 * run + l] = scale * static_cast<float>((low | high << 4) - 32);
    }
  }
}

void block_iq4_xs(const uint8_t* block, float* out) {
  const float d = half_at(block);
  for (int run = 0; run < 8; ++run) {
    const float scale = d * static_cast<float>(iq4_xs_scale(block, run));
    for (int l = 0; l < 32; ++l)
      out[32 * run + l] = scale * static_cast<float>(kIq4Values[nibble(block + 8 + 16 * run, l)]);
  }
}

using Dequantize = void (*)(const uint8_t* block, float* out);

struct BlockType {
  BlockLayout layout;
  Dequantize dequantize;  ///< null: not a weight type
};

const BlockType& block_type(StorageType type) {
  // In the order of StorageType.
  static constexpr BlockType kTypes[] = {
      {{"F32", 1, 4}, block_f32},
      {{"F16", 1, 2}, block_f16},
      {{"BF16", 1, 2}, block_bf16},
      {{"F64", 1, 8}, block_f64},
      {{"I8", 1, 1}, nullptr},
      {{"U8", 1, 1}, nullptr},
      {{"I16", 1, 2}, nullptr},
      {{"I32", 1, 4}, nullptr},
      {{"I64", 1, 8}, nullptr},
      {{"BOOL", 1, 1}, nullptr},
      {{"F8_E4M3", 1, 1}, block_fp8_e4m3},
      {{"Q4_0", 32, 18}, block_q4_0},
      {{"Q4_1", 32, 20}, block_q4_1},
      {{"Q5_0", 32, 22}, block_q5_0},
      {{"Q5_1", 32, 24}, block_q5_1},
      {{"Q8_0", 32, 34}, block_q8_0},
      {{"Q2_K", 256, 84}, block_q2_k},
      {{"Q3_K", 256, 110}, block_q3_k},
      {{"Q4_K", 256, 144}, block_q4_k},
      {{"Q5_K", 256, 176}, block_q5_k},
      {{"Q6_K", 256, 210}, block_q6_k},
      {{"IQ4_NL", 32, 18}, block_iq4_nl},
      {{"IQ4_XS", 256, 136}, block_iq4_xs},
      {{"MXFP4", 32, 17}, block_mxfp4},
  };
  static_assert(std::size(kTypes) == static_cast<size_t>(StorageType::mxfp4) + 1);
  return kTypes[static_cast<size_t>(type)];
}

}  // namespace

BlockLayout layout_of(StorageType type) {
  return block_type(type).layout;
}

size_t row_bytes(StorageType type, int64_t columns) {
  const BlockLayout& layout = block_type(type).layout;
  return static_cast<size_t>(columns / layout.elements) * static_cast<size_t>(layout.bytes);
}

bool is_weight_type(StorageType type) {
  return block_type(type).dequantize != nullptr;
}

void dequantize(StorageType type, const std::byte* row, int64_t columns, float* out) {
  const auto* block = reinterpret_cast<const uint8_t*>(row);
  if (type == StorageType::f32 && std::endian::native == std::endian::little) {
    std::memcpy(out, block, static_cast<size_t>(columns) * 4);
    return;
  }
  const BlockType& t = block_type(type);
  for (int64_t k = 0; k < columns; k += t.layout.elements, block += t.layout.bytes) t.dequantize(block, out + k);
}

}  // namespace gristmill::weights
