#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/progress.h"

namespace gristmill::quantize {

/// Least and largest input of each linear, by the name of its weight.
struct InputRange {
  float low = 0, high = 0;
};
using InputRanges = std::map<std::string, InputRange>;

/// Runs the model on token sequences, each from an empty context, in float32 on the reference back end, and keeps the
/// range of what every linear reads; its ends are infinite where an input is not finite. Throws Error when there is no
/// token.
InputRanges measure_input_ranges(const std::string& model, const std::vector<std::vector<int32_t>>& sequences,
                                 Progress& progress);

}  // namespace gristmill::quantize
