#include "device/backend.h"

#include "base/compute_team.h"
#include "base/error.h"
#include "device/cpu/executable.h"
#include "device/cpu/isa.h"

namespace gristmill::device {
namespace cpu {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(int threads, ActivationMode mode, const Topology& topology)
      : kernels_(choose_kernels()),
        mode_(mode),
        team_(std::make_shared<ComputeTeam>(threads, topology)),
        domains_(topology.domains.size()),
        nodes_(topology.numa_nodes()) {}

  std::string name() const override { return "cpu"; }
  std::string describe() const override {
    return cat("CPU, ", kernels_.name, " kernels, ", team_->size(), team_->size() == 1 ? " thread" : " threads",
               domains_ > 1 ? cat(" in ", domains_, " domains") : "",
               mode_ == ActivationMode::f32 ? ", float32 weights and activations" : "");
  }
  std::unique_ptr<Executable> compile(std::shared_ptr<const Program> program, const Limits& limits,
                                      const CacheOptions& cache, const WeightCacheOptions& weights) override {
    WeightCacheOptions placed = weights;
    // Pages of a file lie where they were read first, packed ones where the team's members wrote them.
    if (placed.residence == Residence::automatic && nodes_ > 1) placed.residence = Residence::owned;
    return std::make_unique<CpuExecutable>(team_, kernels_, mode_, std::move(program), limits, cache, placed);
  }

 private:
  const Kernels& kernels_;
  ActivationMode mode_;
  std::shared_ptr<ComputeTeam> team_;
  size_t domains_;
  int nodes_;
};

}  // namespace
}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(int threads, ActivationMode mode, const Topology& topology) {
  if (threads < 1) throw Error(cat(threads, " threads: the CPU back end needs at least 1"));
  return std::make_unique<cpu::CpuBackend>(threads, mode, topology);
}

}  // namespace gristmill::device
