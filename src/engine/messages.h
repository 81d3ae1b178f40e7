#pragma once
// What passes between the front (HTTP, text) and an engine. Plain data: the same structs are used in process and,
// encoded by client/wire, between processes.
#include <cstdint>
#include <string>
#include <vector>

#include "sample/sampler.h"

namespace gristmill::engine {

using RequestId = uint64_t;

struct EngineRequest {
  RequestId id = 0;  ///< unique for the life of the client; chosen by the client
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  int32_t n = 1;                 ///< choices; they share the prompt's blocks
  int32_t priority = 0;          ///< smaller first, under the priority policy
  double arrival = 0;            ///< seconds on CLOCK_MONOTONIC
  std::vector<int32_t> eos_ids;  ///< end of sequence: finish with stop_token -1; ignored under ignore_eos
  std::string cache_salt;        ///< keeps prefix reuse apart
};

enum class FinishReason : uint8_t { none, stop, length, abort, error };

struct OutputToken {
  int32_t token = 0;
  TokenLogprob sampled;           ///< only when logprobs were asked for
  std::vector<TokenLogprob> top;  ///< most likely first
};

/// What one step gave one choice of a request.
struct EngineOutput {
  RequestId id = 0;
  int32_t index = 0;  ///< choice
  std::vector<OutputToken> tokens;
  FinishReason finish = FinishReason::none;
  int32_t stop_token = -1;  ///< the stop_token_id that ended it; -1 for EOS and everything else
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;                 ///< prompt tokens found in the prefix cache at first admission
  std::vector<OutputToken> prompt_logprobs;  ///< once, with the first output; [0] is empty
  std::string error;                         ///< with FinishReason::error
};

/// Counters are totals since the engine started; gauges are of now.
struct EngineStats {
  int32_t running = 0;
  int32_t waiting = 0;
  int32_t total_blocks = 0;
  int32_t free_blocks = 0;
  uint64_t prompt_tokens = 0;
  uint64_t cached_prompt_tokens = 0;
  uint64_t generated_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t prefix_queries = 0;  ///< tokens looked up
  uint64_t prefix_hits = 0;     ///< tokens found
  int32_t state_snapshots = 0;  ///< kept now, of recurrent models
  uint64_t steps = 0;
  double forward_seconds = 0;  ///< inside launch .. wait
  double step_seconds = 0;     ///< whole steps
};

/// What the front needs to know of a loaded model.
struct EngineInfo {
  int32_t max_model_len = 0;
  int32_t vocabulary = 0;
  int32_t max_num_seqs = 0;
  int32_t block_size = 0;
  int32_t num_blocks = 0;
  uint64_t weight_bytes = 0;
  uint64_t cache_bytes = 0;
  uint64_t scratch_bytes = 0;
  double load_seconds = 0;
  std::string device;  ///< e.g. "cpu avx2, 2 threads"
};

}  // namespace gristmill::engine
