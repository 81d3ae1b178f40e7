#include "device/cpu/isa.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/error.h"
#include "device/cpu/kernels.h"

namespace gristmill::device::cpu {
namespace {

#if defined(__x86_64__)
/// CPUID leaf 7, sub-leaf 1, EAX bit 4; compilers' own test of the name is younger than g++ 12.
bool has_avxvnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
}
#elif defined(__aarch64__)
#if !defined(HWCAP_ASIMDDP)
#define HWCAP_ASIMDDP (1 << 20)
#endif
#if !defined(HWCAP2_I8MM)
#define HWCAP2_I8MM (1 << 13)
#endif
#endif

}  // namespace

std::vector<const Kernels*> usable_kernels() {
  std::vector<const Kernels*> sets;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
  if (avx2 && avx512) sets.push_back(&avx512_kernels());
  if (avx2 && has_avxvnni()) sets.push_back(&avxvnni_kernels());
  if (avx2) sets.push_back(&avx2_kernels());
#elif defined(__aarch64__)
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) {
    if ((getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0) sets.push_back(&i8mm_kernels());
    sets.push_back(&dotprod_kernels());
  }
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
