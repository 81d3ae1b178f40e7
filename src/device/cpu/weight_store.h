#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/compute_team.h"
#include "base/progress.h"
#include "device/cpu/kernels.h"
#include "device/cpu/packed_weight.h"
#include "device/cpu/region.h"
#include "device/cpu/weight_cache.h"
#include "device/program.h"

namespace gristmill::device::cpu {

/// The weights of a Program: matrices as panels, vectors as float32, each source once (a tied embedding serves the
/// embedding and the head). Sizes are known when everything has been asked for; load() allocates and packs, or takes
/// what an earlier start has kept.
class WeightStore {
 public:
  WeightStore(std::shared_ptr<const Program> program, const Kernels& kernels, bool exact);
  ~WeightStore();

  /// References stay valid as long as the store; the data is there after load(). Throws Error for a rank slice.
  const PackedWeight& matrix(WeightRef ref);
  /// Says that two matrices are read in turns, panel by panel (gate and up): where both are new and of one form, their
  /// panels take turns in memory too, so that it is read as one stream.
  void interleave(WeightRef first, WeightRef second);
  /// A norm weight, a bias or another small weight as plain rows. Null until load(), hence by address.
  const float* const& vector(WeightRef ref);
  size_t bytes() const { return layout_.size(); }
  /// When everything has been asked for: looks for these weights on disk. Returns whether load() will use them in
  /// place.
  bool open_cache(const WeightCacheOptions& options);
  /// Once. Weights found on disk are checked: while they are copied, or, used in place, in the background afterwards.
  /// Weights that were packed are kept on disk, in the background too.
  void load(ComputeTeam& team, Progress& progress);
  /// Why the weights in use cannot be trusted; "" while nothing is known against them. Any thread.
  std::string fault() const { return damaged_.load(std::memory_order_acquire) ? fault_ : std::string(); }

 private:
  struct Entry {
    const WeightSource* source = nullptr;
    size_t offset = 0;
    PackedWeight packed;            // of a matrix
    const float* floats = nullptr;  // of a vector
    bool is_matrix = false;
  };
  Entry& find(WeightRef ref, bool is_matrix);
  /// In the order of the layout, which is the order of use.
  std::vector<Entry*> in_order() const;
  std::string cache_key() const;
  bool read_cached(ComputeTeam& team, Progress& progress);
  void check_mapped();
  void pack_all(ComputeTeam& team, Progress& progress);
  void pack(const Entry& entry, ComputeTeam& team, Progress& progress);
  void place();
  void start_background(std::function<void()> work);

  std::shared_ptr<const Program> program_;
  const Kernels& kernels_;
  bool exact_;
  Layout layout_;
  Region region_;
  std::map<std::pair<const WeightSource*, bool>, std::unique_ptr<Entry>> entries_;

  WeightCacheOptions cache_;
  std::unique_ptr<CachedWeights> cached_;
  bool in_place_ = false;
  std::string fault_;
  std::atomic<bool> damaged_{false};
  std::atomic<bool> stop_{false};
  std::thread background_;
};

}  // namespace gristmill::device::cpu
