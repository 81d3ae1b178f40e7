#pragma once
#include <cstdint>

#include "device/program.h"

namespace gristmill::device {

/// cos and sin of the angles of one position, times the magnitude: [rope.inv_freq.size()] each. An angle is the product
/// of two float32, as in transformers and vLLM: far out, a more exact one is another number.
void rope_table(const Rope& rope, int32_t position, float* cosines, float* sines);

}  // namespace gristmill::device
