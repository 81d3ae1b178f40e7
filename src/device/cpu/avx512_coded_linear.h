#pragma once
// Linears of the coded classes for AVX-512 with VNNI. Include inside a target region.
//
// vpdpbusd multiplies unsigned weight codes by signed activation codes and adds four products to a 32-bit lane without
// an intermediate that could saturate. 4-bit codes are unsigned as they are; 8-bit codes are packed with 128 added,
// which the sum's start at -128 * (sum of the activation codes) takes back.
//
// A panel is 32 outputs, two vectors of lanes, so that a broadcast of activations serves two products while memory is
// read as one stream. Tiles of up to 6 rows keep everything in registers: 12 float accumulators, 12 sums, weights.
#include <immintrin.h>

#include "device/cpu/kernels.h"
#include "device/cpu/panel_ahead.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {
namespace {

constexpr int kPanel512 = 32;

inline __m512i step_codes_512(const int8_t* codes, int step) {
  return _mm512_set1_epi32(reinterpret_cast<const int32_t*>(codes)[step]);
}

template <bool kNibbles, bool kMin, bool kOffset, int kRows>
void tile_512(const PackedWeight& w, const std::byte* panel, PanelAhead ahead, const QuantizedBlock& x, int row,
              float* y, int64_t y_stride) {
  constexpr int kSteps = kNibbles ? 4 : 8, kTable = kSteps * 128, kBlockBytes = kTable + (kMin ? 128 : 64);
  const __m512 zero = _mm512_set1_ps(w.zero);
  const __m512i low = _mm512_set1_epi8(0x0f);
  const int8_t* codes = x.codes + row * kGroup;
  const GroupScale* scales = x.scales + row;
  __m512 acc[kRows][2];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
  for (int64_t group = w.inputs / kGroup; group > 0; --group) {
    __m512i sums[kRows][2];
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = sums[r][1] = kNibbles ? _mm512_setzero_si512() : _mm512_set1_epi32(scales[r].biased);
    }
    if (ahead.next()) {
      GRISTMILL_UNROLL
      for (int i = 0; i < kBlockBytes; i += 64) __builtin_prefetch(ahead.data + i);
    }
    ahead.data += kBlockBytes;
    GRISTMILL_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      __m512i weights[2], upper[2];
      GRISTMILL_UNROLL
      for (int p = 0; p < 2; ++p) {
        weights[p] = _mm512_loadu_si512(panel + step * 128 + p * 64);
        if constexpr (kNibbles) {
          upper[p] = _mm512_and_si512(_mm512_srli_epi16(weights[p], 4), low);
          weights[p] = _mm512_and_si512(weights[p], low);
        }
      }
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const __m512i a = step_codes_512(codes + r * kGroup, step);
        sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], weights[0], a);
        sums[r][1] = _mm512_dpbusd_epi32(sums[r][1], weights[1], a);
        if constexpr (kNibbles) {
          const __m512i b = step_codes_512(codes + r * kGroup, step + 4);
          sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], upper[0], b);
          sums[r][1] = _mm512_dpbusd_epi32(sums[r][1], upper[1], b);
        }
      }
    }
    GRISTMILL_UNROLL
    for (int p = 0; p < 2; ++p) {
      const auto* const table = reinterpret_cast<const __m256i*>(panel + kTable) + p;
      const __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256(table));
      const __m512 min = kMin ? _mm512_cvtph_ps(_mm256_loadu_si256(table + 2)) : _mm512_setzero_ps();
      const __m512 offset = _mm512_fnmadd_ps(zero, scale, min);
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        if (kOffset) acc[r][p] = _mm512_fmadd_ps(offset, _mm512_set1_ps(scales[r].scaled_sum), acc[r][p]);
        acc[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][p]),
                                    _mm512_mul_ps(scale, _mm512_set1_ps(scales[r].scale)), acc[r][p]);
      }
    }
    panel += kBlockBytes;
    codes += static_cast<int64_t>(x.rows) * kGroup;
    scales += x.rows;
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    _mm512_storeu_ps(y + r * y_stride, acc[r][0]);
    _mm512_storeu_ps(y + r * y_stride + 16, acc[r][1]);
  }
}

template <bool kNibbles, bool kMin, bool kOffset>
void coded_panels_512(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                      int64_t y_stride) {
  constexpr int kMost = 6;
  const int walks = (x.rows + kMost - 1) / kMost;
  for (int64_t i = 0; i < panels; ++i, y += kPanel512) {
    const std::byte* const panel = w.panel_data(first + i);
    for (int walk = 0, row = 0; walk < walks; ++walk) {
      const PanelAhead ahead(w, panel, walks, walk);
      float* const to = y + row * y_stride;
      const int rows = PanelAhead::rows_of(x.rows - row, walks - walk);
      switch (rows) {
        case 1:
          tile_512<kNibbles, kMin, kOffset, 1>(w, panel, ahead, x, row, to, y_stride);
          break;
        case 2:
          tile_512<kNibbles, kMin, kOffset, 2>(w, panel, ahead, x, row, to, y_stride);
          break;
        case 3:
          tile_512<kNibbles, kMin, kOffset, 3>(w, panel, ahead, x, row, to, y_stride);
          break;
        case 4:
          tile_512<kNibbles, kMin, kOffset, 4>(w, panel, ahead, x, row, to, y_stride);
          break;
        case 5:
          tile_512<kNibbles, kMin, kOffset, 5>(w, panel, ahead, x, row, to, y_stride);
          break;
        default:
          tile_512<kNibbles, kMin, kOffset, 6>(w, panel, ahead, x, row, to, y_stride);
          break;
      }
      row += rows;
    }
  }
}

void avx512_coded_linear(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                         int64_t y_stride) {
  if (w.cls == ComputeClass::i4_group) {
    if (w.has_min) return coded_panels_512<true, true, true>(w, first, panels, x, y, y_stride);
    if (w.zero != 0.0f) return coded_panels_512<true, false, true>(w, first, panels, x, y, y_stride);
    return coded_panels_512<true, false, false>(w, first, panels, x, y, y_stride);
  }
  if (w.has_min) return coded_panels_512<false, true, true>(w, first, panels, x, y, y_stride);
  coded_panels_512<false, false, false>(w, first, panels, x, y, y_stride);
}

}  // namespace
}  // namespace gristmill::device::cpu
