#include "base/topology.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

namespace gristmill {
namespace {

constexpr int64_t kNoQuota = std::numeric_limits<int64_t>::max();

int64_t whole_cores(int64_t quota, int64_t period) {
  if (quota <= 0 || period <= 0) return kNoQuota;
  return std::max<int64_t>(1, quota / period);
}

// Version 2: "max 100000" or "<quota> <period>" in cpu.max.
int64_t quota_v2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  std::string quota;
  int64_t period = 0;
  if (!(file >> quota >> period) || quota == "max") return kNoQuota;
  std::istringstream number(quota);
  int64_t value = 0;
  return number >> value ? whole_cores(value, period) : kNoQuota;
}

// Version 1: two files, the quota is -1 where there is none.
int64_t quota_v1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
  int64_t quota = 0, period = 0;
  return quota_file >> quota && period_file >> period ? whole_cores(quota, period) : kNoQuota;
}

// A quota holds for everything below it, so every folder on the way up counts. Inside a container the path of
// /proc/self/cgroup may be the host's and not exist: then the walk still ends at the mount's own root.
template <class Quota>
int64_t lowest_on_path(const std::string& mount, std::string path, Quota quota) {
  int64_t lowest = quota(mount);
  while (path.size() > 1) {
    lowest = std::min(lowest, quota(mount + path));
    path.resize(path.rfind('/'));
  }
  return lowest;
}

}  // namespace

int quota_cores(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  int64_t lowest = kNoQuota;
  for (std::string line; std::getline(groups, line);) {  // hierarchy:controllers:path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (path.empty() || path[0] != '/') continue;
    const std::string mounts = root + "/sys/fs/cgroup";
    if (controllers.empty()) {
      lowest = std::min(
          {lowest, lowest_on_path(mounts, path, quota_v2), lowest_on_path(mounts + "/unified", path, quota_v2)});
      continue;
    }
    std::istringstream names(controllers);
    for (std::string name; std::getline(names, name, ',');) {
      if (name != "cpu") continue;
      lowest = std::min({lowest, lowest_on_path(mounts + "/" + controllers, path, quota_v1),
                         lowest_on_path(mounts + "/cpu", path, quota_v1)});
    }
  }
  return lowest == kNoQuota ? 0 : static_cast<int>(std::min<int64_t>(lowest, std::numeric_limits<int>::max()));
}

int Topology::cores() const {
  int sum = 0;
  for (const CpuDomain& domain : domains) sum += domain.cores;
  return sum;
}

int Topology::numa_nodes() const {
  std::set<int> nodes;
  for (const CpuDomain& domain : domains) nodes.insert(domain.numa_node);
  return std::max(1, static_cast<int>(nodes.size()));
}

int usable_cores(const Topology& topology) {
  int cores = topology.cores();
  // The mask may be longer than cpu_set_t on large machines; the kernel says so with EINVAL.
  for (int bits = 1024; bits <= 1 << 20 && cores == 0; bits *= 2) {
    std::vector<unsigned long> mask(static_cast<size_t>(bits) / (8 * sizeof(unsigned long)));
    const size_t bytes = mask.size() * sizeof(unsigned long);
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    if (sched_getaffinity(0, bytes, set) == 0) cores = CPU_COUNT_S(bytes, set);
  }
  if (cores == 0) cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int quota = quota_cores("");
  return quota > 0 ? std::min(cores, quota) : cores;
}

}  // namespace gristmill
