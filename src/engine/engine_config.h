#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/topology.h"
#include "device/backend.h"
#include "engine/block_hash.h"
#include "model/load_format.h"
#include "sample/sampling_params.h"

namespace gristmill::engine {

enum class SchedulingPolicy : uint8_t { fcfs, priority };

/// Everything an engine needs to load and run. Validated by config/, immutable afterwards; travels to the engine
/// process. Zero means "choose" where said.
struct EngineConfig {
  std::string model;  ///< path of a GGUF file (its first part, when split)
  model::LoadFormat load_format = model::LoadFormat::automatic;
  std::string hf_overrides;                  ///< JSON object merged into a folder's config.json; empty: none
  std::string device = "cpu";                ///< cpu, or reference (the slow scalar back end)
  bool float32 = false;                      ///< --dtype float32: exact weights, float32 activations
  std::string quantization;                  ///< --quantization (model::BuildOptions)
  std::string float_linears;                 ///< --float-linears (model::BuildOptions)
  std::string weight_cache_dir;              ///< where packed weights are kept between starts; empty: nowhere
  int64_t weight_cache_bytes = 128LL << 30;  ///< of all files in it
  device::Residence weight_residence = device::Residence::automatic;
  int32_t threads = 0;                 ///< 0: usable cores
  Topology topology;                   ///< of the compute threads; empty: one domain
  int32_t max_model_len = 0;           ///< 0: what the model allows, lowered to what the memory allows
  int32_t max_num_seqs = 0;            ///< 0: 128
  int32_t max_num_batched_tokens = 0;  ///< 0: 2048
  int32_t long_prefill_token_threshold = 0;
  int32_t max_num_partial_prefills = 1;   ///< prompts that may be half computed at a time
  int32_t max_long_partial_prefills = 1;  ///< of those, prompts longer than long_prefill_token_threshold
  int32_t mixed_prefill_tokens = 256;     ///< most prompt tokens in a step that also decodes; 0: no limit
  int32_t block_size = 16;
  /// None: float32 with float32 weights, int8 where the checkpoint has scales for it (C8), else bf16.
  std::optional<DType> cache_dtype;
  int64_t cache_bytes = 0;          ///< --kv-cache-memory-bytes; 0: from memory_utilization
  int32_t num_blocks_override = 0;  ///< --num-gpu-blocks-override
  double memory_utilization = 0.9;
  bool prefix_caching = true;
  HashAlgorithm prefix_hash = HashAlgorithm::sha256;
  bool chunked_prefill = true;
  bool async_scheduling = true;
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  LogprobsMode logprobs_mode = LogprobsMode::raw_logprobs;
  int64_t seed = 0;
  double watchdog_seconds = 10;  ///< a step may take this long before the front restarts the engine
  std::string trace_path;        ///< a Chrome trace of the steps is written there; empty: none
};

}  // namespace gristmill::engine
