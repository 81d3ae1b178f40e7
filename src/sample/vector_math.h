#pragma once
#include <cstdint>
#include <span>

namespace gristmill {

/// out[i] = exp((logits[i] - shift) * inverse_temperature); -inf gives exactly 0. Element by element and without fused
/// operations, so the bits are the same on every machine; relative error below 2e-7.
void exp_shifted(std::span<const float> logits, float shift, float inverse_temperature, float* out);

/// Sum in double over 8 interleaved lanes, joined by a fixed tree.
double lane_sum(std::span<const float> values);

/// The largest value; -inf for an empty span. NaN is skipped.
float max_value(std::span<const float> values);

/// Whether any value is NaN.
bool has_nan(std::span<const float> values);

}  // namespace gristmill
