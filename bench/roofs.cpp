#include "roofs.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "clock.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernels.h"
#include "device/cpu/tile_config.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

// The loops are written as instructions: a compiler that spills one accumulator would lower a "peak" by half.
namespace gristmill::bench {
namespace {

constexpr int kRepeats = 7;

/// Best of several runs of `work`, which does `operations`, per second of CPU time.
template <class Work>
double best_rate(double operations, Work work) {
  double best = 0;
  for (int i = 0; i < kRepeats; ++i) {
    const double start = thread_seconds();
    work();
    best = std::max(best, operations / (thread_seconds() - start));
  }
  return best;
}

#if defined(__x86_64__)
constexpr int64_t kLoops = 2'000'000;

#define REPEAT_12(op) op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11)
#define CLOBBER_YMM                                                                                                   \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", \
      "xmm14", "xmm15"

double fma_avx2() {
  return best_rate(kLoops * 12.0 * 16, [] {
    int64_t n = kLoops;
#define FMA(i) "vfmadd231ps %%ymm12, %%ymm13, %%ymm" #i "\n"
    asm volatile("1:\n" REPEAT_12(FMA) "dec %0\n jnz 1b\n" : "+r"(n)::CLOBBER_YMM);
  });
}
double nibbles_avx2() {
  // Three groups of 8 products; the weights come from memory in the kernel, here from registers.
  return best_rate(kLoops * 3.0 * 8 * 64, [] {
    int64_t n = kLoops;
#define PRODUCT(sum, t)                   \
  "vpmaddubsw %%ymm12, %%ymm13, %%ymm" #t \
  "\n"                                    \
  "vpaddw %%ymm" #t ", %%ymm" #sum ", %%ymm" #sum "\n"
#define GROUP(sum, t)                                                                                            \
  "vpmaddubsw %%ymm12, %%ymm13, %%ymm" #sum "\n" PRODUCT(sum, t) PRODUCT(sum, t) PRODUCT(sum, t) PRODUCT(sum, t) \
      PRODUCT(sum, t) PRODUCT(sum, t) PRODUCT(sum, t) "vpmaddwd %%ymm14, %%ymm" #sum ", %%ymm" #sum "\n"
    asm volatile("1:\n" GROUP(0, 3) GROUP(1, 4) GROUP(2, 5) "dec %0\n jnz 1b\n" : "+r"(n)::CLOBBER_YMM);
  });
}
double bytes_avx2() {
  return best_rate(kLoops * 12.0 * 64, [] {
    int64_t n = kLoops;
#define STEP(i)                                                                                                     \
  "vpsignb %%ymm12, %%ymm13, %%ymm15\n vpmaddubsw %%ymm15, %%ymm12, %%ymm15\n vpmaddwd %%ymm14, %%ymm15, %%ymm15\n" \
  "vpaddd %%ymm15, %%ymm" #i ", %%ymm" #i "\n"
    asm volatile("1:\n" REPEAT_12(STEP) "dec %0\n jnz 1b\n" : "+r"(n)::CLOBBER_YMM);
  });
}
double fma_avx512() {
  return best_rate(kLoops * 12.0 * 32, [] {
    int64_t n = kLoops;
#define FMA512(i) "vfmadd231ps %%zmm12, %%zmm13, %%zmm" #i "\n"
    asm volatile("1:\n" REPEAT_12(FMA512) "dec %0\n jnz 1b\n" : "+r"(n)::CLOBBER_YMM);
  });
}
double dot_avx512() {
  return best_rate(kLoops * 12.0 * 128, [] {
    int64_t n = kLoops;
#define DOT512(i) "vpdpbusd %%zmm12, %%zmm13, %%zmm" #i "\n"
    asm volatile("1:\n" REPEAT_12(DOT512) "dec %0\n jnz 1b\n" : "+r"(n)::CLOBBER_YMM);
  });
}
double dot_amx() {
  device::cpu::TileConfig config;
  for (int tile = 0; tile < 8; ++tile) config.rows[tile] = 16, config.row_bytes[tile] = 64;
  constexpr int64_t kTileLoops = kLoops / 16;
  return best_rate(kTileLoops * 4.0 * 2 * 16 * 16 * 64, [&] {
    int64_t n = kTileLoops;
    asm volatile(
        "ldtilecfg %1\n 1:\n"
        "tdpbsud %%tmm6, %%tmm4, %%tmm0\n tdpbsud %%tmm7, %%tmm4, %%tmm1\n"
        "tdpbsud %%tmm6, %%tmm5, %%tmm2\n tdpbsud %%tmm7, %%tmm5, %%tmm3\n"
        "dec %0\n jnz 1b\n tilerelease\n"
        : "+r"(n)
        : "m"(config));
  });
}

double read_avx2(const char* data, size_t bytes) {
  const char* const end = data + bytes;
  return best_rate(static_cast<double>(bytes), [&] {
    const char* p = data;
    asm volatile(
        "1:\n prefetcht0 2048(%0)\n prefetcht0 2112(%0)\n"
        "vpaddd (%0), %%ymm0, %%ymm0\n vpaddd 32(%0), %%ymm1, %%ymm1\n"
        "vpaddd 64(%0), %%ymm2, %%ymm2\n vpaddd 96(%0), %%ymm3, %%ymm3\n"
        "add $128, %0\n cmp %1, %0\n jb 1b\n"
        : "+r"(p)
        : "r"(end)
        : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
  });
}
#endif

}  // namespace

double measure_frequency() {
#if defined(__x86_64__)
  return best_rate(64e6, [] {
    int64_t n = 2'000'000, x = 0;
    // An addition of a register to itself cannot be skipped or merged: one cycle each.
#define ADD4 "add %1, %1\n add %1, %1\n add %1, %1\n add %1, %1\n"
    asm volatile("1:\n" ADD4 ADD4 ADD4 ADD4 ADD4 ADD4 ADD4 ADD4 "dec %0\n jnz 1b\n" : "+r"(n), "+r"(x));
  });
#else
  return 0;
#endif
}

double measure_read(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 1, bytes);
#if defined(__x86_64__)
  const double rate = read_avx2(static_cast<const char*>(memory), bytes / 128 * 128);
#else
  const double rate = best_rate(static_cast<double>(bytes), [&] {
    const auto* p = static_cast<const volatile uint64_t*>(memory);
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes / 8; i += 8) sum += p[i];
    asm volatile("" ::"r"(sum));
  });
#endif
  munmap(memory, bytes);
  return rate;
}

std::vector<Peaks> measure_peaks() {
  std::vector<Peaks> peaks;
#if defined(__x86_64__)
  const double frequency = measure_frequency();
  const auto roof = [&](const char* name, double rate, double expected) {
    return Roof{name, rate, rate / frequency, expected};
  };
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512vnni")) {
    const double fma = fma_avx512(), dot = dot_avx512();
    for (const device::cpu::Kernels* kernels : device::cpu::usable_kernels()) {
      if (std::strcmp(kernels->name, "amx") != 0) continue;
      const double tiles = dot_amx();
      peaks.push_back(
          {"amx", roof("fp32 fma", fma, 64), roof("4-bit tdpbsud", tiles, 0), roof("8-bit tdpbsud", tiles, 0)});
    }
    peaks.push_back(
        {"avx512", roof("fp32 fma", fma, 64), roof("4-bit vpdpbusd", dot, 256), roof("8-bit vpdpbusd", dot, 256)});
  }
  if (__builtin_cpu_supports("avx2")) {
    peaks.push_back({"avx2", roof("fp32 fma", fma_avx2(), 32), roof("4-bit s16 sums", nibbles_avx2(), 0),
                     roof("8-bit sign", bytes_avx2(), 0)});
  }
#endif
  return peaks;
}

}  // namespace gristmill::bench
