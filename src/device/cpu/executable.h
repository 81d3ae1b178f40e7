#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/compute_team.h"
#include "device/backend.h"
#include "device/cpu/lowering.h"

namespace gristmill::device::cpu {

class CpuExecutable final : public Executable {
 public:
  CpuExecutable(std::shared_ptr<ComputeTeam> team, const Kernels& kernels, ActivationMode mode,
                std::shared_ptr<const Program> program, const Limits& limits, const CacheOptions& cache,
                const WeightCacheOptions& weights = {});
  ~CpuExecutable() override;

  const MemoryPlan& memory() const override { return plan_; }
  void bind(const BindOptions& options) override;
  Ticket launch(const StepShape& shape, const StepInputs& inputs) override;
  const StepResult& wait(Ticket ticket) override;
  std::string fault() const override { return weights_.fault(); }
  void copy_states(std::span<const std::pair<int32_t, int32_t>> pairs) override;

  /// A matrix as it lies in memory after bind(); for tests of what a step reads.
  const PackedWeight& packed(WeightRef ref) { return weights_.matrix(ref); }

 private:
  /// What is wrong with the inputs of a step, or "".
  std::string fault_of(const StepInputs& inputs) const;
  std::string fault_of(const SequenceStep& sequence, int32_t first_row) const;
  std::string fault_of_states(const StepInputs& inputs) const;
  void fill_frame(const StepInputs& inputs);
  void fill_result();

  std::shared_ptr<ComputeTeam> team_;
  std::shared_ptr<const Program> program_;
  Limits limits_;
  int block_size_;
  WeightStore weights_;
  Lowered lowered_;
  MemoryPlan plan_;
  Region scratch_, cache_, states_;
  Frame frame_;
  std::vector<Phase> phases_;
  std::vector<std::pair<const Frame*, const Stage*>> contexts_;
  uint64_t ticket_ = 0;
  bool in_flight_ = false;
  std::string fault_;
  StepResult result_;
  std::vector<const float*> logits_;
};

}  // namespace gristmill::device::cpu
