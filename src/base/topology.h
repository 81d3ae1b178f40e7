#pragma once
#include <string>
#include <vector>

namespace gristmill {

/// CPUs that are close to each other: they share a last-level cache and the memory of one NUMA node.
struct CpuDomain {
  int numa_node = 0;
  int cores = 0;          ///< whole ones: several CPUs may be threads of a core
  std::vector<int> cpus;  ///< as the system numbers them
};

/// The CPUs that this process may use. Empty where nobody has asked: taken as one domain.
struct Topology {
  std::vector<CpuDomain> domains;
  bool bind = false;  ///< threads are to stay on the CPUs of their domain

  int cores() const;
  int numa_nodes() const;  ///< at least 1
};

/// Whole cores that the CPU quotas of this process's control groups allow (at least 1), or 0 when none is set. Reads
/// `root`/proc/self/cgroup and the version 1 and 2 hierarchies under `root`/sys/fs/cgroup; `root` is "" but in tests.
int quota_cores(const std::string& root);

/// Cores that this process may use: the topology's, or else the CPUs of the affinity mask; at most the quota's.
int usable_cores(const Topology& topology = {});

}  // namespace gristmill
