#pragma once
// Include inside a target region with amx-tile, amx-int8 and amx-bf16.
#include <cstdint>

#include "device/cpu/tile_config.h"

namespace gristmill::device::cpu {
namespace {  // so that each file has kernels of its own, with its own instructions

/// The tile instructions of AMX: the kernels name them through this class, so that they can also be compiled over an
/// emulation (tests/device/cpu/emulated_amx.h says what each of them does). Not the compiler's intrinsics: those of
/// g++ 12 do not say that a tile load reads memory.
struct AmxTiles {
  static void configure(const TileConfig& config) { asm volatile("ldtilecfg %0" ::"m"(config)); }
  /// Back to the state in which a thread's tiles are not saved when it is set aside.
  static void release() { asm volatile("tilerelease"); }
  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  /// The tile's rows from `first` on, `stride` bytes apart.
  template <int kTile>
  static void load(const void* first, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(first), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store(void* first, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(first), "r"(stride), "i"(kTile) : "memory");
  }
  /// sums[m][n] += a[m][4k + i] * b[k][4n + i] over k and i, signed a times unsigned b, int32.
  template <int kSums, int kA, int kB>
  static void dot_signed_unsigned() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
  }
  /// sums[m][n] += over k of a[m][2k + i] * b[k][2n + i], i = 0 and 1 apart (amx_bf16_linear.h), bfloat16 to float32.
  template <int kSums, int kA, int kB>
  static void dot_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kA), "i"(kB));
  }
};

}  // namespace
}  // namespace gristmill::device::cpu
