#include "device/reference/scalar_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "device/rope_table.h"

namespace gristmill::device::reference {

void rms_norm(const float* x, int width, const float* weight, float eps, float* out) {
  float squares = 0;
  for (int i = 0; i < width; ++i) squares += x[i] * x[i];
  const float factor = 1.0f / std::sqrt(squares / static_cast<float>(width) + eps);
  for (int i = 0; i < width; ++i) out[i] = weight[i] * (x[i] * factor);
}

void norm_parts(float* x, int width, const float* weight, int weight_width, float eps) {
  for (int first = 0; first < width; first += weight_width) rms_norm(x + first, weight_width, weight, eps, x + first);
}

void rotate(float* x, int heads, int head_dim, const Rope& rope, int32_t position) {
  const auto pairs = static_cast<int>(rope.inv_freq.size());
  std::vector<float> cosines(rope.inv_freq.size()), sines(rope.inv_freq.size());
  rope_table(rope, position, cosines.data(), sines.data());
  for (int j = 0; j < pairs; ++j) {
    const float c = cosines[static_cast<size_t>(j)], s = sines[static_cast<size_t>(j)];
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
  for (size_t i = 0; i < count; ++i) gate[i] = silu(gate[i]) * up[i];
}

void apply_gate(const float* x, int width, const float* gate, int gate_width, float* out) {
  if (gate_width == 1) {
    const float factor = sigmoid(gate[0]);
    for (int i = 0; i < width; ++i) out[i] = x[i] * factor;
    return;
  }
  for (int i = 0; i < width; ++i) out[i] = x[i] * sigmoid(gate[i]);
}

void route(const Moe& moe, const float* select_bias, float* logits, int32_t* chosen, float* weights) {
  if (moe.sigmoid) {
    for (int e = 0; e < moe.experts; ++e) logits[e] = sigmoid(logits[e]);
  } else {
    const float highest = *std::max_element(logits, logits + moe.experts);
    float sum = 0;
    for (int e = 0; e < moe.experts; ++e) {
      logits[e] = std::exp(logits[e] - highest);
      sum += logits[e];
    }
    for (int e = 0; e < moe.experts; ++e) logits[e] /= sum;
  }
  const auto rank = [&](int32_t e) { return select_bias == nullptr ? logits[e] : logits[e] + select_bias[e]; };
  // The best so far, kept in order; few are chosen of many. An expert goes before those that it truly exceeds only.
  int found = 0;
  for (int32_t e = 0; e < moe.experts; ++e) {
    const float mine = rank(e);
    int at = found;
    while (at > 0 && mine > rank(chosen[at - 1])) --at;
    if (at == moe.top_k) continue;
    if (found < moe.top_k) ++found;
    for (int later = found - 1; later > at; --later) chosen[later] = chosen[later - 1];
    chosen[at] = e;
  }
  float sum = 0;
  for (int r = 0; r < moe.top_k; ++r) {
    weights[r] = logits[chosen[r]];
    sum += weights[r];
  }
  for (int r = 0; r < moe.top_k; ++r) weights[r] = (moe.renormalize ? weights[r] / sum : weights[r]) * moe.scale;
}

ValueRange range_of(const float* x, size_t count) {
  ValueRange range{x[0], x[0]};
  bool finite = true;
  for (size_t i = 0; i < count; ++i) {
    finite = finite && std::isfinite(x[i]);
    range.low = std::min(range.low, x[i]);
    range.high = std::max(range.high, x[i]);
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return finite ? range : ValueRange{-kInfinity, kInfinity};
}

int32_t argmax(const float* values, int count) {
  int32_t best = 0;
  for (int i = 1; i < count; ++i)
    if (values[i] > values[best]) best = i;
  return best;
}

}  // namespace gristmill::device::reference
