#include "device/cpu/isa.h"

#include <algorithm>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

#include "base/error.h"
#include "device/cpu/amx_bf16.h"
#include "device/cpu/kernels.h"

namespace gristmill::device::cpu {
namespace {

#if defined(__x86_64__)
/// CPUID leaf 7, sub-leaf 1, EAX bit 4; compilers' own test of the name is younger than g++ 12.
bool has_avxvnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
}

/// Tiles of 8-bit integers that the processor has (CPUID leaf 7: EDX bits 24 and 25; leaf 1DH: the tiles' sizes), that
/// the system saves (XCR0 bits 17 and 18) and that it lets this process use: Linux wants to be asked for tile data,
/// once per process, before the first use (arch_prctl(2), ARCH_REQ_XCOMP_PERM of component 18).
bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c >> 27 & 1) == 0) return false;  // XGETBV
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d >> 24 & 3) != 3) return false;
  unsigned saved = 0, upper = 0;
  asm volatile("xgetbv" : "=a"(saved), "=d"(upper) : "c"(0));
  if ((saved >> 17 & 3) != 3) return false;
  // Palette 1: bytes of a tile in EBX's lower half and tiles in its upper; bytes of a row, and rows.
  if (__get_cpuid_count(0x1d, 1, &a, &b, &c, &d) == 0) return false;
  const bool sizes = (a >> 16) >= 1024 && (b & 0xffff) >= 64 && (b >> 16) >= 8 && (c & 0xffff) >= 16;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return sizes && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

/// Beside has_amx(): tiles of bfloat16 (leaf 7, EDX bit 22) and AVX-512's rounding to it (sub-leaf 1, EAX bit 5).
bool has_amx_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d >> 22 & 1) == 0) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 5 & 1) != 0;
}
#elif defined(__aarch64__)
#if !defined(HWCAP_ASIMDDP)
#define HWCAP_ASIMDDP (1 << 20)
#endif
#if !defined(HWCAP_SVE)
#define HWCAP_SVE (1 << 22)
#endif
#if !defined(HWCAP2_SVEI8MM)
#define HWCAP2_SVEI8MM (1 << 9)
#endif
#if !defined(HWCAP2_I8MM)
#define HWCAP2_I8MM (1 << 13)
#endif
#if !defined(PR_SVE_GET_VL)
#define PR_SVE_GET_VL 51
#endif

/// SVE with int8 matrix instructions and vectors of exactly 256 bits: the kernels are compiled for that length.
bool has_sve256() {
  if ((getauxval(AT_HWCAP) & HWCAP_SVE) == 0 || (getauxval(AT_HWCAP2) & HWCAP2_SVEI8MM) == 0) return false;
  const int length = prctl(PR_SVE_GET_VL);
  return length >= 0 && (length & 0xffff) == 256 / 8;
}
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
  if (avx2 && avx512) {
    if (has_amx()) sets.push_back(&amx_kernels());
    sets.push_back(&avx512_kernels());
  }
  if (avx2 && has_avxvnni()) sets.push_back(&avxvnni_kernels());
  if (avx2) sets.push_back(&avx2_kernels());
#elif defined(__aarch64__)
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) {
    if (has_sve256()) sets.push_back(&sve256_kernels());
    if ((getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0) sets.push_back(&i8mm_kernels());
    sets.push_back(&dotprod_kernels());
  }
#endif
  sets.push_back(&portable_kernels());
  return sets;
}

const Kernels& find_kernels(const std::string& name) {
  std::vector<const Kernels*> sets = usable_kernels();
  if (name.empty()) return *sets.front();
#if defined(__x86_64__)
  if (std::any_of(sets.begin(), sets.end(), [](const Kernels* set) { return set == &amx_kernels(); }) && has_amx_bf16())
    sets.push_back(&amx_bf16_kernels());
#endif
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
