// The kernels for AArch64 with SVE vectors of 256 bits and their int8 matrix instructions (Neoverse V1). The file is
// compiled for that length (CMakeLists.txt), and used only where it is the machine's (isa.cpp).
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

GRISTMILL_TARGET_BEGIN("arch=armv8.2-a+dotprod+sve+i8mm")

#include "device/cpu/arm_channel_linear.h"
#include "device/cpu/arm_coded_linear.h"
#include "device/cpu/kernel_table.h"
#include "device/cpu/sve_lanes.h"
#include "device/cpu/sve_products.h"

namespace gristmill::device::cpu {

const Kernels& sve256_kernels() {
  static const Kernels kernels = [] {
    Kernels set = lane_kernels<SveLanes, SveLanes>();
    set.name = "sve256";
    set.coded_panel = kArmPanel;
    set.biased_i8 = false;
    set.complements_i8 = false;
    set.v_chunk = 32;
    set.coded_linear = arm_coded_linear<SveProducts>;
    set.channel_linear = arm_channel_linear<SveProducts>;
    return set;
  }();
  return kernels;
}

}  // namespace gristmill::device::cpu

GRISTMILL_TARGET_END
#endif
