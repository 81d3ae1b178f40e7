// The kernels for AVX2 with FMA and F16C.
#if defined(__x86_64__)
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

GRISTMILL_TARGET_BEGIN("avx2,fma,f16c")

#include "device/cpu/avx2_channel_linear.h"
#include "device/cpu/avx2_coded_linear.h"
#include "device/cpu/avx2_dot.h"
#include "device/cpu/avx2_lanes.h"
#include "device/cpu/kernel_table.h"

namespace gristmill::device::cpu {

const Kernels& avx2_kernels() {
  static const Kernels kernels = [] {
    Kernels set = lane_kernels<Avx2Lanes, Avx2Lanes>();
    set.name = "avx2";
    set.coded_panel = 8;
    set.biased_i8 = false;
    set.complements_i8 = true;
    set.v_chunk = 32;
    set.coded_linear = avx2_coded_linear<Avx2Dot>;
    set.channel_linear = avx2_channel_linear<Avx2Dot>;
    return set;
  }();
  return kernels;
}

}  // namespace gristmill::device::cpu

GRISTMILL_TARGET_END
#endif
