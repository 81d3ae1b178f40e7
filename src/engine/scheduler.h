#pragma once
#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "engine/engine_config.h"
#include "engine/kv_cache_manager.h"
#include "engine/sequence.h"

namespace gristmill::engine {

/// One sequence's share of a step: tokens [first, first + count) of it.
struct PlanEntry {
  Sequence* sequence = nullptr;
  int32_t first = 0;
  int32_t count = 0;
  bool samples = false;   ///< its last row gives the next token
  bool snapshot = false;  ///< its state is kept afterwards
  int32_t state = -1;     ///< slot of its recurrent state
};

/// What one step does. Made by Scheduler::plan() before the tokens of the step in flight are known.
struct StepPlan {
  std::vector<PlanEntry> entries;
  int32_t tokens = 0;
  bool empty() const { return entries.empty(); }
};

struct SchedulerLimits {
  int32_t max_model_len = 0;
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
  int32_t long_prefill_token_threshold = 0;  ///< most tokens of one sequence in a step; 0: no limit
  int32_t max_num_partial_prefills = 1;      ///< prompts that may be half computed at a time
  int32_t max_long_partial_prefills = 1;     ///< of those, prompts longer than long_prefill_token_threshold
  int32_t mixed_prefill_tokens = 0;          ///< most prompt tokens in a step that also decodes; 0: no limit
  int32_t prompt_logprob_tokens = 32;        ///< most rows of one step that report prompt log-probabilities
  bool chunked_prefill = true;
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
};

/// Decides which tokens each step computes, in vLLM V1's way: no prefill and decode phases, one token budget, running
/// sequences first, then waiting ones, preemption by recompute when blocks run out. Not thread safe: the engine's
/// thread.
///
/// A plan may be made while the one before it runs. Sequence::computed and in_flight count what is planned, commit()
/// and drop() settle it.
class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits, KvCacheManager& cache) : limits_(limits), cache_(cache) {}

  /// Queues the choices of a request. Its prompt must be shorter than max_model_len.
  void add(const std::shared_ptr<const EngineRequest>& request, uint64_t engine_seed);
  /// The choices of a request that are not finished; empty for an unknown id.
  std::vector<Sequence*> choices(RequestId id);

  StepPlan plan();
  /// Takes entries of finished sequences out of a plan that has not run.
  void prune(StepPlan& plan);
  /// An entry has run; `token` is its next token when it samples. Naming of blocks follows what is known now.
  void commit(const PlanEntry& entry, const int32_t* token);
  /// Ends a sequence and frees its blocks. It stays valid until forget_finished().
  void finish(Sequence& sequence);
  /// Takes back a plan that will not run.
  void withdraw(const StepPlan& plan);
  /// All running sequences start over (after a failed step, when cache contents are unknown).
  void recompute_all();
  /// Frees finished requests that no plan holds.
  void forget_finished();

  bool idle() const { return running_.empty() && waiting_.empty(); }
  int32_t running() const { return static_cast<int32_t>(running_.size()); }
  int32_t waiting() const { return static_cast<int32_t>(waiting_.size()); }
  uint64_t preemptions() const { return preemptions_; }

 private:
  struct Sooner {
    bool by_priority;
    bool operator()(const Sequence* a, const Sequence* b) const {
      if (by_priority && a->request->priority != b->request->priority)
        return a->request->priority < b->request->priority;
      return a->order < b->order;
    }
  };
  struct Budget {
    int32_t tokens = 0;
    int32_t prefill = 0;
    int32_t logprob_rows = 0;
  };
  int32_t share_of(Sequence& sequence, const Budget& budget) const;
  bool will_end(const Sequence& sequence) const;
  bool may_be_partial(Sequence& sequence, int32_t count, const Budget& budget) const;
  void plan_running(StepPlan& plan, Budget& budget, bool& preempted);
  void admit_waiting(StepPlan& plan, Budget& budget);
  void add_entry(StepPlan& plan, Budget& budget, Sequence& sequence, int32_t count);
  Sequence& pick_victim() const;
  void preempt(Sequence& victim, StepPlan& plan, Budget& budget);

  SchedulerLimits limits_;
  KvCacheManager& cache_;
  std::vector<Sequence*> running_;
  std::set<Sequence*, Sooner> waiting_{Sooner{limits_.policy == SchedulingPolicy::priority}};
  std::unordered_map<RequestId, std::vector<std::unique_ptr<Sequence>>> requests_;
  std::vector<RequestId> to_forget_;
  uint64_t next_order_ = 0;
  uint64_t preemptions_ = 0;
};

}  // namespace gristmill::engine
