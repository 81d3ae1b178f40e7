#pragma once

namespace gristmill::device::cpu {

struct Kernels;  // device/cpu/kernels.h

#if defined(__x86_64__)
/// AMX with tiles for bfloat16 weights too (TDPBF16PS). Their linears have a definition of their own, other than that
/// of Kernels::float_linear and the same for any number of rows: activations are rounded to bfloat16 (to nearest even;
/// denormals count as zero), then for each 32 inputs ascending,
///   even = over pairs k ascending, fma(x[2k], w[2k], even), from 0; odd likewise over x[2k + 1] and w[2k + 1];
///   y = y + (even + odd), from 0,
/// with zeros behind the last input, denormal weights and results as zero, and each operation rounded to nearest even.
/// Everything else is as in amx_kernels().
const Kernels& amx_bf16_kernels();
#endif

}  // namespace gristmill::device::cpu
