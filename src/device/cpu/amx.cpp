// The kernels for AMX: those for AVX-512 VNNI, and tiles where linears of codes have several rows; a second set has
// tiles for bfloat16 weights too.
#if defined(__x86_64__)
#if !defined(__clang__)
// g++ 12 takes the undefined source operands inside its own AVX-512 intrinsics for uninitialized variables.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "device/cpu/amx_bf16.h"
#include "device/cpu/kernels.h"
#include "device/cpu/panel_ahead.h"
#include "device/cpu/target.h"
#include "device/cpu/tile_config.h"

GRISTMILL_TARGET_BEGIN(
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,amx-tile,amx-int8,amx-bf16,avx512bf16")

#include "device/cpu/amx_bf16_linear.h"
#include "device/cpu/amx_linear.h"
#include "device/cpu/amx_tiles.h"
#include "device/cpu/avx512_bf16.h"
#include "device/cpu/avx512_vnni.h"

namespace gristmill::device::cpu {
namespace {

void coded_linear(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                  int64_t y_stride) {
  if (x.rows <= kAmxFewRows) return avx512_kernels().coded_linear(w, first, panels, x, y, y_stride);
  amx_coded_linear<AmxTiles, Avx512Vnni>(w, first, panels, x, y, y_stride);
}

void channel_linear(const PackedWeight& w, int64_t first, int64_t panels, const TokenBlock& x, float* y,
                    int64_t y_stride) {
  if (x.rows <= kAmxFewRows || !amx_takes(w)) return avx512_kernels().channel_linear(w, first, panels, x, y, y_stride);
  amx_channel_linear<AmxTiles, Avx512Vnni>(w, first, panels, x, y, y_stride);
}

void float_linear(const PackedWeight& w, int64_t first, int64_t panels, const float* x, int64_t x_stride, int rows,
                  float* y, int64_t y_stride) {
  if (w.cls != ComputeClass::bf16)
    return avx512_kernels().float_linear(w, first, panels, x, x_stride, rows, y, y_stride);
  amx_bf16_linear<AmxTiles, Avx512Bf16>(w, first, panels, x, x_stride, rows, y, y_stride);
}

}  // namespace

const Kernels& amx_kernels() {
  static const Kernels kernels = [] {
    Kernels set = avx512_kernels();
    set.name = "amx";
    set.coded_linear = coded_linear;
    set.channel_linear = channel_linear;
    return set;
  }();
  return kernels;
}

const Kernels& amx_bf16_kernels() {
  static const Kernels kernels = [] {
    Kernels set = amx_kernels();
    set.name = "amx-bf16";
    set.float_linear = float_linear;
    return set;
  }();
  return kernels;
}

}  // namespace gristmill::device::cpu

GRISTMILL_TARGET_END
#endif
