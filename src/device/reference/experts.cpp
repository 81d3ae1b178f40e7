#include "device/reference/experts.h"

#include <algorithm>

#include "device/reference/scalar_ops.h"

namespace gristmill::device::reference {

size_t experts_work(const Moe& moe, int hidden) {
  return static_cast<size_t>(moe.experts) + 2 * static_cast<size_t>(moe.top_k) + 2 * static_cast<size_t>(moe.width) +
         static_cast<size_t>(hidden) + 2 * kLanes;
}

void mix_experts(const Moe& moe, const float* x, int hidden, const Matrix& router, const float* select_bias,
                 const Matrix& gate_up, const Matrix& down, float* work, float* out) {
  float* const scores = work;
  float* const weights = scores + moe.experts;
  auto* const chosen = reinterpret_cast<int32_t*>(weights + moe.top_k);
  float* const inner = weights + 2 * moe.top_k;
  float* const result = inner + 2 * moe.width + kLanes;
  multiply(x, 1, router, nullptr, scores);
  route(moe, select_bias, scores, chosen, weights);
  std::fill_n(out, hidden, 0.0f);
  for (int rank = 0; rank < moe.top_k; ++rank) {
    const int64_t expert = chosen[rank];
    const MatrixRows pair(gate_up, expert * 2 * moe.width, 2 * moe.width);
    multiply(x, 1, pair.part, nullptr, inner);
    float* const gate = inner + pair.skip;
    silu_mul(gate, gate + moe.width, static_cast<size_t>(moe.width));
    const MatrixRows last(down, expert * hidden, hidden);
    multiply(gate, 1, last.part, nullptr, result);
    for (int i = 0; i < hidden; ++i) out[i] += weights[rank] * result[last.skip + i];
  }
}

}  // namespace gristmill::device::reference
