#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gristmill::model {
namespace {

/// YaRN (Peng et al. 2023, "NTK-by-parts"): the pair whose wave makes `turns` turns within the original context.
double pair_of_turns(double turns, int dims, double base, double context) {
  return dims * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
}

}  // namespace

device::Rope make_rope(int dims, double base, const RopeScaling& scaling) {
  device::Rope rope;
  const bool yarn = scaling.kind == RopeScaling::Kind::yarn;
  double low = 0, high = 0;
  if (yarn) {
    low = std::max(std::floor(pair_of_turns(scaling.beta_fast, dims, base, scaling.original_context)), 0.0);
    high = std::min(std::ceil(pair_of_turns(scaling.beta_slow, dims, base, scaling.original_context)), dims - 1.0);
    // Equations 22 and 23 of the paper: attention's temperature as a factor of both cos and sin.
    if (scaling.factor > 1)
      rope.magnitude = static_cast<float>(scaling.magnitude * (0.1 * std::log(scaling.factor) + 1));
  }
  for (int j = 0; j < dims / 2; ++j) {
    double frequency = std::pow(base, -2.0 * j / dims);
    if (scaling.kind == RopeScaling::Kind::linear) frequency /= scaling.factor;
    if (yarn) {
      const double stretched = std::clamp((j - low) / std::max(high - low, 0.001), 0.0, 1.0);
      frequency *= (1 - stretched) + stretched / scaling.factor;
    }
    if (scaling.kind == RopeScaling::Kind::llama3) {
      // Llama 3.1: between the two wave lengths, kept and stretched frequencies are mixed.
      const double turns = scaling.original_context * frequency / (2 * std::numbers::pi);
      const double kept = std::clamp(
          (turns - scaling.low_frequency_factor) / (scaling.high_frequency_factor - scaling.low_frequency_factor), 0.0,
          1.0);
      frequency *= (1 - kept) / scaling.factor + kept;
    }
    if (!scaling.divisors.empty()) frequency /= static_cast<double>(scaling.divisors[static_cast<size_t>(j)]);
    rope.inv_freq.push_back(static_cast<float>(frequency));
  }
  return rope;
}

}  // namespace gristmill::model
