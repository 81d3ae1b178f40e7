#pragma once
// Include inside a target region with avx2, fma, f16c and avxvnni.
#include <immintrin.h>

#include "device/cpu/avx2_dot.h"

namespace gristmill::device::cpu {
namespace {  // so that each file has kernels of its own, with its own instructions

/// The instructions of the linears of codes for AVX-VNNI.
struct AvxVnni : Avx2Common {
  static constexpr bool kDot = true;  ///< four products are added to a 32-bit lane at once
  static Ints dot(Ints sums, Ints weights, Ints x) { return _mm256_dpbusd_avx_epi32(sums, weights, x); }
};

}  // namespace
}  // namespace gristmill::device::cpu
