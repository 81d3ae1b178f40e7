#include "device/reference/scalar_ops.h"

#include <cmath>

namespace gristmill::device::reference {

void rms_norm(const float* x, int width, const float* weight, float eps, float* out) {
  float squares = 0;
  for (int i = 0; i < width; ++i) squares += x[i] * x[i];
  const float factor = 1.0f / std::sqrt(squares / static_cast<float>(width) + eps);
  for (int i = 0; i < width; ++i) out[i] = weight[i] * (x[i] * factor);
}

void rotate(float* x, int heads, int head_dim, const Rope& rope, int32_t position) {
  const auto pairs = static_cast<int>(rope.inv_freq.size());
  for (int j = 0; j < pairs; ++j) {
    const float angle = static_cast<float>(position) * rope.inv_freq[static_cast<size_t>(j)];
    const float c = std::cos(angle) * rope.magnitude;
    const float s = std::sin(angle) * rope.magnitude;
    for (int head = 0; head < heads; ++head) {
      float& first = x[head * head_dim + j];
      float& second = x[head * head_dim + j + pairs];
      const float a = first, b = second;
      first = a * c - b * s;
      second = b * c + a * s;
    }
  }
}

void silu_mul(float* gate, const float* up, size_t count) {
  for (size_t i = 0; i < count; ++i) gate[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

int32_t argmax(const float* values, int count) {
  int32_t best = 0;
  for (int i = 1; i < count; ++i)
    if (values[i] > values[best]) best = i;
  return best;
}

}  // namespace gristmill::device::reference
