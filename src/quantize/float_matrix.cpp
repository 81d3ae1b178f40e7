#include "quantize/float_matrix.h"

#include <algorithm>

namespace gristmill::quantize {

void in_parallel(ComputeTeam& team, int64_t total, const std::function<void(int64_t, int64_t)>& work) {
  struct Job {
    const std::function<void(int64_t, int64_t)>& work;
    int64_t total, per_item;
  };
  Job job{work, total, std::max<int64_t>(1, total / (8 * team.size()))};
  const auto run = [](void* context, uint32_t item, uint32_t) {
    const Job& self = *static_cast<const Job*>(context);
    const int64_t first = item * self.per_item;
    self.work(first, std::min(self.per_item, self.total - first));
  };
  const Phase phase{run, &job, static_cast<uint32_t>((total + job.per_item - 1) / job.per_item)};
  team.run({&phase, 1});
}

}  // namespace gristmill::quantize
