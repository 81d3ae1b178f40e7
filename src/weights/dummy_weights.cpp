#include "weights/dummy_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/half.h"

namespace gristmill::weights {
namespace {

using device::CodeRows;
using device::ComputeClass;
using device::Encoding;

constexpr int kGroup = 32;
constexpr size_t kPlaces = 1 << 16, kBlock = 16;

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

/// Random bits that all rows are cut from, each at a place of its own: copying is many times faster than drawing, and a
/// table of this size stays in a core's cache.
const std::vector<uint16_t>& random_bits() {
  static const std::vector<uint16_t> bits = [] {
    std::vector<uint16_t> all(kPlaces);
    for (size_t i = 0; i < kPlaces; ++i) all[i] = static_cast<uint16_t>(mix(i) >> 48);
    return all;
  }();
  return bits;
}

Encoding encoding_for(ComputeClass cls, int64_t columns) {
  if (cls == ComputeClass::i4_group || cls == ComputeClass::i8_group) {
    if (columns % kGroup != 0) return {ComputeClass::bf16, 0, 0, false};
    return {cls, kGroup, cls == ComputeClass::i4_group ? 8 : 0, false};
  }
  return {cls, 0, 0, false};
}

bool is_nibbles(ComputeClass cls) {
  return cls == ComputeClass::i4_group || cls == ComputeClass::i4_channel;
}

size_t bytes_of(int64_t rows, int64_t columns, const Encoding& encoding) {
  const auto count = static_cast<size_t>(rows) * static_cast<size_t>(columns);
  switch (encoding.cls) {
    case ComputeClass::i4_group:
      return count / 2 + count / kGroup * 2;
    case ComputeClass::i8_group:
      return count + count / kGroup * 2;
    case ComputeClass::i4_channel:
      return count / 2 + static_cast<size_t>(rows) * sizeof(float);
    case ComputeClass::i8_channel:
      return count + static_cast<size_t>(rows) * sizeof(float);
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
    const auto scale = static_cast<float>(size * std::sqrt(12.0) / (is_nibbles(encoding.cls) ? 16 : 256));
    half_scale_ = f32_to_f16(scale);
    scale_ = device::is_channel_class(encoding.cls) ? scale : f16_to_f32(half_scale_);
  }

  void read_f32(int64_t first, int64_t count, float* out) const override {
    switch (encoding().cls) {
      case ComputeClass::i4_group:
      case ComputeClass::i4_channel:
        return each(first, count, out, [this](uint16_t bits) {
          return scale_ * static_cast<float>(static_cast<int>(nibble_of(bits)) - 8);
        });
      case ComputeClass::i8_group:
      case ComputeClass::i8_channel:
        return each(first, count, out,
                    [this](uint16_t bits) { return scale_ * static_cast<float>(static_cast<int8_t>(bits)); });
      default:
        return each(first, count, out, [this](uint16_t bits) { return bf16_to_f32(half_of(bits)); });
    }
  }
  void read_16(int64_t first, int64_t count, uint16_t* out) const override {
    each(first, count, out, [this](uint16_t bits) { return half_of(bits); });
  }
  void read_codes(int64_t first, int64_t count, const CodeRows& out) const override {
    switch (encoding().cls) {
      case ComputeClass::i4_group:
        each(first, count, out.codes, nibble_of);
        break;
      case ComputeClass::i4_channel:
        each(first, count, out.codes, [](uint16_t bits) { return static_cast<uint8_t>(nibble_of(bits) - 8); });
        break;
      default:
        each(first, count, out.codes, [](uint16_t bits) { return static_cast<uint8_t>(bits); });
    }
    if (out.scales != nullptr) std::fill_n(out.scales, count * columns() / kGroup, half_scale_);
    if (out.channel_scales != nullptr) std::fill_n(out.channel_scales, count, scale_);
  }

 private:
  /// out[i] = number(bits of place i), row after row.
  template <class To, class Number>
  void each(int64_t first, int64_t count, To* out, Number number) const {
    const uint16_t* const bits = random_bits().data();
    const auto width = static_cast<size_t>(columns());
    for (int64_t row = first; row < first + count; ++row) {
      size_t place = mix(seed_ ^ static_cast<uint64_t>(row)) % kPlaces;
      for (size_t left = width; left > 0; place = 0) {
        const size_t run = std::min(left, kPlaces - place);
        size_t i = 0;
        for (; i + kBlock <= run; i += kBlock) {  // by way of locals, which compilers turn into vectors
          std::array<uint16_t, kBlock> in;
          std::array<To, kBlock> made;
          std::copy_n(bits + place + i, kBlock, in.begin());
          for (size_t j = 0; j < kBlock; ++j) made[j] = number(in[j]);
          std::copy_n(made.begin(), kBlock, out + i);
        }
        for (; i < run; ++i) out[i] = number(bits[place + i]);
        out += run;
        left -= run;
      }
    }
  }
  uint16_t half_of(uint16_t bits) const {
    if (rows() == 1) return static_cast<uint16_t>(0x3f80 | (bits & 0x0f));  // 1 and a little
    return static_cast<uint16_t>((bits & 0x807f) | exponent_);
  }
  static uint8_t nibble_of(uint16_t bits) { return static_cast<uint8_t>(bits & 0x0f); }

  uint64_t seed_;
  uint16_t exponent_, half_scale_;
  float scale_;
};

}  // namespace

std::shared_ptr<const device::WeightSource> make_dummy_source(const std::string& name, int64_t rows, int64_t columns,
                                                              ComputeClass cls) {
  return std::make_shared<DummySource>(name, rows, columns, encoding_for(cls, columns));
}

}  // namespace gristmill::weights
