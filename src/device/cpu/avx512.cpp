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

#include "device/cpu/attention_kernels.h"
#include "device/cpu/avx2_lanes.h"
#include "device/cpu/avx512_channel_linear.h"
#include "device/cpu/avx512_coded_linear.h"
#include "device/cpu/avx512_lanes.h"
#include "device/cpu/delta_net_kernels.h"
#include "device/cpu/float_linear.h"
#include "device/cpu/row_kernels.h"

namespace gristmill::device::cpu {

const Kernels& avx512_kernels() {
  using V = Avx512Lanes;
  static const Kernels kernels{
      .name = "avx512",
      .coded_panel = kPanel512,
      .biased_i8 = true,
      .complements_i8 = false,
      .v_chunk = 64,
      .coded_linear = avx512_coded_linear,
      .channel_linear = avx512_channel_linear,
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
      .attend_partition = attend_partition<V, Avx2Lanes>,
      .merge_partitions = merge_partitions<V>,
      .attend_tile = attend_tile<V, Avx2Lanes>,
      .gate = gate_row<V>,
      .add_weighted = add_weighted_row<V>,
      .delta_net = delta_net_kernels<V>(),
  };
  return kernels;
}

}  // namespace gristmill::device::cpu

GRISTMILL_TARGET_END
#endif
