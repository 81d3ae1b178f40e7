#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/block_hash.h"
#include "engine/messages.h"
#include "sample/sampler.h"

namespace gristmill::engine {

enum class SequenceState : uint8_t { waiting, running, finished };

/// One choice of a request on its way through the engine. Owned by the Scheduler; touched by the engine thread only.
struct Sequence {
  std::shared_ptr<const EngineRequest> request;
  int32_t choice = 0;
  uint64_t seed = 0;
  uint64_t order = 0;  ///< of arrival, over all sequences

  std::vector<int32_t> tokens;    ///< prompt, then output
  std::vector<int32_t> stop_ids;  ///< EOS (unless ignored) and stop_token_ids
  TokenCounts counts;             ///< kept only when a penalty is on

  SequenceState state = SequenceState::waiting;
  int32_t computed = 0;               ///< tokens whose K/V is in the cache once the planned steps have run
  int32_t in_flight = 0;              ///< tokens that planned steps will append and that are not known yet (at most 2)
  std::vector<int32_t> blocks;        ///< block table
  std::vector<BlockHash> hashes;      ///< of the first full blocks, as far as they were asked for
  size_t named_blocks = 0;            ///< so many of the block table's first blocks are known to the prefix cache
  int32_t state_slot = -1;            ///< of recurrent models, while it runs
  int32_t restore_from = -1;          ///< snapshot to copy into it before its first step
  int32_t branch_point = 0;           ///< where its prompt leaves a prefix whose blocks are cached without a snapshot
  std::vector<int32_t> message_ends;  ///< the last positions of the prompt where a message ended
  int32_t cached_tokens = -1;         ///< prompt tokens found in the prefix cache at first admission
  int32_t found_tokens = 0;    ///< tokens whose blocks the last lookup found, with or without a state behind them
  int32_t prompt_counted = 0;  ///< prompt tokens that statistics have counted as computed or cached
  double queued = 0;           ///< seconds on CLOCK_MONOTONIC
  double scheduled = 0;        ///< the same, of its first step
  bool abort_wanted = false;
  int32_t planned = 0;  ///< plans, running or waiting to run, that hold this sequence
  std::vector<OutputToken> prompt_logprobs;

  int32_t prompt_size() const { return static_cast<int32_t>(request->prompt.size()); }
  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  int32_t output_size() const { return size() - prompt_size(); }
  /// Whether prompt rows that are computed now report log-probabilities (not when computed again after a preemption).
  bool reports_prompt() const { return request->sampling.prompt_logprobs >= 0 && output_size() == 0; }
  std::span<const int32_t> output() const { return std::span(tokens).subspan(request->prompt.size()); }
  SampleContext sample_context() const {
    const SamplingParams& p = request->sampling;
    const bool counted = p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f;
    return {&p, seed, static_cast<uint32_t>(choice), output(), stop_ids, counted ? &counts : nullptr};
  }
};

}  // namespace gristmill::engine
