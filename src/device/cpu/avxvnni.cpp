// The kernels for AVX2 with FMA, F16C and AVX-VNNI.
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

#define GRISTMILL_AVXVNNI 1  // for avx2_lanes.h
GRISTMILL_TARGET_BEGIN("avx2,fma,f16c,avxvnni")

#include "device/cpu/avx2_channel_linear.h"
#include "device/cpu/avx2_coded_linear.h"
#include "device/cpu/avx2_lanes.h"
#include "device/cpu/avxvnni_dot.h"
#include "device/cpu/kernel_table.h"

namespace gristmill::device::cpu {

const Kernels& avxvnni_kernels() {
  static const Kernels kernels = [] {
    Kernels set = lane_kernels<Avx2Lanes, Avx2Lanes>();
    set.name = "avxvnni";
    set.coded_panel = 8;
    set.biased_i8 = true;
    set.complements_i8 = false;
    set.v_chunk = 32;
    set.coded_linear = avx2_coded_linear<AvxVnni>;
    set.channel_linear = avx2_channel_linear<AvxVnni>;
    return set;
  }();
  return kernels;
}

}  // namespace gristmill::device::cpu

GRISTMILL_TARGET_END
#endif
