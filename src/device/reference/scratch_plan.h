#pragma once
#include <cstddef>
#include <vector>

#include "device/backend.h"
#include "device/program.h"

namespace gristmill::device::reference {

/// Where activations and workspaces lie in one piece of scratch memory: byte offsets, each a multiple of 64. Values
/// whose lives do not overlap share room.
struct ScratchPlan {
  std::vector<size_t> values;  ///< per value: [tokens][width]
  size_t normed = 0;           ///< [tokens][widest input of a linear]
  size_t up = 0;               ///< [tokens][widest pair of silu_mul]
  size_t rotated = 0;          ///< one row of queries and keys
  size_t work = 0;             ///< one token of a DeltaNet or a Moe
  size_t scores = 0;           ///< [context]
  size_t head_rows = 0;        ///< [rows][width of the head's input]
  size_t logits = 0;           ///< [rows][vocabulary]
  size_t taps = 0;             ///< [taps][tokens][tap width]
  size_t bytes = 0;
};

ScratchPlan plan_scratch(const Program& program, const Limits& limits);

}  // namespace gristmill::device::reference
