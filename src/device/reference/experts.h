#pragma once
#include <cstddef>
#include <cstdint>

#include "device/program.h"
#include "device/reference/matrix.h"

namespace gristmill::device::reference {

/// Floats of working memory of mix_experts().
size_t experts_work(const Moe& moe, int hidden);

/// The Moe of one row: out[hidden] = sum over the chosen experts in rank order. `select_bias` is null or [experts].
void mix_experts(const Moe& moe, const float* x, int hidden, const Matrix& router, const float* select_bias,
                 const Matrix& gate_up, const Matrix& down, float* work, float* out);

}  // namespace gristmill::device::reference
