#pragma once
// The part of a set's table that is written once over a vector class. Files for an instruction set include this inside
// their target region, after all other headers, and add what they have written themselves.
#include "device/cpu/attention_kernels.h"
#include "device/cpu/delta_net_kernels.h"
#include "device/cpu/float_linear.h"
#include "device/cpu/kernels.h"
#include "device/cpu/row_kernels.h"

namespace gristmill::device::cpu {

/// Everything but the set's name and packing and its linears of codes. `Narrow` has 8 lanes (with_layout).
template <class V, class Narrow>
Kernels lane_kernels() {
  Kernels set{};
  set.float_linear = float_linear<V>;
  set.quantize = quantize_row<V>;
  set.quantize_token = quantize_token_row<V>;
  set.rms_norm = rms_norm_row<V>;
  set.add = add_row<V>;
  set.silu_mul = silu_mul_row<V>;
  set.rotate = rotate_row<V>;
  set.round = round_row<V>;
  set.encode = encode_row<V>;
  set.argmax = argmax_row<V>;
  set.attend_partition = attend_partition<V, Narrow>;
  set.merge_partitions = merge_partitions<V>;
  set.attend_tile = attend_tile<V, Narrow>;
  set.gate = gate_row<V>;
  set.add_weighted = add_weighted_row<V>;
  set.delta_net = delta_net_kernels<V>();
  return set;
}

}  // namespace gristmill::device::cpu
