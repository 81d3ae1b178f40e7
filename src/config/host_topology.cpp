#include "config/host_topology.h"

#include <hwloc.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.h"
#include "config/human_number.h"

namespace gristmill::config {
namespace {

constexpr const char* kBind = "VLLM_CPU_OMP_THREADS_BIND";
constexpr const char* kReserved = "VLLM_CPU_NUM_OF_RESERVED_CPU";
// Threads that are bound to fewer cores than this cannot be moved away from neighbours.
constexpr int kSmallestDomain = 4;

struct Free {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Machine = std::unique_ptr<hwloc_topology, Free>;
using Bitmap = std::unique_ptr<hwloc_bitmap_s, Free>;

/// Null where hwloc cannot read it. Only what is asked for below is looked up: this is on the way of every start.
Machine load(const std::string& synthetic) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Machine machine(raw);
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_CORE, HWLOC_OBJ_L3CACHE})
    hwloc_topology_set_type_filter(raw, type, HWLOC_TYPE_FILTER_KEEP_ALL);
  // What holds a NUMA node where no cache has its CPUs.
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  // The kernel knows what asking every CPU in turn would tell.
  hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  if (!synthetic.empty() && hwloc_topology_set_synthetic(raw, synthetic.c_str()) != 0)
    throw Error(cat("\"", synthetic, "\" is no synthetic topology"));
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return machine;
}

/// What this process may use.
Bitmap usable(hwloc_topology* machine) {
  Bitmap cpus(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(machine)));
  const Bitmap mask(hwloc_bitmap_alloc());
  if (hwloc_topology_is_thissystem(machine) != 0 && hwloc_get_cpubind(machine, mask.get(), HWLOC_CPUBIND_THREAD) == 0)
    hwloc_bitmap_and(cpus.get(), cpus.get(), mask.get());
  return cpus;
}

[[noreturn]] void bad_list(const std::string& value) {
  throw Error(cat(kBind, " must be auto, nobind or a list of CPUs as 0-7,16, got \"", value, "\""));
}

/// "0-3,8" -> 0 1 2 3 8. Within `usable`.
std::set<int> listed(const std::string& value, const hwloc_bitmap_s* usable) {
  std::set<int> cpus;
  std::string_view rest = value;
  while (true) {
    const std::string_view part = rest.substr(0, rest.find(','));
    int first = 0, last = 0;
    auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), first);
    last = first;
    if (error == std::errc() && end != part.data() + part.size()) {
      if (*end != '-') bad_list(value);
      const auto second = std::from_chars(end + 1, part.data() + part.size(), last);
      end = second.ptr;
      error = second.ec;
    }
    if (error != std::errc() || end != part.data() + part.size() || first < 0 || last < first) bad_list(value);
    for (int cpu = first; cpu <= last; ++cpu) {
      if (hwloc_bitmap_isset(usable, static_cast<unsigned>(cpu)) == 0)
        throw Error(cat(kBind, "=", value, ": CPU ", cpu, " is not among those that this process may use"));
      cpus.insert(cpu);
    }
    if (part.size() == rest.size()) return cpus;
    rest.remove_prefix(part.size() + 1);
  }
}

/// The value, or empty for "auto".
std::string binding(const Lookup& lookup) {
  const std::string value = lookup(kBind).value_or("");
  return value == "auto" ? "" : value;
}

}  // namespace

Topology host_topology(const Lookup& lookup, const std::string& synthetic) {
  const std::string bind = binding(lookup);
  if (bind.find('|') != std::string::npos)
    throw Error(cat(kBind, "=", bind, ": there is one rank; name its CPUs without \"|\""));
  const Machine machine = load(synthetic);
  if (machine == nullptr) return {};
  const Bitmap all = usable(machine.get());
  std::optional<std::set<int>> chosen;
  if (!bind.empty() && bind != "nobind") chosen = listed(bind, all.get());

  // Cores by NUMA node and the cache above them.
  std::map<int, std::map<int, CpuDomain>> nodes;
  for (hwloc_obj_t core = nullptr;
       (core = hwloc_get_next_obj_by_type(machine.get(), HWLOC_OBJ_CORE, core)) != nullptr;) {
    std::vector<int> cpus;
    for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0; cpu = hwloc_bitmap_next(core->cpuset, cpu))
      if (hwloc_bitmap_isset(all.get(), static_cast<unsigned>(cpu)) != 0 && (!chosen || chosen->contains(cpu)))
        cpus.push_back(cpu);
    if (cpus.empty()) continue;
    const hwloc_obj_t cache = hwloc_get_ancestor_obj_by_type(machine.get(), HWLOC_OBJ_L3CACHE, core);
    const int node = std::max(0, hwloc_bitmap_first(core->nodeset));
    CpuDomain& domain = nodes[node][cache == nullptr ? -1 : static_cast<int>(cache->logical_index)];
    domain.numa_node = node;
    domain.cores += chosen ? static_cast<int>(cpus.size()) : 1;
    domain.cpus.insert(domain.cpus.end(), cpus.begin(), cpus.end());
  }
  Topology topology;
  for (const auto& [node, caches] : nodes) {
    const bool small = std::any_of(caches.begin(), caches.end(),
                                   [](const auto& cache) { return cache.second.cores < kSmallestDomain; });
    CpuDomain whole{node, 0, {}};
    for (const auto& [cache, domain] : caches) {
      if (!small) topology.domains.push_back(domain);
      whole.cores += domain.cores;
      whole.cpus.insert(whole.cpus.end(), domain.cpus.begin(), domain.cpus.end());
    }
    if (small) topology.domains.push_back(whole);
  }
  topology.bind = bind != "nobind" && (chosen.has_value() || topology.domains.size() > 1);
  return topology;
}

int default_threads(const Topology& topology, const Lookup& lookup) {
  const auto reserved = lookup(kReserved);
  int64_t less = 0;
  if (reserved && !reserved->empty()) {
    less = human_number(kReserved, *reserved);
    if (less < 0) throw Error(cat(kReserved, " must be a number of CPUs, got \"", *reserved, "\""));
  }
  return static_cast<int>(std::max<int64_t>(1, usable_cores(topology) - less));
}

}  // namespace gristmill::config
