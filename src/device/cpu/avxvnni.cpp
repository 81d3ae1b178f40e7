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

#define GRISTMILL_AVXVNNI 1
GRISTMILL_TARGET_BEGIN("avx2,fma,f16c,avxvnni")

#include "device/cpu/attention_kernels.h"
#include "device/cpu/avx2_channel_linear.h"
#include "device/cpu/avx2_coded_linear.h"
#include "device/cpu/avx2_lanes.h"
#include "device/cpu/delta_net_kernels.h"
#include "device/cpu/float_linear.h"
#include "device/cpu/row_kernels.h"

namespace gristmill::device::cpu {

const Kernels& avxvnni_kernels() {
  using V = Avx2Lanes;
  static const Kernels kernels{
      .name = "avxvnni",
      .coded_panel = 8,
      .biased_i8 = true,
      .complements_i8 = false,
      .v_chunk = 32,
      .coded_linear = avx2_coded_linear,
      .channel_linear = avx2_channel_linear,
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
