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

#include "device/cpu/attention_kernels.h"
#include "device/cpu/delta_net_kernels.h"
#include "device/cpu/float_linear.h"
#include "device/cpu/neon_channel_linear.h"
#include "device/cpu/neon_coded_linear.h"
#include "device/cpu/neon_lanes.h"
#include "device/cpu/row_kernels.h"

namespace gristmill::device::cpu {

const Kernels& dotprod_kernels() {
  using V = NeonLanes;
  static const Kernels kernels{
      .name = "dotprod",
      .coded_panel = 8,
      .biased_i8 = false,
      .complements_i8 = false,
      .v_chunk = 32,
      .coded_linear = neon_coded_linear,
      .channel_linear = neon_channel_linear,
      .float_linear = float_linear<V>,
      .quantize = quantize_row<V>,
      .quantize_token = quantize_token_row<V>,
      .rms_norm = rms_norm_row<V>,
      .add = add_row<V>,
      .silu_mul = silu_mul_row<V>,
      .rotate = rotate_row<V>,
      .round = round_row<V>,
      .encode = encode_row<V>,
      .argmax = argmax_row<V>,
      .attend_partition = attend_partition<V, V>,
      .merge_partitions = merge_partitions<V>,
      .attend_tile = attend_tile<V, V>,
      .gate = gate_row<V>,
      .add_weighted = add_weighted_row<V>,
      .delta_net = delta_net_kernels<V>(),
  };
  return kernels;
}

}  // namespace gristmill::device::cpu

GRISTMILL_TARGET_END
#endif
