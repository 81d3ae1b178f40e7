#include "weights/block_codes.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "weights/block_fields.h"
#include "weights/gguf_blocks.h"

namespace gristmill::weights {
namespace {

constexpr int kGroup = 32;

/// One block's groups, each 32 codes with a scale and perhaps a minimum.
struct Groups {
  uint8_t* codes;
  uint16_t* scales;
  uint16_t* mins;
};

uint8_t as_code(int value) {
  return static_cast<uint8_t>(static_cast<int8_t>(value));
}

/// binary16 of a finite product that may be out of its range.
uint16_t to_half(float value) {
  return f32_to_f16(std::clamp(value, -65504.0f, 65504.0f));
}

void codes_q4_0(const uint8_t* block, const Groups& out) {
  out.scales[0] = u16_at(block);
  for (int j = 0; j < kGroup; ++j) out.codes[j] = static_cast<uint8_t>(nibble(block + 2, j));
}

void codes_q4_1(const uint8_t* block, const Groups& out) {
  out.scales[0] = u16_at(block);
  out.mins[0] = u16_at(block + 2);
  for (int j = 0; j < kGroup; ++j) out.codes[j] = static_cast<uint8_t>(nibble(block + 4, j));
}

void codes_q5_0(const uint8_t* block, const Groups& out) {
  out.scales[0] = u16_at(block);
  for (int j = 0; j < kGroup; ++j) out.codes[j] = as_code(five_bits(block + 2, block + 6, j) - 16);
}

void codes_q5_1(const uint8_t* block, const Groups& out) {
  out.scales[0] = u16_at(block);
  out.mins[0] = u16_at(block + 2);
  for (int j = 0; j < kGroup; ++j) out.codes[j] = as_code(five_bits(block + 4, block + 8, j));
}

void codes_q8_0(const uint8_t* block, const Groups& out) {
  out.scales[0] = u16_at(block);
  std::copy_n(block + 2, kGroup, out.codes);
}

void codes_iq4_nl(const uint8_t* block, const Groups& out) {
  out.scales[0] = u16_at(block);
  for (int j = 0; j < kGroup; ++j) out.codes[j] = as_code(kIq4Values[nibble(block + 2, j)]);
}

void codes_mxfp4(const uint8_t* block, const Groups& out) {
  out.scales[0] = to_half(e8m0_half(block[0]));
  for (int j = 0; j < kGroup; ++j) out.codes[j] = as_code(kMxfp4Values[nibble(block + 1, j)]);
}

void codes_q4_k(const uint8_t* block, const Groups& out) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  for (int run = 0; run < 8; ++run) {
    const ScaleMin sm = k_scale_min(block + 4, run);
    out.scales[run] = to_half(d * static_cast<float>(sm.scale));
    out.mins[run] = to_half(-(dmin * static_cast<float>(sm.min)));
    for (int l = 0; l < kGroup; ++l) out.codes[kGroup * run + l] = static_cast<uint8_t>(q4_k_code(block + 16, run, l));
  }
}

void codes_q5_k(const uint8_t* block, const Groups& out) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  for (int run = 0; run < 8; ++run) {
    const ScaleMin sm = k_scale_min(block + 4, run);
    out.scales[run] = to_half(d * static_cast<float>(sm.scale));
    out.mins[run] = to_half(-(dmin * static_cast<float>(sm.min)));
    for (int l = 0; l < kGroup; ++l)
      out.codes[kGroup * run + l] = as_code(q4_k_code(block + 48, run, l) | ((block[16 + l] >> run) & 1) << 4);
  }
}

void codes_iq4_xs(const uint8_t* block, const Groups& out) {
  const float d = half_at(block);
  for (int run = 0; run < 8; ++run) {
    out.scales[run] = to_half(d * static_cast<float>(iq4_xs_scale(block, run)));
    for (int l = 0; l < kGroup; ++l) out.codes[kGroup * run + l] = as_code(kIq4Values[nibble(block + 8 + 16 * run, l)]);
  }
}

void requantize(const float* values, uint8_t* codes, uint16_t* scale) {
  float absmax = 0;
  for (int j = 0; j < kGroup; ++j) absmax = std::max(absmax, std::fabs(values[j]));
  *scale = to_half(absmax / 127.0f);
  const float rounded = f16_to_f32(*scale);
  for (int j = 0; j < kGroup; ++j) {
    const float exact = rounded > 0 ? values[j] / rounded : 0.0f;
    // Not-a-number fails every comparison and ends up at a bound, like infinity.
    const float bounded = exact > -127.0f ? (exact < 127.0f ? exact : 127.0f) : -127.0f;
    constexpr float kRounder = 0x1.8p23f;  // adding it rounds to the nearest integer, ties to even
    codes[j] = as_code(static_cast<int>((bounded + kRounder) - kRounder));
  }
}

template <StorageType type>
void codes_requantized(const uint8_t* block, const Groups& out) {
  float values[256];
  dequantize(type, reinterpret_cast<const std::byte*>(block), 256, values);
  for (int run = 0; run < 8; ++run) requantize(values + kGroup * run, out.codes + kGroup * run, out.scales + run);
}

using ReadCodes = void (*)(const uint8_t* block, const Groups& out);

struct CodeClass {
  device::Encoding encoding;
  ReadCodes read = nullptr;
};

CodeClass code_class(StorageType type) {
  using device::ComputeClass;
  constexpr device::Encoding kInt8{ComputeClass::i8_group, kGroup, 0, false};
  constexpr device::Encoding kInt8Min{ComputeClass::i8_group, kGroup, 0, true};
  constexpr device::Encoding kInt4Min{ComputeClass::i4_group, kGroup, 0, true};
  switch (type) {
    case StorageType::f16:
      return {{ComputeClass::f16, 0, 0, false}};
    case StorageType::bf16:
      return {{ComputeClass::bf16, 0, 0, false}};
    case StorageType::q4_0:
      return {{ComputeClass::i4_group, kGroup, 8, false}, codes_q4_0};
    case StorageType::q4_1:
      return {kInt4Min, codes_q4_1};
    case StorageType::q5_0:
      return {kInt8, codes_q5_0};
    case StorageType::q5_1:
      return {kInt8Min, codes_q5_1};
    case StorageType::q8_0:
      return {kInt8, codes_q8_0};
    case StorageType::q2_k:
      return {kInt8, codes_requantized<StorageType::q2_k>};
    case StorageType::q3_k:
      return {kInt8, codes_requantized<StorageType::q3_k>};
    case StorageType::q4_k:
      return {kInt4Min, codes_q4_k};
    case StorageType::q5_k:
      return {kInt8Min, codes_q5_k};
    case StorageType::q6_k:
      return {kInt8, codes_requantized<StorageType::q6_k>};
    case StorageType::iq4_nl:
      return {kInt8, codes_iq4_nl};
    case StorageType::iq4_xs:
      return {kInt8, codes_iq4_xs};
    case StorageType::mxfp4:
      return {kInt8, codes_mxfp4};
    default:
      return {{ComputeClass::f32, 0, 0, false}};
  }
}

}  // namespace

device::Encoding encoding_of(StorageType type) {
  return code_class(type).encoding;
}

void read_block_codes(StorageType type, const std::byte* row, int64_t columns, uint8_t* codes, uint16_t* scales,
                      uint16_t* mins) {
  const CodeClass cls = code_class(type);
  const BlockLayout layout = layout_of(type);
  const auto* block = reinterpret_cast<const uint8_t*>(row);
  const int groups = layout.elements / kGroup;
  for (int64_t k = 0; k < columns; k += layout.elements, block += layout.bytes) {
    cls.read(block, {codes + k, scales, mins});
    scales += groups;
    if (cls.encoding.has_min) mins += groups;
  }
}

}  // namespace gristmill::weights
