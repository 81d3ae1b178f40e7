#pragma once
#include <string>

namespace gristmill {

/// Whole cores that the CPU quotas of this process's control groups allow (at least 1), or 0 when none is set. Reads
/// `root`/proc/self/cgroup and the version 1 and 2 hierarchies under `root`/sys/fs/cgroup; `root` is "" but in tests.
int quota_cores(const std::string& root);

/// NUMA nodes that have memory and are online (at least 1), from `root`/sys/devices/system/node/has_memory.
int numa_nodes(const std::string& root);

}  // namespace gristmill
