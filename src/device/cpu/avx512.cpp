// The kernels for AVX-512 (F, BW, DQ, VL) with VNNI.
#if defined(__x86_64__)
#if !defined(__clang__)
// g++ 12 takes the undefined source operands inside its own AVX-512 intrinsics for uninitialized variables.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/float8.h"
#include "device/cpu/attention_layout.h"
#include "device/cpu/kernels.h"
#include "device/cpu/panel_ahead.h"
#include "device/cpu/target.h"

GRISTMILL_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")

#include "device/cpu/avx2_lanes.h"
#include "device/cpu/avx512_channel_linear.h"
#include "device/cpu/avx512_coded_linear.h"
#include "device/cpu/avx512_lanes.h"
#include "device/cpu/avx512_vnni.h"
#include "device/cpu/kernel_table.h"

namespace gristmill::device::cpu {

const Kernels& avx512_kernels() {
  static const Kernels kernels = [] {
    Kernels set = lane_kernels<Avx512Lanes, Avx2Lanes>();
    set.name = "avx512";
    set.coded_panel = kPanel512;
    set.biased_i8 = true;
    set.complements_i8 = false;
    set.v_chunk = 64;
    set.coded_linear = avx512_coded_linear<Avx512Vnni>;
    set.channel_linear = avx512_channel_linear<Avx512Vnni>;
    return set;
  }();
  return kernels;
}

}  // namespace gristmill::device::cpu

GRISTMILL_TARGET_END
#endif
