#pragma once
#include <cstdint>
#include <string>

#include "device/backend.h"
#include "engine/engine_config.h"

namespace gristmill::engine {

/// Where the memory of an engine goes, settled before anything is allocated.
struct EngineMemoryPlan {
  uint64_t limit = 0;  ///< what this engine may use
  uint64_t weights = 0;
  bool weights_mapped = false;  ///< file pages, shared with other processes; they are needed all the same
  uint64_t scratch = 0;
  uint64_t cache = 0;          ///< num_blocks * bytes per block; reserved, committed on use
  uint64_t states = 0;         ///< recurrent state: a slot per sequence that may run, and the snapshots
  int32_t running_states = 0;  ///< 0 for models without recurrent state
  int32_t snapshots = 0;
  int32_t num_blocks = 0;
  int32_t max_model_len = 0;
};

/// Divides the memory. `wanted_len` is the user's --max-model-len or 0, `trained_len` the model's. Throws Error naming
/// the flags, with values that fit, when one sequence of that length cannot be held.
EngineMemoryPlan plan_memory(const EngineConfig& config, const device::MemoryPlan& parts, uint64_t host_limit,
                             int32_t wanted_len, int32_t trained_len, int32_t max_num_seqs);

/// The plan as lines of a table.
std::string describe(const EngineMemoryPlan& plan, int32_t block_size);

/// 1 536 -> "1.50 KiB"
std::string bytes_text(uint64_t bytes);

}  // namespace gristmill::engine
