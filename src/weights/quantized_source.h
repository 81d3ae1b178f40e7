#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "device/weight_source.h"
#include "weights/quant_recipe.h"

namespace gristmill::weights {

/// What quantizing at load costs, by layer: the root of sum of (w - quantized w)^2 / sum of w^2. Thread safe.
class QuantizationErrors {
 public:
  void expect() { ++expected_; }
  void add(const std::string& tensor, double error, double size);
  /// One tensor has been read; with the last one the errors go to the log, a line for each layer.
  void finish();

 private:
  struct Sums {
    double error = 0, size = 0;
  };
  std::mutex mutex_;
  std::map<int64_t, Sums> layers_;  ///< -1: outside of the layers
  int expected_ = 0;
};

/// A float weight as i8_channel or i4_channel, quantized row by row as it is read. Reading throws Error naming
/// the tensor when a weight is not finite.
std::shared_ptr<const device::WeightSource> quantize_source(std::shared_ptr<const device::WeightSource> base,
                                                            WeightBits bits,
                                                            std::shared_ptr<QuantizationErrors> errors);

}  // namespace gristmill::weights
