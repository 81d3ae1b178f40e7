#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/progress.h"
#include "device/backend.h"
#include "engine/engine_config.h"
#include "engine/memory_plan.h"
#include "engine/messages.h"
#include "engine/scheduler.h"
#include "engine/step_trace.h"
#include "sample/sampler.h"

namespace gristmill::engine {

/// A loaded model and everything that runs on it. One thread calls it; EngineLoop is that thread.
///
/// A step is four verbs: plan (which tokens), bind (their ids, positions and blocks), launch, commit (next tokens,
/// ends). With async scheduling the next step is planned while this one runs; outputs are the same either way, because
/// every row of the executable depends on its own sequence only.
class Engine {
 public:
  /// Loads the model: reads the file, plans memory, packs weights. Throws Error.
  Engine(const EngineConfig& config, Progress& progress);
  /// For tests: a program and a back end made elsewhere.
  Engine(const EngineConfig& config, std::shared_ptr<const device::Program> program, int32_t trained_len,
         device::Backend& backend, Progress& progress);
  ~Engine();

  const EngineInfo& info() const { return info_; }
  EngineStats stats() const;

  /// Queues a request; what is wrong with it comes back as an output with FinishReason::error.
  void add(EngineRequest request);
  /// Ends one choice of a request, or every_choice, with FinishReason::abort.
  void abort(RequestId id, int32_t choice = every_choice);
  /// False while a request is open: its blocks could not be dropped.
  bool reset_prefix_cache();
  bool idle() const;
  /// device::Executable::fault().
  std::string fault() const { return executable_->fault(); }

  /// Runs one step if there is work. Outputs, also those of add() and abort(), are appended to `outputs`.
  void step(std::vector<EngineOutput>& outputs);

 private:
  struct Loaded;
  Engine(const EngineConfig& config, Loaded loaded, Progress& progress);
  void bind(const StepPlan& plan);
  void commit(const StepPlan& plan, const device::StepResult& result);
  void commit_prompt_logprobs(const PlanEntry& entry, int32_t rows, const device::StepResult& result, size_t row);
  void append_token(Sequence& sequence, const PlanEntry& entry, const device::StepResult& result, size_t row);
  void emit_error(Sequence& sequence, const std::string& why, bool bad_request);
  void emit(Sequence& sequence, OutputToken* token, FinishReason finish, int32_t stop_token);
  void settle_aborts(const StepPlan& pending);
  void count_step(const StepPlan& plan);
  void fail_step(const StepPlan& plan, const std::string& why);

  EngineConfig config_;
  std::shared_ptr<const device::Program> program_;
  std::unique_ptr<device::Backend> backend_;
  std::unique_ptr<device::Executable> executable_;
  EngineInfo info_;
  std::unique_ptr<KvCacheManager> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  Sampler sampler_;
  StepTrace trace_;
  EngineStats stats_;
  StepPlan next_;  ///< planned while the last step ran
  std::vector<std::pair<RequestId, int32_t>> aborting_;
  std::vector<EngineOutput> outputs_;

  // The inputs of the step in flight.
  std::vector<int32_t> ids_;
  std::vector<int32_t> block_tables_;
  std::vector<device::SequenceStep> sequences_;
  std::vector<int32_t> logit_rows_;
  std::vector<uint8_t> want_logits_;
};

}  // namespace gristmill::engine
