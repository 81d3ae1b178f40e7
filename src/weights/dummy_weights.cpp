#include "weights/dummy_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"

namespace gristmill::weights {
namespace {

using device::CodeRows;
using device::ComputeClass;
using device::Encoding;

constexpr int kGroup = 32;

/// Steele, Lea and Flood's SplitMix64: a number for each place, in any order.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t hash(const std::string& name) {  // FNV-1a
  uint64_t h = 0xcbf29ce484222325;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return h;
}

Encoding encoding_for(ComputeClass cls, int64_t columns) {
  if (cls == ComputeClass::i4_group || cls == ComputeClass::i8_group) {
    if (columns % kGroup != 0) return {ComputeClass::bf16, 0, 0, false};
    return {cls, kGroup, cls == ComputeClass::i4_group ? 8 : 0, false};
  }
  return {cls, 0, 0, false};
}

size_t bytes_of(int64_t rows, int64_t columns, const Encoding& encoding) {
  const auto count = static_cast<size_t>(rows) * static_cast<size_t>(columns);
  switch (encoding.cls) {
    case ComputeClass::i4_group:
      return count / 2 + count / kGroup * 2;
    case ComputeClass::i8_group:
      return count + count / kGroup * 2;
    case ComputeClass::f32:
      return count * 4;
    default:
      return count * 2;
  }
}

class DummySource final : public device::WeightSource {
 public:
  DummySource(const std::string& name, int64_t rows, int64_t columns, const Encoding& encoding)
      : WeightSource(name, rows, columns, encoding, bytes_of(rows, columns, encoding)), seed_(hash(name)) {
    const double size = 1 / std::sqrt(static_cast<double>(columns));
    // bfloat16 numbers of one exponent and any mantissa are 1.5 times a power of two on average.
    exponent_ = static_cast<uint16_t>((127 + std::lround(std::log2(size / 1.5))) << 7);
    // The deviation of evenly spread codes is their range / sqrt(12).
    scale_ =
        f32_to_f16(static_cast<float>(size * std::sqrt(12.0) / (encoding.cls == ComputeClass::i4_group ? 16 : 256)));
  }

  void read_f32(int64_t first, int64_t count, float* out) const override {
    const bool coded = encoding().group != 0, nibbles = encoding().cls == ComputeClass::i4_group;
    const float scale = f16_to_f32(scale_);
    for (int64_t row = first; row < first + count; ++row)
      for (int64_t i = 0; i < columns(); i += kPerWord) {
        const uint64_t word = word_of(row, i);
        const int64_t end = std::min<int64_t>(columns() - i, kPerWord);
        for (int64_t j = 0; j < end; ++j) {
          if (!coded) {
            *out++ = bf16_to_f32(half_of(word, j));
          } else if (nibbles) {
            *out++ = scale * static_cast<float>(static_cast<int>(nibble_of(word, j)) - 8);
          } else {
            *out++ = scale * static_cast<float>(static_cast<int8_t>(byte_of(word, j)));
          }
        }
      }
  }
  void read_16(int64_t first, int64_t count, uint16_t* out) const override {
    for (int64_t row = first; row < first + count; ++row, out += columns())
      each_word(row, [&](uint64_t word, int64_t i, int64_t j) { out[i + j] = half_of(word, j); });
  }
  void read_codes(int64_t first, int64_t count, const CodeRows& out) const override {
    const bool nibbles = encoding().cls == ComputeClass::i4_group;
    uint8_t* codes = out.codes;
    for (int64_t row = first; row < first + count; ++row, codes += columns()) {
      if (nibbles) {
        each_word(row, [&](uint64_t word, int64_t i, int64_t j) { codes[i + j] = nibble_of(word, j); });
      } else {
        each_word(row, [&](uint64_t word, int64_t i, int64_t j) { codes[i + j] = byte_of(word, j); });
      }
    }
    std::fill_n(out.scales, count * columns() / kGroup, scale_);
  }

 private:
  static constexpr int64_t kPerWord = 4;

  uint64_t word_of(int64_t row, int64_t column) const {
    return mix(seed_ ^ static_cast<uint64_t>(row * ((columns() + kPerWord - 1) / kPerWord) + column / kPerWord));
  }
  template <class Put>
  void each_word(int64_t row, Put put) const {
    int64_t i = 0;
    for (; i + kPerWord <= columns(); i += kPerWord) {
      const uint64_t word = word_of(row, i);
      for (int64_t j = 0; j < kPerWord; ++j) put(word, i, j);
    }
    if (i == columns()) return;
    const uint64_t word = word_of(row, i);
    for (int64_t j = 0; j < columns() - i; ++j) put(word, i, j);
  }
  uint16_t half_of(uint64_t word, int64_t j) const {
    const auto bits = static_cast<uint16_t>(word >> (16 * j));
    if (rows() == 1) return static_cast<uint16_t>(0x3f80 | (bits & 0x0f));  // 1 and a little
    return static_cast<uint16_t>((bits & 0x807f) | exponent_);
  }
  static uint8_t nibble_of(uint64_t word, int64_t j) { return static_cast<uint8_t>(word >> (16 * j)) & 0x0f; }
  static uint8_t byte_of(uint64_t word, int64_t j) { return static_cast<uint8_t>(word >> (16 * j)); }

  uint64_t seed_;
  uint16_t exponent_, scale_;
};

}  // namespace

std::shared_ptr<const device::WeightSource> make_dummy_source(const std::string& name, int64_t rows, int64_t columns,
                                                              ComputeClass cls) {
  return std::make_shared<DummySource>(name, rows, columns, encoding_for(cls, columns));
}

}  // namespace gristmill::weights
