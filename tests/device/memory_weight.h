#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/weight_source.h"

namespace gristmill::device::testing {

/// A float32 weight in memory.
class MemoryWeight final : public WeightSource {
 public:
  MemoryWeight(std::string name, int64_t rows, int64_t columns, std::vector<float> values)
      : WeightSource(std::move(name), rows, columns, Encoding{}, values.size() * sizeof(float)),
        values_(std::move(values)) {}
  void read_f32(int64_t first, int64_t count, float* out) const override {
    std::memcpy(out, values_.data() + first * columns(), static_cast<size_t>(count * columns()) * sizeof(float));
  }
  void read_16(int64_t, int64_t, uint16_t*) const override {}
  void read_codes(int64_t, int64_t, const CodeRows&) const override {}

 private:
  std::vector<float> values_;
};

/// Reproducible numbers in [-1, 1).
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  float next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(static_cast<int32_t>(state_ >> 32)) * 0x1p-31f;
  }
  std::vector<float> take(int64_t count, float scale = 1) {
    std::vector<float> all(static_cast<size_t>(count));
    for (float& each : all) each = scale * next();
    return all;
  }

 private:
  uint64_t state_;
};

inline std::shared_ptr<const WeightSource> random_weight(const std::string& name, int64_t rows, int64_t columns,
                                                         Numbers& numbers) {
  return std::make_shared<MemoryWeight>(name, rows, columns, numbers.take(rows * columns, rows == 1 ? 1.0f : 0.4f));
}

}  // namespace gristmill::device::testing
