#pragma once
// What passes between the front (HTTP, text) and an engine. Plain data: the same structs are used in process and,
// encoded by client/wire, between processes.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "sample/sampler.h"

namespace gristmill::engine {

using RequestId = uint64_t;

/// In place of a choice's index: all of them.
inline constexpr int32_t every_choice = -1;

struct EngineRequest {
  RequestId id = 0;  ///< unique for the life of the client; chosen by the client
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  int32_t n = 1;                 ///< choices; they share the prompt's blocks
  int32_t priority = 0;          ///< smaller first, under the priority policy
  std::vector<int32_t> eos_ids;  ///< end of sequence: finish with stop_token -1; ignored under ignore_eos
  int32_t known_tokens = 0;      ///< ids from here on are padding of the head and never drawn or reported; 0: none are
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
  bool bad_request = false;                  ///< the error is the request's own fault
  // Seconds on CLOCK_MONOTONIC; 0: not yet.
  double queued = 0;     ///< the engine took the request
  double scheduled = 0;  ///< the choice was first part of a step
  double made = 0;       ///< this output
};

/// Bounds of EngineStats::steps_by_tokens: steps of at most 1, 8, 16, ... tokens, and of more than the last.
inline constexpr std::array<int32_t, 13> step_token_bounds{1,   8,    16,   32,   64,   128,  256,
                                                           512, 1024, 2048, 4096, 8192, 16384};

/// Counters are totals since the engine started; gauges are of now.
struct EngineStats {
  int32_t running = 0;
  int32_t waiting = 0;
  int32_t total_blocks = 0;
  int32_t free_blocks = 0;
  uint64_t prompt_tokens = 0;         ///< computed, each once: recomputation after a preemption does not count
  uint64_t cached_prompt_tokens = 0;  ///< found in the prefix cache at first admission
  uint64_t generated_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t prefix_queries = 0;  ///< tokens looked up
  uint64_t prefix_hits = 0;     ///< tokens found
  uint64_t prefix_block_hits =
      0;                        ///< tokens found in cache blocks; of recurrent models more than a state allows to use
  int32_t state_snapshots = 0;  ///< kept now, of recurrent models
  uint64_t steps = 0;
  uint64_t step_tokens = 0;                                              ///< of all steps
  std::array<uint64_t, step_token_bounds.size() + 1> steps_by_tokens{};  ///< step_token_bounds
  double forward_seconds = 0;                                            ///< inside launch .. wait
  double step_seconds = 0;                                               ///< whole steps
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
  DType cache_dtype = DType::bf16;
};

}  // namespace gristmill::engine
