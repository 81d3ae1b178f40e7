#pragma once
#include <vector>

#include "device/program.h"

namespace gristmill::model {

/// How the rotary frequencies of a model were stretched to a longer context.
struct RopeScaling {
  enum class Kind { none, linear, yarn, llama3 };
  Kind kind = Kind::none;
  double factor = 1;                 ///< of the context
  double original_context = 0;       ///< yarn, llama3: before it was stretched
  double magnitude = 1;              ///< yarn: multiplies its own factor of cos and sin
  double beta_fast = 32;             ///< yarn: turns within the original context above which a frequency is kept
  double beta_slow = 1;              ///< yarn: ... below which it is divided by the factor
  double low_frequency_factor = 1;   ///< llama3: waves longer than original_context / this are stretched by the factor
  double high_frequency_factor = 4;  ///< llama3: ... shorter than original_context / this are kept
  std::vector<float> divisors;       ///< of each frequency; empty: none (llama3 scaling as GGUF has it)
};

/// Frequencies base^(-2j/dims) for dims / 2 pairs, after scaling. `dims` is even, `base` above 1.
device::Rope make_rope(int dims, double base, const RopeScaling& scaling);

}  // namespace gristmill::model
