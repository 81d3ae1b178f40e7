#include "base/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace gristmill {
namespace {

constexpr uint64_t unlimited = std::numeric_limits<uint64_t>::max();

uint64_t meminfo(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  uint64_t kib = 0;
  while (file >> name >> kib) {
    if (name == key) return kib * 1024;
    std::getline(file, unit);
  }
  return 0;
}

// "max", a missing file and v1's huge default all mean no limit.
uint64_t number_in(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : unlimited;
}

struct Group {
  uint64_t limit = unlimited;
  uint64_t used = 0;
};

// The tightest limit on the way from this process's group up to the root.
Group memory_group() {
  Group tightest;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && controllers.find("memory") == std::string::npos) continue;
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (std::string path = line.substr(second + 1);; path.erase(path.rfind('/'))) {
      const std::string folder = root + (path == "/" ? "" : path);
      const uint64_t limit = number_in(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
      if (limit < tightest.limit) {
        const uint64_t used = number_in(folder + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
        tightest = {limit, used == unlimited ? 0 : used};
      }
      if (path.empty() || path == "/" || path.rfind('/') == std::string::npos) break;
    }
  }
  return tightest;
}

}  // namespace

uint64_t memory_limit() {
  return std::min(meminfo("MemTotal:"), memory_group().limit);
}

uint64_t memory_available() {
  const Group group = memory_group();
  const uint64_t in_group = group.limit == unlimited ? unlimited : group.limit - std::min(group.limit, group.used);
  return std::min(meminfo("MemAvailable:"), in_group);
}

uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace gristmill
