#pragma once
// Linears of the coded classes for AVX-512 with VNNI. Include inside a target region.
//
// A panel is 16 outputs, one per 32-bit lane. vpdpbusd multiplies unsigned weight codes by signed activation codes and
// adds four products to a lane without an intermediate that could saturate. 4-bit codes are unsigned as they are; 8-bit
// codes are packed with 128 added, which the sum's start at -128 * (sum of the activation codes) takes back.
#include <immintrin.h>

#include "device/cpu/kernels.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {
namespace {

constexpr int kPanel512 = 16;

struct Avx512Block {
  __m512 scale, offset;
};

template <bool kNibbles, bool kMin>
inline Avx512Block block_scales_512(const std::byte* block, __m512 zero) {
  const auto* const table = reinterpret_cast<const __m256i*>(block + (kNibbles ? 256 : 512));
  const __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256(table));
  const __m512 min = kMin ? _mm512_cvtph_ps(_mm256_loadu_si256(table + 1)) : _mm512_setzero_ps();
  return {scale, _mm512_fnmadd_ps(zero, scale, min)};
}

inline __m512i step_codes_512(const int8_t* codes, int step) {
  return _mm512_set1_epi32(reinterpret_cast<const int32_t*>(codes)[step]);
}

/// The codes of a block, a vector per step of 4 inputs.
template <bool kNibbles>
inline void load_steps(const std::byte* block, __m512i (&steps)[8]) {
  if constexpr (kNibbles) {
    const __m512i low = _mm512_set1_epi8(0x0f);
    GRISTMILL_UNROLL
    for (int step = 0; step < 4; ++step) {
      const __m512i both = _mm512_loadu_si512(block + step * 64);
      steps[step] = _mm512_and_si512(both, low);
      steps[step + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    }
  } else {
    GRISTMILL_UNROLL
    for (int step = 0; step < 8; ++step) steps[step] = _mm512_loadu_si512(block + step * 64);
  }
}

template <bool kNibbles>
inline __m512i sum_start(const GroupScale& x) {
  return kNibbles ? _mm512_setzero_si512() : _mm512_set1_epi32(x.biased);
}

template <bool kOffset>
inline __m512 add_group_512(__m512i sum, const Avx512Block& block, const GroupScale& x, __m512 acc) {
  if (kOffset) acc = _mm512_fmadd_ps(block.offset, _mm512_set1_ps(x.scaled_sum), acc);
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(block.scale, _mm512_set1_ps(x.scale)), acc);
}

/// A few rows: accumulators stay in registers over the whole panel, which is read once, ahead of use.
template <bool kNibbles, bool kMin, bool kOffset, int kRows>
void stream_512(const PackedWeight& w, const std::byte* panel, const QuantizedBlock& x, int row, float* y,
                int64_t y_stride) {
  constexpr int kPrefetch512 = 2048;
  constexpr size_t kBlockBytes = (kNibbles ? 256 : 512) + (kMin ? 64 : 32);
  const __m512 zero = _mm512_set1_ps(w.zero);
  const int8_t* codes = x.codes + row * kGroup;
  const GroupScale* scales = x.scales + row;
  __m512 acc[kRows];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
  for (int64_t group = w.inputs / kGroup; group > 0; --group) {
    GRISTMILL_UNROLL
    for (size_t i = 0; i < kBlockBytes; i += 64) __builtin_prefetch(panel + kPrefetch512 + i);
    __m512i steps[8];
    load_steps<kNibbles>(panel, steps);
    const Avx512Block block = block_scales_512<kNibbles, kMin>(panel, zero);
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      // Two chains, so that one row alone does not wait for the latency of each product.
      __m512i even = sum_start<kNibbles>(scales[r]), odd = _mm512_setzero_si512();
      GRISTMILL_UNROLL
      for (int step = 0; step < 8; step += 2) {
        even = _mm512_dpbusd_epi32(even, steps[step], step_codes_512(codes + r * kGroup, step));
        odd = _mm512_dpbusd_epi32(odd, steps[step + 1], step_codes_512(codes + r * kGroup, step + 1));
      }
      acc[r] = add_group_512<kOffset>(_mm512_add_epi32(even, odd), block, scales[r], acc[r]);
    }
    panel += kBlockBytes;
    codes += static_cast<int64_t>(x.rows) * kGroup;
    scales += x.rows;
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(y + r * y_stride, acc[r]);
}

/// Many rows: the codes of a group of kPanels panels stay in registers while the rows stream past, and every broadcast
/// of activations serves all of them; accumulators are in L1.
template <bool kNibbles, bool kMin, bool kOffset, int kPanels>
void tile_512(const PackedWeight& w, const std::byte* panel, const QuantizedBlock& x, float* acc) {
  constexpr size_t kBlockBytes = (kNibbles ? 256 : 512) + (kMin ? 64 : 32);
  const __m512 zero = _mm512_set1_ps(w.zero);
  const int8_t* codes = x.codes;
  const GroupScale* scales = x.scales;
  for (int64_t group = 0; group < w.inputs / kGroup; ++group, panel += kBlockBytes) {
    __m512i steps[kPanels][8];
    Avx512Block blocks[kPanels];
    GRISTMILL_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      load_steps<kNibbles>(panel + p * w.panel_bytes, steps[p]);
      blocks[p] = block_scales_512<kNibbles, kMin>(panel + p * w.panel_bytes, zero);
    }
    float* to = acc;
    for (int r = 0; r < x.rows; ++r, codes += kGroup, ++scales, to += kPanels * kPanel512) {
      __m512i sums[kPanels];
      GRISTMILL_UNROLL
      for (int p = 0; p < kPanels; ++p) sums[p] = sum_start<kNibbles>(*scales);
      GRISTMILL_UNROLL
      for (int step = 0; step < 8; ++step) {
        const __m512i a = step_codes_512(codes, step);
        GRISTMILL_UNROLL
        for (int p = 0; p < kPanels; ++p) sums[p] = _mm512_dpbusd_epi32(sums[p], steps[p][step], a);
      }
      GRISTMILL_UNROLL
      for (int p = 0; p < kPanels; ++p) {
        const __m512 before = group == 0 ? _mm512_setzero_ps() : _mm512_load_ps(to + p * kPanel512);
        _mm512_store_ps(to + p * kPanel512, add_group_512<kOffset>(sums[p], blocks[p], *scales, before));
      }
    }
  }
}

template <bool kNibbles, bool kMin, bool kOffset>
void coded_panels_512(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                      int64_t y_stride) {
  alignas(64) float acc[kRowBlock * 2 * kPanel512];
  for (int64_t i = 0; i < panels;) {
    const std::byte* const panel = w.panel_data(first + i);
    float* const to = y + i * kPanel512;
    if (x.rows > 4) {
      const int take = panels - i >= 2 ? 2 : 1;
      if (take == 2) {
        tile_512<kNibbles, kMin, kOffset, 2>(w, panel, x, acc);
      } else {
        tile_512<kNibbles, kMin, kOffset, 1>(w, panel, x, acc);
      }
      for (int r = 0; r < x.rows; ++r) {
        for (int p = 0; p < take; ++p) {
          _mm512_storeu_ps(to + r * y_stride + p * kPanel512, _mm512_load_ps(acc + (r * take + p) * kPanel512));
        }
      }
      i += take;
      continue;
    }
    switch (x.rows) {
      case 1:
        stream_512<kNibbles, kMin, kOffset, 1>(w, panel, x, 0, to, y_stride);
        break;
      case 2:
        stream_512<kNibbles, kMin, kOffset, 2>(w, panel, x, 0, to, y_stride);
        break;
      case 3:
        stream_512<kNibbles, kMin, kOffset, 3>(w, panel, x, 0, to, y_stride);
        break;
      default:
        stream_512<kNibbles, kMin, kOffset, 4>(w, panel, x, 0, to, y_stride);
        break;
    }
    ++i;
  }
}

void avx512_coded_linear(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                         int64_t y_stride) {
  if (x.rows == 0) return;
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
