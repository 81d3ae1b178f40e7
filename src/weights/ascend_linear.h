#pragma once
#include <memory>
#include <string>
#include <vector>

#include "weights/checkpoint.h"
#include "weights/quant_description.h"

namespace gristmill::weights {

/// A matrix of an ascend checkpoint.
struct AscendLinear {
  std::shared_ptr<const device::WeightSource> weight;
  std::vector<std::string> tensors;  ///< all that belong to it, X.weight too
  /// X.bias, if there is one, is in quant_bias: it must not be added again.
  bool holds_bias = false;
  /// Of statically quantized weights that are read exactly: what quant_bias and the input's offset add to each output,
  /// [1, rows]; else null.
  std::shared_ptr<const device::WeightSource> bias{};
};

/// The matrix [rows, columns] whose tensors are X.weight, X.weight_scale and so on, `base` being X. Its type is not
/// `plain`. scale_bias is ignored: it belongs to a kernel that splits activation codes in halves, not to the numbers.
/// Throws Error naming tensor and what does not fit: shapes, missing scales, an offset where none is supported.
AscendLinear make_ascend_linear(const std::shared_ptr<const Checkpoint>& checkpoint,
                                const QuantDescription& description, const std::string& base, QuantType type,
                                int64_t rows, int64_t columns, ReadAs read_as);

}  // namespace gristmill::weights
