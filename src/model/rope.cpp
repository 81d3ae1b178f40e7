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

/// The float32 arithmetic of transformers' modeling_rope_utils, step by step: at position 60,000 the last bit of a
/// frequency is an angle of a few thousandths.
float scaled_frequency(float power, int pair, const RopeScaling& scaling, float low, float high) {
  const auto factor = static_cast<float>(scaling.factor);
  const float frequency = 1.0f / power;
  switch (scaling.kind) {
    case RopeScaling::Kind::linear:
      return frequency / factor;
    case RopeScaling::Kind::yarn: {
      const float kept = 1.0f - std::clamp((static_cast<float>(pair) - low) / (high - low), 0.0f, 1.0f);
      return 1.0f / (factor * power) * (1.0f - kept) + frequency * kept;
    }
    case RopeScaling::Kind::llama3: {
      // Llama 3.1: between the two wave lengths, kept and stretched frequencies are mixed.
      const float wave = static_cast<float>(2 * std::numbers::pi) / frequency;
      const double context = scaling.original_context;
      if (static_cast<double>(wave) < context / scaling.high_frequency_factor) return frequency;
      if (static_cast<double>(wave) > context / scaling.low_frequency_factor) return frequency / factor;
      const auto low_factor = static_cast<float>(scaling.low_frequency_factor);
      const float kept = (static_cast<float>(context) / wave - low_factor) /
                         static_cast<float>(scaling.high_frequency_factor - scaling.low_frequency_factor);
      return (1.0f - kept) * frequency / factor + kept * frequency;
    }
    default:
      return frequency;
  }
}

}  // namespace

device::Rope make_rope(int dims, double base, const RopeScaling& scaling) {
  device::Rope rope;
  double low = 0, high = 1;
  if (scaling.kind == RopeScaling::Kind::yarn) {
    low = std::max(std::floor(pair_of_turns(scaling.beta_fast, dims, base, scaling.original_context)), 0.0);
    high = std::min(std::ceil(pair_of_turns(scaling.beta_slow, dims, base, scaling.original_context)), dims - 1.0);
    if (high <= low) high = low + 0.001;
    // Equations 22 and 23 of the paper: attention's temperature as a factor of both cos and sin.
    if (scaling.factor > 1)
      rope.magnitude = static_cast<float>(scaling.magnitude * (0.1 * std::log(scaling.factor) + 1));
  }
  for (int j = 0; j < dims / 2; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(dims);
    const auto power =
        static_cast<float>(std::pow(static_cast<double>(static_cast<float>(base)), static_cast<double>(exponent)));
    float frequency = scaled_frequency(power, j, scaling, static_cast<float>(low), static_cast<float>(high));
    if (!scaling.divisors.empty()) frequency /= scaling.divisors[static_cast<size_t>(j)];
    rope.inv_freq.push_back(frequency);
  }
  return rope;
}

}  // namespace gristmill::model
