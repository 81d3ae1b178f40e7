#include "engine/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/error.h"

namespace gristmill::engine {

namespace {

constexpr uint64_t fewest_snapshots = 8, most_snapshots = 4096;

/// A budget that leaves `needed` bytes to the blocks when a fifth of it, within the limits above, goes to
/// snapshots of `state` bytes each.
uint64_t with_snapshots(uint64_t needed, uint64_t state) {
  if (state == 0) return needed;
  return std::max(needed + fewest_snapshots * state,
                  std::min(needed + (needed + 3) / 4, needed + most_snapshots * state));
}

/// A cache that was asked for by size and that this machine cannot hold.
std::string beyond_memory(const EngineConfig& config, uint64_t cache, uint64_t block, uint64_t host_limit,
                          uint64_t limit, uint64_t fixed) {
  const uint64_t room = limit > fixed ? limit - fixed : 0;
  if (config.num_blocks_override > 0) {
    return cat("--num-gpu-blocks-override ", config.num_blocks_override, ": that many blocks of ", bytes_text(block),
               " take ", bytes_text(cache), ", and this machine has ", bytes_text(host_limit),
               " of memory. Lower it to ", std::max<uint64_t>(room / block, 1), " or less.");
  }
  return cat("--kv-cache-memory-bytes or VLLM_CPU_KVCACHE_SPACE asks for a KV cache of ", bytes_text(cache),
             ", and this machine has ", bytes_text(host_limit), " of memory. Lower it to ", std::max(room, block),
             " bytes or less.");
}

/// Advice to raise --gpu-memory-utilization, where a value of at most 1 gives `needed` bytes.
std::string utilization_for(uint64_t needed, uint64_t host_limit, double now) {
  const double share = std::ceil(100 * static_cast<double>(needed) / static_cast<double>(host_limit)) / 100;
  if (share > 1) return cat("This takes ", bytes_text(needed), " of memory. ");
  return cat("Raise --gpu-memory-utilization (now ", now, ") to ", share, ". ");
}

}  // namespace

std::string bytes_text(uint64_t bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return text;
}

EngineMemoryPlan plan_memory(const EngineConfig& config, const device::MemoryPlan& parts, uint64_t host_limit,
                             int32_t wanted_len, int32_t trained_len, int32_t max_num_seqs) {
  EngineMemoryPlan plan;
  plan.weights = parts.weights;
  plan.weights_mapped = parts.weights_mapped;
  plan.scratch = parts.scratch;
  plan.limit = static_cast<uint64_t>(static_cast<double>(host_limit) * config.memory_utilization);
  const uint64_t state = parts.bytes_per_state;
  if (state > 0) plan.running_states = max_num_seqs;
  const uint64_t fixed = plan.weights + plan.scratch + static_cast<uint64_t>(plan.running_states) * state;
  const uint64_t block = parts.bytes_per_block;
  const uint64_t size = static_cast<uint64_t>(config.block_size);
  const auto blocks_for = [&](uint64_t tokens) { return (tokens + size - 1) / size; };

  uint64_t cache = config.cache_bytes > 0 ? static_cast<uint64_t>(config.cache_bytes)
                   : plan.limit > fixed   ? plan.limit - fixed
                                          : 0;
  if (config.num_blocks_override > 0) cache = static_cast<uint64_t>(config.num_blocks_override) * block;
  if (cache > host_limit) throw Error(beyond_memory(config, cache, block, host_limit, plan.limit, fixed));
  if (state > 0 && config.prefix_caching) {
    // Snapshots have a budget of their own beside the blocks: a quarter of the cache, within reason.
    const uint64_t share = config.num_blocks_override > 0 ? cache / 4 : cache / 5;
    plan.snapshots = static_cast<int32_t>(std::clamp<uint64_t>(share / state, fewest_snapshots, most_snapshots));
    const uint64_t taken = static_cast<uint64_t>(plan.snapshots) * state;
    if (config.num_blocks_override == 0) cache -= std::min(cache, taken);
  }
  plan.states = static_cast<uint64_t>(plan.running_states + plan.snapshots) * state;
  const uint64_t most = blocks_for(static_cast<uint64_t>(wanted_len > 0 ? wanted_len : trained_len)) *
                        static_cast<uint64_t>(max_num_seqs);
  // More than every sequence at full length is of use to the prefix cache only when asked for.
  const bool asked = config.cache_bytes > 0 || config.num_blocks_override > 0;
  uint64_t blocks = std::min<uint64_t>(cache / block, std::numeric_limits<int32_t>::max() / 2);
  if (!asked) blocks = std::min(blocks, most);

  const uint64_t tokens = blocks * size;
  const uint64_t needed = blocks_for(static_cast<uint64_t>(std::max(wanted_len, 1))) * block;
  const uint64_t needed_budget = with_snapshots(needed, config.prefix_caching ? state : 0);
  if (blocks == 0 && asked) {
    throw Error(cat("No available memory for the cache blocks: one takes ", bytes_text(block),
                    plan.snapshots > 0 ? cat(", beside ", plan.snapshots, " snapshots of recurrent state of ",
                                             bytes_text(state), " each")
                                       : "",
                    ". Raise --kv-cache-memory-bytes or VLLM_CPU_KVCACHE_SPACE (now ",
                    bytes_text(static_cast<uint64_t>(config.cache_bytes)), ") to ", needed_budget, " bytes or more."));
  }
  if (blocks == 0) {
    throw Error(cat("No available memory for the cache blocks: the weights take ", bytes_text(plan.weights),
                    ", scratch takes ", bytes_text(plan.scratch),
                    plan.running_states > 0 ? cat(", recurrent state takes ", bytes_text(plan.states)) : "",
                    ", and this engine may use ", bytes_text(plan.limit), " of ", bytes_text(host_limit), ". ",
                    utilization_for(fixed + needed_budget, host_limit, config.memory_utilization),
                    "Lower --max-num-seqs (now ", max_num_seqs, ") or --max-num-batched-tokens to shrink scratch."));
  }
  if (wanted_len > 0 && tokens < static_cast<uint64_t>(wanted_len)) {
    throw Error(
        cat("To serve at least one request with the model's max seq len (", wanted_len, "), ", bytes_text(needed),
            " KV cache is needed, which is larger than the available KV cache memory (", bytes_text(blocks * block),
            "). Based on the available memory, the estimated maximum model length is ", tokens, ". ",
            config.num_blocks_override > 0
                ? cat("Raise --num-gpu-blocks-override to ", needed / block, ". ")
                : cat(asked ? "" : utilization_for(fixed + needed_budget, host_limit, config.memory_utilization),
                      "Set --kv-cache-memory-bytes to ", needed_budget,
                      plan.snapshots > 0 ? ", snapshots of recurrent state included. " : ". "),
            "Or lower --max-model-len to ", tokens, "."));
  }
  plan.num_blocks = static_cast<int32_t>(blocks);
  plan.cache = blocks * block;
  const int32_t len = wanted_len > 0 ? wanted_len : trained_len;
  plan.max_model_len = static_cast<int32_t>(std::min<uint64_t>(static_cast<uint64_t>(len), tokens));
  return plan;
}

std::string describe(const EngineMemoryPlan& plan, int32_t block_size) {
  return cat("Memory plan: weights ", bytes_text(plan.weights),
             plan.weights_mapped ? " (mapped from the weight cache)" : "", ", scratch ", bytes_text(plan.scratch),
             ", KV cache ", bytes_text(plan.cache), " (", plan.num_blocks, " blocks of ", block_size,
             " tokens, reserved now and committed on use), ",
             plan.states > 0 ? cat("recurrent state ", bytes_text(plan.states), " (", plan.running_states,
                                   " sequences, ", plan.snapshots, " snapshots), ")
                             : "",
             "together ", bytes_text(plan.weights + plan.scratch + plan.cache + plan.states), " of the ",
             bytes_text(plan.limit), " allowed");
}

}  // namespace gristmill::engine
