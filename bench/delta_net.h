#pragma once
#include "device/cpu/kernels.h"

namespace gristmill::bench {

/// Gated DeltaNet at the width of a layer of Qwen3.5-122B (16 key heads, 64 value heads, 128 x 128): decode of several
/// sequences, verification of a few tokens, prefill, on one thread. `fma_peak` is in float32 operations per second.
void bench_delta_net(const device::cpu::Kernels& kernels, double fma_peak);

}  // namespace gristmill::bench
