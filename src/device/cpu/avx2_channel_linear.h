#pragma once
// Linears of the channel classes for AVX2, and with GRISTMILL_AVXVNNI for AVX-VNNI. Include inside a target region with
// avx2 and fma (and avxvnni).
//
// Panels and 4-bit products are those of avx2_coded_linear.h; the 8 that 4-bit codes are stored with is taken back by
// the sum of the activation codes. 8-bit codes take the absolute value on the weight and the complement of the
// activation where the weight is negative (any vector port can do that, unlike a sign): |w| * ~x pairs are at least
// 2 * 128 * -128 = -32,768, which just fits 16 bits, and the addends make up for the difference (Kernels). AVX-VNNI has
// 8-bit codes with 128 added instead.
#include <immintrin.h>

#include "device/cpu/avx2_coded_linear.h"
#include "device/cpu/kernels.h"
#include "device/cpu/panel_ahead.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {
namespace {

/// Adds the products of a block of 32 inputs to the sums of kRows rows.
template <bool kNibbles, int kRows>
inline void add_block(const std::byte* block, const int8_t* codes, __m256i (&sums)[kRows]) {
  const auto* const words = reinterpret_cast<const __m256i*>(block);
#if defined(GRISTMILL_AVXVNNI)
  GRISTMILL_UNROLL
  for (int step = 0; step < (kNibbles ? 4 : 8); ++step) {
    const __m256i low = _mm256_set1_epi8(0x0f), word = _mm256_loadu_si256(words + step);
    const __m256i first = kNibbles ? _mm256_and_si256(word, low) : word;
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      sums[r] = _mm256_dpbusd_avx_epi32(sums[r], first, step_codes(codes + r * kGroup, step));
      if constexpr (kNibbles) {
        const __m256i second = _mm256_and_si256(_mm256_srli_epi16(word, 4), low);
        sums[r] = _mm256_dpbusd_avx_epi32(sums[r], second, step_codes(codes + r * kGroup, step + 4));
      }
    }
  }
#else
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (kNibbles) {
    const __m256i low = _mm256_set1_epi8(0x0f);
    __m256i pairs[kRows];
    GRISTMILL_UNROLL
    for (int step = 0; step < 4; ++step) {
      const __m256i both = _mm256_loadu_si256(words + step);
      const __m256i a = _mm256_and_si256(both, low), b = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const __m256i pair = _mm256_add_epi16(_mm256_maddubs_epi16(a, step_codes(codes + r * kGroup, step)),
                                              _mm256_maddubs_epi16(b, step_codes(codes + r * kGroup, step + 4)));
        pairs[r] = step == 0 ? pair : _mm256_add_epi16(pairs[r], pair);
        settle(pairs[r]);
      }
    }
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(pairs[r], ones));
  } else {
    GRISTMILL_UNROLL
    for (int step = 0; step < 8; ++step) {
      const __m256i code = _mm256_loadu_si256(words + step);
      const __m256i size = _mm256_abs_epi8(code), negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), code);
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const __m256i x = _mm256_xor_si256(step_codes(codes + r * kGroup, step), negative);
        sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(_mm256_maddubs_epi16(size, x), ones));
        settle(sums[r]);
      }
    }
  }
#endif
}

#if defined(GRISTMILL_AVXVNNI)
constexpr bool kBiased256 = true;
#else
constexpr bool kBiased256 = false;
#endif

template <bool kNibbles, bool kGrouped, int kRows>
void tile_channel(const PackedWeight& w, const std::byte* panel, PanelAhead ahead, const TokenBlock& x, int row,
                  float* y, int64_t y_stride) {
  constexpr int kBlockBytes = kNibbles ? 128 : 256, kGroups = kGrouped ? kRows : 1;
  const float* scales = w.scales(panel);
  const TokenScale* const tokens = x.scales + row;
  const int8_t* codes = x.codes + row * kGroup;
  const int32_t* block_sums = x.sums + row;
  __m256i sums[kRows];
  __m256 acc[kGroups];
  const __m256i start =
      kGrouped ? _mm256_setzero_si256() : _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w.addends(panel)));
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    constexpr int kAdded = kNibbles ? 8 : kBiased256 ? 128 : 0;
    sums[r] = kAdded != 0 && !kGrouped ? _mm256_sub_epi32(start, _mm256_set1_epi32(kAdded * tokens[r].sum)) : start;
    if constexpr (kGrouped) acc[r] = _mm256_setzero_ps();
  }
  const int64_t groups = w.scale_groups(), all = w.blocks(), per_group = kGrouped ? w.group / kGroup : all;
  int64_t done = 0;
  for (int64_t group = 0; group < groups; ++group) {
    for (const int64_t end = std::min(all, done + per_group); done < end; ++done) {
      if (ahead.next()) {
        GRISTMILL_UNROLL
        for (int i = 0; i < kBlockBytes; i += 64) __builtin_prefetch(ahead.data + i);
      }
      ahead.data += kBlockBytes;
      if constexpr (kGrouped) {
        GRISTMILL_UNROLL
        for (int r = 0; r < kRows; ++r) sums[r] = _mm256_sub_epi32(sums[r], _mm256_set1_epi32(8 * block_sums[r]));
        block_sums += x.rows;
      }
      add_block<kNibbles, kRows>(panel, codes, sums);
      panel += kBlockBytes;
      codes += static_cast<int64_t>(x.rows) * kGroup;
    }
    if constexpr (kGrouped) {
      const __m256 scale = _mm256_loadu_ps(scales);
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[r]), scale, acc[r]);
        sums[r] = _mm256_setzero_si256();
      }
      scales += w.panel;
    }
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    __m256 value;
    if constexpr (kGrouped) {
      value = acc[r];
    } else {
      value = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[r]), _mm256_loadu_ps(scales));
    }
    _mm256_storeu_ps(y + r * y_stride, _mm256_mul_ps(value, _mm256_set1_ps(tokens[r].scale)));
  }
}

/// The tile for `rows` rows, 1 <= rows <= kMost.
template <bool kNibbles, bool kGrouped, int kMost>
void tile_channel_of(int rows, const PackedWeight& w, const std::byte* panel, const PanelAhead& ahead,
                     const TokenBlock& x, int row, float* y, int64_t y_stride) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return tile_channel_of<kNibbles, kGrouped, kMost - 1>(rows, w, panel, ahead, x, row, y, y_stride);
  }
  tile_channel<kNibbles, kGrouped, kMost>(w, panel, ahead, x, row, y, y_stride);
}

template <bool kNibbles, bool kGrouped, int kMost>
void channel_panels(const PackedWeight& w, int64_t first, int64_t panels, const TokenBlock& x, float* y,
                    int64_t y_stride) {
  const int walks = (x.rows + kMost - 1) / kMost;
  for (int64_t i = 0; i < panels; ++i, y += w.panel) {
    const std::byte* const panel = w.panel_data(first + i);
    for (int walk = 0, row = 0; walk < walks; ++walk) {
      const int rows = PanelAhead::rows_of(x.rows - row, walks - walk);
      tile_channel_of<kNibbles, kGrouped, kMost>(rows, w, panel, PanelAhead(w, panel, walks, walk), x, row,
                                                 y + row * y_stride, y_stride);
      row += rows;
    }
  }
}

void avx2_channel_linear(const PackedWeight& w, int64_t first, int64_t panels, const TokenBlock& x, float* y,
                         int64_t y_stride) {
  if (w.group == 0) {
    if (w.cls == ComputeClass::i4_channel) return channel_panels<true, false, 4>(w, first, panels, x, y, y_stride);
    return channel_panels<false, false, 8>(w, first, panels, x, y, y_stride);
  }
  if (w.cls == ComputeClass::i4_channel && w.group % kGroup == 0)
    return channel_panels<true, true, 4>(w, first, panels, x, y, y_stride);
  portable_channel_linear(w, first, panels, x, y, y_stride);
}

}  // namespace
}  // namespace gristmill::device::cpu
