#pragma once
#include <memory>
#include <vector>

#include "device/backend.h"
#include "device/cpu/attention_stages.h"
#include "device/cpu/delta_net_stages.h"
#include "device/cpu/linear_stages.h"
#include "device/cpu/region.h"
#include "device/cpu/row_stages.h"
#include "device/cpu/weight_store.h"

namespace gristmill::device::cpu {

/// A Program as stages, with every buffer laid out.
struct Lowered {
  std::vector<std::unique_ptr<Stage>> stages;
  std::vector<std::unique_ptr<AttentionWork>> works;
  std::vector<LayerCache> caches;
  size_t bytes_per_block = 0;
  std::vector<LayerState> states;
  size_t bytes_per_state = 0;
  Layout scratch;
  size_t member_offset = 0, member_bytes = 0;
  const HeadStage* head = nullptr;
  size_t argmax = 0;           ///< int32 [limits.rows]
  std::vector<size_t> taps;    ///< float [limits.tokens][tap_width] each
  std::vector<size_t> ranges;  ///< ValueRange [limits.tokens] each
};

/// Throws Error for what the CPU back end cannot run.
Lowered lower(const Program& program, const Limits& limits, const CacheOptions& cache, const Kernels& kernels,
              WeightStore& weights, int members);

}  // namespace gristmill::device::cpu
