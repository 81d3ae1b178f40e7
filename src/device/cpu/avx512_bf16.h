#pragma once
// Include inside a target region with avx512f and avx512bf16.
#include <immintrin.h>

#include <cstdint>

namespace gristmill::device::cpu {
namespace {  // so that each file has kernels of its own, with its own instructions

/// Rounding to bfloat16 with AVX-512 BF16, behind a class as the other instructions (avx512_vnni.h).
struct Avx512Bf16 {
  /// The first `count` values, at most 32, to bfloat16, and zeros behind them.
  static void round(const float* x, int count, uint16_t (&out)[32]) {
    const uint32_t first = count >= 32 ? 0xffffffffu : (1u << count) - 1u;
    const __m512 lower = _mm512_maskz_loadu_ps(static_cast<__mmask16>(first & 0xffff), x);
    const __m512 upper = _mm512_maskz_loadu_ps(static_cast<__mmask16>(first >> 16), x + 16);
    _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(upper, lower));
  }
};

}  // namespace
}  // namespace gristmill::device::cpu
