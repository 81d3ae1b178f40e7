// The kernels for AArch64 with the dot-product instructions (ARMv8.2 DotProd: Kunpeng 920, Neoverse N1 and later).
#if defined(__aarch64__)
#include <arm_neon.h>

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

GRISTMILL_TARGET_BEGIN("arch=armv8.2-a+dotprod")

#include "device/cpu/arm_channel_linear.h"
#include "device/cpu/arm_coded_linear.h"
#include "device/cpu/kernel_table.h"
#include "device/cpu/neon_lanes.h"
#include "device/cpu/neon_products.h"

namespace gristmill::device::cpu {

const Kernels& dotprod_kernels() {
  static const Kernels kernels = [] {
    Kernels set = lane_kernels<NeonLanes, NeonLanes>();
    set.name = "dotprod";
    set.coded_panel = 8;
    set.biased_i8 = false;
    set.complements_i8 = false;
    set.v_chunk = 32;
    set.coded_linear = arm_coded_linear<NeonProducts>;
    set.channel_linear = arm_channel_linear<NeonProducts>;
    return set;
  }();
  return kernels;
}

}  // namespace gristmill::device::cpu

GRISTMILL_TARGET_END
#endif
