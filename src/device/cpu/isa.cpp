#include "device/cpu/isa.h"

#include <cstdlib>

#include "base/error.h"
#include "device/cpu/kernels.h"

namespace gristmill::device::cpu {

std::vector<const Kernels*> usable_kernels() {
  std::vector<const Kernels*> sets;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
  if (avx2 && avx512) sets.push_back(&avx512_kernels());
  if (avx2) sets.push_back(&avx2_kernels());
#endif
  sets.push_back(&portable_kernels());
  return sets;
}

const Kernels& find_kernels(const std::string& name) {
  const std::vector<const Kernels*> sets = usable_kernels();
  if (name.empty()) return *sets.front();
  std::string list;
  for (const Kernels* set : sets) {
    if (name == set->name) return *set;
    list += cat(list.empty() ? "" : ", ", set->name);
  }
  throw Error(cat("GRISTMILL_ISA=", name, ": this machine and build can run: ", list));
}

const Kernels& choose_kernels() {
  const char* name = std::getenv("GRISTMILL_ISA");
  return find_kernels(name == nullptr ? "" : name);
}

}  // namespace gristmill::device::cpu
