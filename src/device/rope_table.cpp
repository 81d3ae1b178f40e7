#include "device/rope_table.h"

#include <cmath>

namespace gristmill::device {

void rope_table(const Rope& rope, int32_t position, float* cosines, float* sines) {
  for (size_t j = 0; j < rope.inv_freq.size(); ++j) {
    const auto angle = static_cast<double>(static_cast<float>(position) * rope.inv_freq[j]);
    cosines[j] = static_cast<float>(std::cos(angle)) * rope.magnitude;
    sines[j] = static_cast<float>(std::sin(angle)) * rope.magnitude;
  }
}

}  // namespace gristmill::device
