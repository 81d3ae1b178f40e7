#pragma once
// Linears of the coded classes for AVX2. Include inside a target region with avx2, fma and f16c.
//
// A panel is 8 outputs, one per 32-bit lane. vpmaddubsw multiplies unsigned weight codes by signed activation codes and
// adds pairs into 16 bits: 4-bit codes give at most 2 * 15 * 127 = 3,810, so all 8 steps of a group add up in 16 bits
// before one vpmaddwd widens them. 8-bit codes take the absolute value on the weight (|-128| fits unsigned) and the
// sign on the activation, 2 * 128 * 127 = 32,512, and are widened at every step.
#include <immintrin.h>

#include "device/cpu/kernels.h"
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

inline __m256 add_group(__m256i sum, const Avx2Block& block, const GroupScale& x, bool has_offset, __m256 acc) {
  if (has_offset) acc = _mm256_fmadd_ps(block.offset, _mm256_set1_ps(x.scaled_sum), acc);
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(block.scale, _mm256_set1_ps(x.scale)), acc);
}

/// A few rows: accumulators stay in registers over the whole panel, which is read once, ahead of use.
template <bool kNibbles, bool kMin, bool kOffset, int kRows>
void stream_coded(const PackedWeight& w, const std::byte* panel, const QuantizedBlock& x, int row, float* y,
                  int64_t y_stride) {
  constexpr int kPrefetchCoded = 2048;
  const __m256i low = _mm256_set1_epi8(0x0f), ones = _mm256_set1_epi16(1);
  const __m256 zero = _mm256_set1_ps(w.zero);
  const int64_t groups = w.inputs / kGroup;
  const int8_t* codes = x.codes + row * kGroup;
  const GroupScale* scales = x.scales + row;
  __m256 acc[kRows];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) acc[r] = _mm256_setzero_ps();
  for (int64_t group = 0; group < groups; ++group) {
    const auto* const words = reinterpret_cast<const __m256i*>(panel);
    for (size_t i = 0; i < w.block_bytes; i += 64) __builtin_prefetch(panel + kPrefetchCoded + i);
    __m256i sums[kRows];
    if constexpr (kNibbles) {
      GRISTMILL_UNROLL
      for (int step = 0; step < 4; ++step) {
        const __m256i both = _mm256_loadu_si256(words + step);
        const __m256i a = _mm256_and_si256(both, low), b = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
        GRISTMILL_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const __m256i pair = _mm256_add_epi16(_mm256_maddubs_epi16(a, step_codes(codes + r * kGroup, step)),
                                                _mm256_maddubs_epi16(b, step_codes(codes + r * kGroup, step + 4)));
          sums[r] = step == 0 ? pair : _mm256_add_epi16(sums[r], pair);
        }
      }
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) sums[r] = _mm256_madd_epi16(sums[r], ones);
    } else {
      GRISTMILL_UNROLL
      for (int step = 0; step < 8; ++step) {
        const __m256i code = _mm256_loadu_si256(words + step);
        const __m256i size = _mm256_abs_epi8(code);
        GRISTMILL_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const __m256i product =
              _mm256_maddubs_epi16(size, _mm256_sign_epi8(step_codes(codes + r * kGroup, step), code));
          const __m256i wide = _mm256_madd_epi16(product, ones);
          sums[r] = step == 0 ? wide : _mm256_add_epi32(sums[r], wide);
        }
      }
    }
    const Avx2Block block = block_scales<kNibbles, kMin>(panel, zero);
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) acc[r] = add_group(sums[r], block, scales[r], kOffset, acc[r]);
    panel += w.block_bytes;
    codes += static_cast<int64_t>(x.rows) * kGroup;
    scales += x.rows;
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) _mm256_storeu_ps(y + r * y_stride, acc[r]);
}

/// Many rows: the 8 unpacked vectors of a group stay in registers while the rows stream past; accumulators are in L1.
template <bool kMin, bool kOffset>
void tile_nibbles(const PackedWeight& w, const std::byte* panel, const QuantizedBlock& x, float* acc) {
  const __m256i low = _mm256_set1_epi8(0x0f);
  const __m256 zero = _mm256_set1_ps(w.zero);
  const int8_t* codes = x.codes;
  const GroupScale* scales = x.scales;
  for (int64_t group = 0; group < w.inputs / kGroup; ++group, panel += w.block_bytes) {
    const auto* const words = reinterpret_cast<const __m256i*>(panel);
    __m256i weights[8];
    GRISTMILL_UNROLL
    for (int step = 0; step < 4; ++step) {
      const __m256i both = _mm256_loadu_si256(words + step);
      weights[step] = _mm256_and_si256(both, low);
      weights[step + 4] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
    }
    const Avx2Block block = block_scales<true, kMin>(panel, zero);
    const __m256i ones = _mm256_set1_epi16(1);
    float* to = acc;
    for (int r = 0; r < x.rows; ++r, codes += kGroup, ++scales, to += 8) {
      __m256i sum = _mm256_maddubs_epi16(weights[0], step_codes(codes, 0));
      GRISTMILL_UNROLL
      for (int step = 1; step < 8; ++step) {
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(weights[step], step_codes(codes, step)));
      }
      const __m256 before = group == 0 ? _mm256_setzero_ps() : _mm256_loadu_ps(to);
      _mm256_storeu_ps(to, add_group(_mm256_madd_epi16(sum, ones), block, *scales, kOffset, before));
    }
  }
}

template <bool kNibbles, bool kMin, bool kOffset>
void coded_rows(const PackedWeight& w, const std::byte* panel, const QuantizedBlock& x, float* y, int64_t y_stride) {
  if constexpr (kNibbles) {
    if (x.rows > 4) {
      alignas(32) float acc[kRowBlock * 8];
      tile_nibbles<kMin, kOffset>(w, panel, x, acc);
      for (int r = 0; r < x.rows; ++r) _mm256_storeu_ps(y + r * y_stride, _mm256_load_ps(acc + r * 8));
      return;
    }
  }
  for (int r = 0; r < x.rows;) {
    float* const to = y + r * y_stride;
    switch (x.rows - r) {
      case 1:
        stream_coded<kNibbles, kMin, kOffset, 1>(w, panel, x, r, to, y_stride);
        r += 1;
        break;
      case 2:
        stream_coded<kNibbles, kMin, kOffset, 2>(w, panel, x, r, to, y_stride);
        r += 2;
        break;
      case 3:
        stream_coded<kNibbles, kMin, kOffset, 3>(w, panel, x, r, to, y_stride);
        r += 3;
        break;
      default:
        stream_coded<kNibbles, kMin, kOffset, 4>(w, panel, x, r, to, y_stride);
        r += 4;
        break;
    }
  }
}

void avx2_coded_linear(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                       int64_t y_stride) {
  for (int64_t i = 0; i < panels; ++i, y += 8) {
    const std::byte* const panel = w.panel_data(first + i);
    if (w.cls == ComputeClass::i4_group) {
      if (w.has_min) {
        coded_rows<true, true, true>(w, panel, x, y, y_stride);
      } else if (w.zero != 0.0f) {
        coded_rows<true, false, true>(w, panel, x, y, y_stride);
      } else {
        coded_rows<true, false, false>(w, panel, x, y, y_stride);
      }
    } else if (w.has_min) {
      coded_rows<false, true, true>(w, panel, x, y, y_stride);
    } else {
      coded_rows<false, false, false>(w, panel, x, y, y_stride);
    }
  }
}

}  // namespace
}  // namespace gristmill::device::cpu
