#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "device/program.h"

namespace gristmill::device::reference {

// The ops' definitions, one row at a time, in float32 with sums in ascending order.

inline float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}
inline float silu(float x) {
  return x / (1.0f + std::exp(-x));
}

/// out = weight * (x / sqrt(mean(x^2) + eps)); out may be x.
void rms_norm(const float* x, int width, const float* weight, float eps, float* out);

/// A norm of `weight_width` elements on each part of that width of a row, in place (queries and keys: one part per
/// head, or the whole row).
void norm_parts(float* x, int width, const float* weight, int weight_width, float eps);

/// Rotates the leading pairs (j, j + n/2) of each of `heads` heads in place.
void rotate(float* x, int heads, int head_dim, const Rope& rope, int32_t position);

/// gate = silu(gate) * up
void silu_mul(float* gate, const float* up, size_t count);

/// out = x * sigmoid(gate); a gate of width 1 scales the whole row.
void apply_gate(const float* x, int width, const float* gate, int gate_width, float* out);

/// Chooses a row's experts: `logits` [experts] become its scores, `chosen` and `weights` [top_k] are in rank order.
/// `select_bias` is null or [experts].
void route(const Moe& moe, const float* select_bias, float* logits, int32_t* chosen, float* weights);

/// Of `count` elements, at least one.
ValueRange range_of(const float* x, size_t count);

/// The lowest index among equal maxima.
int32_t argmax(const float* values, int count);

}  // namespace gristmill::device::reference
