#include "weights/quantized_source.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "weights/mapped_file.h"
#include "weights/row_quantizer.h"

namespace gristmill::weights {
namespace {

using device::ComputeClass;
using device::Encoding;

/// The number behind "layers." or "blk."; -1 when there is none.
int64_t layer_of(const std::string& tensor) {
  for (const std::string_view part : {"layers.", "blk."}) {
    const size_t at = tensor.find(part);
    if (at == std::string::npos) continue;
    int64_t layer = -1;
    std::from_chars(tensor.data() + at + part.size(), tensor.data() + tensor.size(), layer);
    return layer;
  }
  return -1;
}

class QuantizedSource final : public device::WeightSource {
 public:
  QuantizedSource(std::shared_ptr<const WeightSource> base, Encoding encoding,
                  std::shared_ptr<QuantizationErrors> errors)
      : WeightSource(base->name(), base->rows(), base->columns(), encoding, base->file_bytes()),
        base_(std::move(base)),
        errors_(std::move(errors)) {
    errors_->expect();
  }

  void read_f32(int64_t first, int64_t count, float* out) const override {
    std::vector<int8_t> codes(static_cast<size_t>(columns()));
    for (int64_t row = 0; row < count; ++row, out += columns()) {
      float scale = 0;
      base_->read_f32(first + row, 1, out);
      quantize(out, codes.data(), &scale);
      for (int64_t k = 0; k < columns(); ++k) out[k] = static_cast<float>(codes[static_cast<size_t>(k)]) * scale;
    }
  }
  void read_16(int64_t, int64_t, uint16_t*) const override {}
  void read_codes(int64_t first, int64_t count, const device::CodeRows& out) const override {
    std::vector<float> row(static_cast<size_t>(columns()));
    double error = 0, size = 0;
    for (int64_t i = 0; i < count; ++i) {
      base_->read_f32(first + i, 1, row.data());
      auto* const codes = reinterpret_cast<int8_t*>(out.codes + i * columns());
      quantize(row.data(), codes, out.channel_scales + i);
      for (int64_t k = 0; k < columns(); ++k) {
        const double exact = row[static_cast<size_t>(k)];
        const double left = exact - static_cast<double>(static_cast<float>(codes[k]) * out.channel_scales[i]);
        error += left * left;
        size += exact * exact;
      }
    }
    errors_->add(name(), error, size);
  }
  void release() const override {
    base_->release();
    if (!released_.exchange(true)) errors_->finish();
  }

 private:
  void quantize(const float* row, int8_t* codes, float* scale) const {
    if (!std::all_of(row, row + columns(), [](float value) { return std::isfinite(value); }))
      throw Error(cat("tensor ", quoted(name()),
                      ": holds a number that is not finite and cannot be quantized; the model file is damaged"));
    if (encoding().cls == ComputeClass::i8_channel) {
      quantize_row_int8(row, columns(), codes, scale);
    } else {
      quantize_row_int4(row, columns(), codes, scale);
    }
  }
  std::shared_ptr<const WeightSource> base_;
  std::shared_ptr<QuantizationErrors> errors_;
  mutable std::atomic<bool> released_{false};
};

}  // namespace

void QuantizationErrors::add(const std::string& tensor, double error, double size) {
  const std::lock_guard lock(mutex_);
  Sums& sums = layers_[layer_of(tensor)];
  sums.error += error;
  sums.size += size;
}

void QuantizationErrors::finish() {
  const std::lock_guard lock(mutex_);
  if (--expected_ != 0) return;
  for (const auto& [layer, sums] : layers_)
    LOG_INFO("quantized at load: ", layer < 0 ? "outside of layers" : cat("layer ", layer), ": relative error ",
             std::sqrt(sums.error / std::max(sums.size, 1e-30)));
}

std::shared_ptr<const device::WeightSource> quantize_source(std::shared_ptr<const device::WeightSource> base,
                                                            WeightBits bits,
                                                            std::shared_ptr<QuantizationErrors> errors) {
  const ComputeClass cls = bits == WeightBits::int4 ? ComputeClass::i4_channel : ComputeClass::i8_channel;
  return std::make_shared<QuantizedSource>(std::move(base), Encoding{cls, 0, 0, false}, std::move(errors));
}

}  // namespace gristmill::weights
