#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/compute_team.h"
#include "quantize/float_matrix.h"
#include "quantize/input_ranges.h"
#include "quantize/shard_writer.h"
#include "weights/quant_description.h"

namespace gristmill::quantize {

/// A matrix as msmodelslim stores it: the tensors of X with their data, in the order of `planned_tensors`.
struct QuantizedMatrix {
  std::vector<std::string> data;
  double error = 0;  ///< sum of (w - quantized w)^2
  double size = 0;   ///< sum of w^2
};

/// How one matrix is to be stored.
struct MatrixScheme {
  weights::QuantType type = weights::QuantType::w8a8_dynamic;  ///< w8a8, w8a8_dynamic or w4a8_dynamic
  int group = 0;                                               ///< w4a8_dynamic: columns that share a scale; 0: all
  bool as_float16 = false;                                     ///< w8a8: deq_scale as int64, as for float16 models
};

/// The tensors of X.weight [rows, columns] in that scheme, X being `base`.
std::vector<TensorPlan> planned_tensors(const std::string& base, const MatrixScheme& scheme, int64_t rows,
                                        int64_t columns);

/// Quantizes row by row on all members of the team. `bias` (empty: none) and `range` are for w8a8.
QuantizedMatrix quantize_matrix(const std::string& base, const MatrixScheme& scheme, const FloatMatrix& matrix,
                                const std::vector<float>& bias, const device::ValueRange& range, ComputeTeam& team);

}  // namespace gristmill::quantize
