#pragma once
// Linears of the channel classes for AVX-512 with VNNI. Include inside a target region; `Isa` names the
// instructions (avx512_vnni.h).
//
// Panels and products are those of avx512_coded_linear.h: unsigned weight codes (4-bit ones have 8 added, 8-bit ones
// 128) times signed activation codes. What was added is taken back by the sum of the activation codes. Without scales
// between the groups, sums stay integers in 16 to 24 accumulators over all inputs.
#include "device/cpu/avx512_coded_linear.h"
#include "device/cpu/kernels.h"
#include "device/cpu/panel_ahead.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {
namespace {

/// Adds the products of a block of 32 inputs to the sums of kRows rows. Few rows have sums of their own for the upper
/// nibbles (kChains = 2), so that a product does not wait for the one before.
template <class Isa, bool kNibbles, int kRows, int kChains>
inline void add_block_512(const std::byte* block, const int8_t* codes, typename Isa::Ints (&sums)[kChains][kRows][2]) {
  using Ints = typename Isa::Ints;
  constexpr int kSteps = kNibbles ? 4 : 8;
  GRISTMILL_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    Ints weights[2], upper[2];
    GRISTMILL_UNROLL
    for (int p = 0; p < 2; ++p) {
      weights[p] = Isa::load_ints(block + step * 128 + p * 64);
      if constexpr (kNibbles) {
        upper[p] = Isa::high_nibbles(weights[p]);
        weights[p] = Isa::low_nibbles(weights[p]);
      }
    }
    constexpr int kLast = kChains - 1;
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const Ints a = step_codes_512<Isa>(codes + r * kGroup, step);
      const int chain = kNibbles ? 0 : step % kChains;
      GRISTMILL_UNROLL
      for (int p = 0; p < 2; ++p) sums[chain][r][p] = Isa::dot(sums[chain][r][p], weights[p], a);
      if constexpr (kNibbles) {
        const Ints b = step_codes_512<Isa>(codes + r * kGroup, step + 4);
        GRISTMILL_UNROLL
        for (int p = 0; p < 2; ++p) sums[kLast][r][p] = Isa::dot(sums[kLast][r][p], upper[p], b);
      }
    }
  }
}

template <class Isa, bool kNibbles, bool kGrouped, int kRows>
void tile_channel_512(const PackedWeight& w, const std::byte* panel, PanelAhead ahead, const TokenBlock& x, int row,
                      float* y, int64_t y_stride) {
  using Ints = typename Isa::Ints;
  using Floats = typename Isa::Floats;
  constexpr int kBlockBytes = kNibbles ? 512 : 1024, kChains = kRows <= 2 ? 2 : 1, kGroups = kGrouped ? kRows : 1;
  constexpr int kAdded = kNibbles ? 8 : 128;
  const float* scales = w.scales(panel);
  const TokenScale* const tokens = x.scales + row;
  const int8_t* codes = x.codes + row * kGroup;
  const int32_t* block_sums = x.sums + row;
  Ints sums[kChains][kRows][2];
  Floats acc[kGroups][2];
  GRISTMILL_UNROLL
  for (int p = 0; p < 2; ++p) {
    const Ints start = kGrouped ? Isa::zero_ints() : Isa::load_ints(w.addends(panel) + p * 16);
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      sums[0][r][p] = kGrouped ? start : Isa::sub(start, Isa::all_ints(kAdded * tokens[r].sum));
      if constexpr (kChains == 2) sums[1][r][p] = Isa::zero_ints();
      if constexpr (kGrouped) acc[r][p] = Isa::zero();
    }
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
        for (int r = 0; r < kRows; ++r) {
          const Ints added = Isa::all_ints(kAdded * block_sums[r]);
          GRISTMILL_UNROLL
          for (int p = 0; p < 2; ++p) sums[0][r][p] = Isa::sub(sums[0][r][p], added);
        }
        block_sums += x.rows;
      }
      add_block_512<Isa, kNibbles, kRows, kChains>(panel, codes, sums);
      panel += kBlockBytes;
      codes += static_cast<int64_t>(x.rows) * kGroup;
    }
    if constexpr (kGrouped) {
      GRISTMILL_UNROLL
      for (int p = 0; p < 2; ++p) {
        const Floats scale = Isa::load(scales + p * 16);
        GRISTMILL_UNROLL
        for (int r = 0; r < kRows; ++r) {
          Ints sum = sums[0][r][p];
          if constexpr (kChains == 2) sum = Isa::add(sum, sums[1][r][p]);
          acc[r][p] = Isa::fma(Isa::floats(sum), scale, acc[r][p]);
          GRISTMILL_UNROLL
          for (int chain = 0; chain < kChains; ++chain) sums[chain][r][p] = Isa::zero_ints();
        }
      }
      scales += w.panel;
    }
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    GRISTMILL_UNROLL
    for (int p = 0; p < 2; ++p) {
      Floats value;
      if constexpr (kGrouped) {
        value = acc[r][p];
      } else {
        Ints sum = sums[0][r][p];
        if constexpr (kChains == 2) sum = Isa::add(sum, sums[1][r][p]);
        value = Isa::mul(Isa::floats(sum), Isa::load(scales + p * 16));
      }
      Isa::store(y + r * y_stride + p * 16, Isa::mul(value, Isa::all(tokens[r].scale)));
    }
  }
}

/// The tile for `rows` rows, 1 <= rows <= kMost.
template <class Isa, bool kNibbles, bool kGrouped, int kMost>
void tile_channel_512_of(int rows, const PackedWeight& w, const std::byte* panel, const PanelAhead& ahead,
                         const TokenBlock& x, int row, float* y, int64_t y_stride) {
  if constexpr (kMost > 1) {
    if (rows < kMost)
      return tile_channel_512_of<Isa, kNibbles, kGrouped, kMost - 1>(rows, w, panel, ahead, x, row, y, y_stride);
  }
  tile_channel_512<Isa, kNibbles, kGrouped, kMost>(w, panel, ahead, x, row, y, y_stride);
}

template <class Isa, bool kNibbles, bool kGrouped, int kMost>
void channel_panels_512(const PackedWeight& w, int64_t first, int64_t panels, const TokenBlock& x, float* y,
                        int64_t y_stride) {
  const int walks = (x.rows + kMost - 1) / kMost;
  for (int64_t i = 0; i < panels; ++i, y += w.panel) {
    const std::byte* const panel = w.panel_data(first + i);
    for (int walk = 0, row = 0; walk < walks; ++walk) {
      const int rows = PanelAhead::rows_of(x.rows - row, walks - walk);
      tile_channel_512_of<Isa, kNibbles, kGrouped, kMost>(rows, w, panel, PanelAhead(w, panel, walks, walk), x, row,
                                                          y + row * y_stride, y_stride);
      row += rows;
    }
  }
}

template <class Isa>
void avx512_channel_linear(const PackedWeight& w, int64_t first, int64_t panels, const TokenBlock& x, float* y,
                           int64_t y_stride) {
  if (w.group == 0) {
    if (w.cls == ComputeClass::i4_channel)
      return channel_panels_512<Isa, true, false, 8>(w, first, panels, x, y, y_stride);
    return channel_panels_512<Isa, false, false, 8>(w, first, panels, x, y, y_stride);
  }
  if (w.cls == ComputeClass::i4_channel && w.group % kGroup == 0)
    return channel_panels_512<Isa, true, true, 4>(w, first, panels, x, y, y_stride);
  portable_channel_linear(w, first, panels, x, y, y_stride);
}

}  // namespace
}  // namespace gristmill::device::cpu
