#pragma once
// Linears of the coded classes for AVX2, and with GRISTMILL_AVXVNNI for AVX-VNNI. Include inside a target region with
// avx2, fma and f16c (and avxvnni).
//
// A panel is 8 outputs, one per 32-bit lane. vpmaddubsw multiplies unsigned weight codes by signed activation codes and
// adds pairs into 16 bits: 4-bit codes give at most 2 * 15 * 127 = 3,810, so all 8 steps of a group add up in 16 bits
// before one vpmaddwd widens them. 8-bit codes take the absolute value on the weight (|-128| fits unsigned) and the
// sign on the activation, 2 * 128 * 127 = 32,512, and are widened at every step.
//
// With AVX-VNNI, vpdpbusd adds four products to a 32-bit lane at once: 8-bit codes are packed with 128 added then,
// which the sum's start at -128 * (sum of the activation codes) takes back.
#include <immintrin.h>

#include "device/cpu/kernels.h"
#include "device/cpu/panel_ahead.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {
namespace {

struct Avx2Block {
  __m256 scale, offset;
};

template <bool kNibbles, bool kMin>
inline Avx2Block block_scales(const std::byte* block, __m256 zero) {
  const auto* const table = reinterpret_cast<const __m128i*>(block + (kNibbles ? 128 : 256));
  const __m256 scale = _mm256_cvtph_ps(_mm_loadu_si128(table));
  const __m256 min = kMin ? _mm256_cvtph_ps(_mm_loadu_si128(table + 1)) : _mm256_setzero_ps();
  return {scale, _mm256_fnmadd_ps(zero, scale, min)};
}

inline __m256i step_codes(const int8_t* codes, int step) {
  return _mm256_set1_epi32(reinterpret_cast<const int32_t*>(codes)[step]);
}

#if !defined(GRISTMILL_AVXVNNI)
/// Keeps the sums of a step in registers from here on: left alone, g++ multiplies all steps first and spills the
/// products.
inline void settle(__m256i& sum) {
  asm volatile("" : "+x"(sum));
}
#endif

template <bool kOffset>
inline __m256 add_group(__m256i sum, const Avx2Block& block, const GroupScale& x, __m256 acc) {
  if (kOffset) acc = _mm256_fmadd_ps(block.offset, _mm256_set1_ps(x.scaled_sum), acc);
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(block.scale, _mm256_set1_ps(x.scale)), acc);
}

/// A register tile of kRows rows over all groups of a panel.
template <bool kNibbles, bool kMin, bool kOffset, int kRows>
void tile_coded(const PackedWeight& w, const std::byte* panel, PanelAhead ahead, const QuantizedBlock& x, int row,
                float* y, int64_t y_stride) {
  constexpr int kBlockBytes = (kNibbles ? 128 : 256) + (kMin ? 32 : 16);
  const __m256i low = _mm256_set1_epi8(0x0f);
#if !defined(GRISTMILL_AVXVNNI)
  const __m256i ones = _mm256_set1_epi16(1);
#endif
  const __m256 zero = _mm256_set1_ps(w.zero);
  const int8_t* codes = x.codes + row * kGroup;
  const GroupScale* scales = x.scales + row;
  __m256 acc[kRows];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) acc[r] = _mm256_setzero_ps();
  for (int64_t group = w.inputs / kGroup; group > 0; --group) {
    if (ahead.next()) {
      GRISTMILL_UNROLL
      for (int i = 0; i < kBlockBytes; i += 64) __builtin_prefetch(ahead.data + i);
    }
    ahead.data += kBlockBytes;
    const auto* const words = reinterpret_cast<const __m256i*>(panel);
    __m256i sums[kRows];
    if constexpr (kNibbles) {
      GRISTMILL_UNROLL
      for (int step = 0; step < 4; ++step) {
        const __m256i both = _mm256_loadu_si256(words + step);
        const __m256i a = _mm256_and_si256(both, low), b = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
        GRISTMILL_UNROLL
        for (int r = 0; r < kRows; ++r) {
#if defined(GRISTMILL_AVXVNNI)
          if (step == 0) sums[r] = _mm256_setzero_si256();
          sums[r] = _mm256_dpbusd_avx_epi32(sums[r], a, step_codes(codes + r * kGroup, step));
          sums[r] = _mm256_dpbusd_avx_epi32(sums[r], b, step_codes(codes + r * kGroup, step + 4));
#else
          const __m256i pair = _mm256_add_epi16(_mm256_maddubs_epi16(a, step_codes(codes + r * kGroup, step)),
                                                _mm256_maddubs_epi16(b, step_codes(codes + r * kGroup, step + 4)));
          sums[r] = step == 0 ? pair : _mm256_add_epi16(sums[r], pair);
          settle(sums[r]);
#endif
        }
      }
#if !defined(GRISTMILL_AVXVNNI)
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) sums[r] = _mm256_madd_epi16(sums[r], ones);
#endif
    } else {
      GRISTMILL_UNROLL
      for (int step = 0; step < 8; ++step) {
        const __m256i code = _mm256_loadu_si256(words + step);
#if defined(GRISTMILL_AVXVNNI)
        GRISTMILL_UNROLL
        for (int r = 0; r < kRows; ++r) {
          if (step == 0) sums[r] = _mm256_set1_epi32(scales[r].biased);
          sums[r] = _mm256_dpbusd_avx_epi32(sums[r], code, step_codes(codes + r * kGroup, step));
        }
#else
        const __m256i size = _mm256_abs_epi8(code);
        GRISTMILL_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const __m256i product =
              _mm256_maddubs_epi16(size, _mm256_sign_epi8(step_codes(codes + r * kGroup, step), code));
          const __m256i wide = _mm256_madd_epi16(product, ones);
          sums[r] = step == 0 ? wide : _mm256_add_epi32(sums[r], wide);
          settle(sums[r]);
        }
#endif
      }
    }
    const Avx2Block block = block_scales<kNibbles, kMin>(panel, zero);
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) acc[r] = add_group<kOffset>(sums[r], block, scales[r], acc[r]);
    panel += kBlockBytes;
    codes += static_cast<int64_t>(x.rows) * kGroup;
    scales += x.rows;
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) _mm256_storeu_ps(y + r * y_stride, acc[r]);
}

template <bool kNibbles, bool kMin, bool kOffset>
void coded_panels(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                  int64_t y_stride) {
  constexpr int kMost = 4;
  const int walks = (x.rows + kMost - 1) / kMost;
  for (int64_t i = 0; i < panels; ++i, y += 8) {
    const std::byte* const panel = w.panel_data(first + i);
    for (int walk = 0, row = 0; walk < walks; ++walk) {
      const PanelAhead ahead(w, panel, walks, walk);
      float* const to = y + row * y_stride;
      const int rows = PanelAhead::rows_of(x.rows - row, walks - walk);
      switch (rows) {
        case 1:
          tile_coded<kNibbles, kMin, kOffset, 1>(w, panel, ahead, x, row, to, y_stride);
          break;
        case 2:
          tile_coded<kNibbles, kMin, kOffset, 2>(w, panel, ahead, x, row, to, y_stride);
          break;
        case 3:
          tile_coded<kNibbles, kMin, kOffset, 3>(w, panel, ahead, x, row, to, y_stride);
          break;
        default:
          tile_coded<kNibbles, kMin, kOffset, 4>(w, panel, ahead, x, row, to, y_stride);
          break;
      }
      row += rows;
    }
  }
}

void avx2_coded_linear(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                       int64_t y_stride) {
  if (w.cls == ComputeClass::i4_group) {
    if (w.has_min) return coded_panels<true, true, true>(w, first, panels, x, y, y_stride);
    if (w.zero != 0.0f) return coded_panels<true, false, true>(w, first, panels, x, y, y_stride);
    return coded_panels<true, false, false>(w, first, panels, x, y, y_stride);
  }
  if (w.has_min) return coded_panels<false, true, true>(w, first, panels, x, y, y_stride);
  coded_panels<false, false, false>(w, first, panels, x, y, y_stride);
}

}  // namespace
}  // namespace gristmill::device::cpu
