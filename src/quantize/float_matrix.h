#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "base/compute_team.h"

namespace gristmill::quantize {

/// A matrix of float32 in memory, rows x columns; a vector has one row.
struct FloatMatrix {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<float> values;

  float* row(int64_t index) { return values.data() + index * columns; }
  const float* row(int64_t index) const { return values.data() + index * columns; }
};

/// Calls work(first, count) for ranges that cover [0, total), on all members of the team. `work` must not throw.
void in_parallel(ComputeTeam& team, int64_t total, const std::function<void(int64_t, int64_t)>& work);

}  // namespace gristmill::quantize
