#pragma once
#include <vector>

#include "device/cpu/kernels.h"
#include "roofs.h"

namespace gristmill::bench {

/// The experts of a mixture at real width (256 experts, top 8, hidden size 3072, 1536 and 1024 wide, int8 and int4 with
/// a scale per output) under random routing, on one thread: the bandwidth of the distinct experts that a step touches
/// against what plain reading of such places reaches, and for larger batches the share of the composite roof.
void bench_moe(const device::cpu::Kernels& kernels, const Peaks& peaks);

}  // namespace gristmill::bench
