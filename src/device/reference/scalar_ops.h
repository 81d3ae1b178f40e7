#pragma once
#include <cstddef>
#include <cstdint>

#include "device/program.h"

namespace gristmill::device::reference {

// The ops' definitions, one row at a time, in float32 with sums in ascending order.

/// out = weight * (x / sqrt(mean(x^2) + eps))
void rms_norm(const float* x, int width, const float* weight, float eps, float* out);

/// Rotates the leading pairs (j, j + n/2) of each of `heads` heads in place.
void rotate(float* x, int heads, int head_dim, const Rope& rope, int32_t position);

/// gate = silu(gate) * up
void silu_mul(float* gate, const float* up, size_t count);

/// The lowest index among equal maxima.
int32_t argmax(const float* values, int count);

}  // namespace gristmill::device::reference
