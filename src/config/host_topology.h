#pragma once
#include <string>

#include "base/topology.h"
#include "config/environment.h"

namespace gristmill::config {

/// Which CPUs compute, by hwloc, within the process's affinity mask and cpuset: the cores under each last-level cache,
/// or of a NUMA node where such caches serve fewer than four. VLLM_CPU_OMP_THREADS_BIND is honoured: a list of CPUs for
/// the one rank there is, "nobind" (no thread is bound, one domain), or "auto". Throws Error naming the variable. Where
/// hwloc cannot read the machine the result is empty.
///
/// `synthetic` describes a machine in hwloc's notation in place of this one, for tests.
Topology host_topology(const Lookup& lookup, const std::string& synthetic = "");

/// Compute threads where nothing else decides: cores, within the CPU quota, less VLLM_CPU_NUM_OF_RESERVED_CPU; after
/// VLLM_CPU_OMP_THREADS_BIND one for every CPU of its list. At least 1. Throws Error naming the variable.
int default_threads(const Topology& topology, const Lookup& lookup);

}  // namespace gristmill::config
