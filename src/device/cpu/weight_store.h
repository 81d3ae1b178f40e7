#pragma once
#include <map>
#include <memory>
#include <vector>

#include "base/compute_team.h"
#include "base/progress.h"
#include "device/cpu/kernels.h"
#include "device/cpu/packed_weight.h"
#include "device/cpu/region.h"
#include "device/program.h"

namespace gristmill::device::cpu {

/// The weights of a Program: matrices as panels, vectors as float32, each source once (a tied embedding serves the
/// embedding and the head). Sizes are known when everything has been asked for; load() allocates and packs.
class WeightStore {
 public:
  WeightStore(std::shared_ptr<const Program> program, const Kernels& kernels, bool exact);

  /// References stay valid as long as the store; the data is there after load(). Throws Error for a rank slice.
  const PackedWeight& matrix(WeightRef ref);
  /// Says that two matrices are read in turns, panel by panel (gate and up): where both are new and of one form, their
  /// panels take turns in memory too, so that it is read as one stream.
  void interleave(WeightRef first, WeightRef second);
  /// A norm weight, a bias or another small weight as plain rows. Null until load(), hence by address.
  const float* const& vector(WeightRef ref);
  size_t bytes() const { return layout_.size(); }
  void load(ComputeTeam& team, Progress& progress);

 private:
  struct Entry {
    const WeightSource* source = nullptr;
    size_t offset = 0;
    PackedWeight packed;            // of a matrix
    const float* floats = nullptr;  // of a vector
    bool is_matrix = false;
  };
  Entry& find(WeightRef ref, bool is_matrix);
  void pack(const Entry& entry, ComputeTeam& team, Progress& progress);

  std::shared_ptr<const Program> program_;
  const Kernels& kernels_;
  bool exact_;
  Layout layout_;
  Region region_;
  std::map<std::pair<const WeightSource*, bool>, std::unique_ptr<Entry>> entries_;
};

}  // namespace gristmill::device::cpu
