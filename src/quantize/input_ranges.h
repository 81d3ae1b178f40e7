#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/progress.h"
#include "device/backend.h"

namespace gristmill::quantize {

/// Least and largest input of each linear (0 is among them), by the name of its weight.
using InputRanges = std::map<std::string, device::ValueRange>;

/// Runs the model on token sequences, each from an empty context, in float32 on the CPU back end, and keeps the range
/// of what every linear reads; its ends are infinite where an input is not finite. Throws Error when there is no token.
InputRanges measure_input_ranges(const std::string& model, const std::vector<std::vector<int32_t>>& sequences,
                                 int threads, Progress& progress);

}  // namespace gristmill::quantize
