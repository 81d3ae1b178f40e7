#pragma once
// Linears of the channel classes for AVX2 and AVX-VNNI. Include inside a target region with avx2 and fma (and avxvnni);
// `Isa` names the instructions (avx2_dot.h).
//
// Panels and 4-bit products are those of avx2_coded_linear.h; the 8 that 4-bit codes are stored with is taken back by
// the sum of the activation codes. 8-bit codes take the absolute value on the weight and the complement of the
// activation where the weight is negative (any vector port can do that, unlike a sign): |w| * ~x pairs are at least
// 2 * 128 * -128 = -32,768, which just fits 16 bits, and the addends make up for the difference (Kernels). AVX-VNNI has
// 8-bit codes with 128 added instead.
#include "device/cpu/avx2_coded_linear.h"
#include "device/cpu/kernels.h"
#include "device/cpu/panel_ahead.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {
namespace {

/// Adds the products of a block of 32 inputs to the sums of kRows rows.
template <class Isa, bool kNibbles, int kRows>
inline void add_block(const std::byte* block, const int8_t* codes, typename Isa::Ints (&sums)[kRows]) {
  using Ints = typename Isa::Ints;
  if constexpr (Isa::kDot) {
    GRISTMILL_UNROLL
    for (int step = 0; step < (kNibbles ? 4 : 8); ++step) {
      const Ints word = Isa::load_ints(block + 32 * step);
      const Ints first = kNibbles ? Isa::low_nibbles(word) : word;
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        sums[r] = Isa::dot(sums[r], first, step_codes<Isa>(codes + r * kGroup, step));
        if constexpr (kNibbles) {
          sums[r] = Isa::dot(sums[r], Isa::high_nibbles(word), step_codes<Isa>(codes + r * kGroup, step + 4));
        }
      }
    }
  } else if constexpr (kNibbles) {
    Ints pairs[kRows];
    GRISTMILL_UNROLL
    for (int step = 0; step < 4; ++step) {
      const Ints both = Isa::load_ints(block + 32 * step);
      const Ints a = Isa::low_nibbles(both), b = Isa::high_nibbles(both);
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Ints pair = Isa::add_pairs(Isa::pairs(a, step_codes<Isa>(codes + r * kGroup, step)),
                                         Isa::pairs(b, step_codes<Isa>(codes + r * kGroup, step + 4)));
        pairs[r] = step == 0 ? pair : Isa::add_pairs(pairs[r], pair);
        Isa::settle(pairs[r]);
      }
    }
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) sums[r] = Isa::add(sums[r], Isa::widen(pairs[r]));
  } else {
    GRISTMILL_UNROLL
    for (int step = 0; step < 8; ++step) {
      const Ints code = Isa::load_ints(block + 32 * step);
      const Ints size = Isa::sizes(code), negative = Isa::negative(code);
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Ints x = Isa::flip(step_codes<Isa>(codes + r * kGroup, step), negative);
        sums[r] = Isa::add(sums[r], Isa::widen(Isa::pairs(size, x)));
        Isa::settle(sums[r]);
      }
    }
  }
}

template <class Isa, bool kNibbles, bool kGrouped, int kRows>
void tile_channel(const PackedWeight& w, const std::byte* panel, PanelAhead ahead, const TokenBlock& x, int row,
                  float* y, int64_t y_stride) {
  using Ints = typename Isa::Ints;
  using Floats = typename Isa::Floats;
  constexpr int kBlockBytes = kNibbles ? 128 : 256, kGroups = kGrouped ? kRows : 1;
  const float* scales = w.scales(panel);
  const TokenScale* const tokens = x.scales + row;
  const int8_t* codes = x.codes + row * kGroup;
  const int32_t* block_sums = x.sums + row;
  Ints sums[kRows];
  Floats acc[kGroups];
  const Ints start = kGrouped ? Isa::zero_ints() : Isa::load_ints(w.addends(panel));
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    constexpr int kAdded = kNibbles ? 8 : Isa::kDot ? 128 : 0;
    sums[r] = kAdded != 0 && !kGrouped ? Isa::sub(start, Isa::all_ints(kAdded * tokens[r].sum)) : start;
    if constexpr (kGrouped) acc[r] = Isa::zero();
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
        for (int r = 0; r < kRows; ++r) sums[r] = Isa::sub(sums[r], Isa::all_ints(8 * block_sums[r]));
        block_sums += x.rows;
      }
      add_block<Isa, kNibbles, kRows>(panel, codes, sums);
      panel += kBlockBytes;
      codes += static_cast<int64_t>(x.rows) * kGroup;
    }
    if constexpr (kGrouped) {
      const Floats scale = Isa::load(scales);
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        acc[r] = Isa::fma(Isa::floats(sums[r]), scale, acc[r]);
        sums[r] = Isa::zero_ints();
      }
      scales += w.panel;
    }
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    Floats value;
    if constexpr (kGrouped) {
      value = acc[r];
    } else {
      value = Isa::mul(Isa::floats(sums[r]), Isa::load(scales));
    }
    Isa::store(y + r * y_stride, Isa::mul(value, Isa::all(tokens[r].scale)));
  }
}

/// The tile for `rows` rows, 1 <= rows <= kMost.
template <class Isa, bool kNibbles, bool kGrouped, int kMost>
void tile_channel_of(int rows, const PackedWeight& w, const std::byte* panel, const PanelAhead& ahead,
                     const TokenBlock& x, int row, float* y, int64_t y_stride) {
  if constexpr (kMost > 1) {
    if (rows < kMost)
      return tile_channel_of<Isa, kNibbles, kGrouped, kMost - 1>(rows, w, panel, ahead, x, row, y, y_stride);
  }
  tile_channel<Isa, kNibbles, kGrouped, kMost>(w, panel, ahead, x, row, y, y_stride);
}

template <class Isa, bool kNibbles, bool kGrouped, int kMost>
void channel_panels(const PackedWeight& w, int64_t first, int64_t panels, const TokenBlock& x, float* y,
                    int64_t y_stride) {
  const int walks = (x.rows + kMost - 1) / kMost;
  for (int64_t i = 0; i < panels; ++i, y += w.panel) {
    const std::byte* const panel = w.panel_data(first + i);
    for (int walk = 0, row = 0; walk < walks; ++walk) {
      const int rows = PanelAhead::rows_of(x.rows - row, walks - walk);
      tile_channel_of<Isa, kNibbles, kGrouped, kMost>(rows, w, panel, PanelAhead(w, panel, walks, walk), x, row,
                                                      y + row * y_stride, y_stride);
      row += rows;
    }
  }
}

template <class Isa>
void avx2_channel_linear(const PackedWeight& w, int64_t first, int64_t panels, const TokenBlock& x, float* y,
                         int64_t y_stride) {
  if (w.group == 0) {
    if (w.cls == ComputeClass::i4_channel) return channel_panels<Isa, true, false, 4>(w, first, panels, x, y, y_stride);
    return channel_panels<Isa, false, false, 8>(w, first, panels, x, y, y_stride);
  }
  if (w.cls == ComputeClass::i4_channel && w.group % kGroup == 0)
    return channel_panels<Isa, true, true, 4>(w, first, panels, x, y, y_stride);
  portable_channel_linear(w, first, panels, x, y, y_stride);
}

}  // namespace
}  // namespace gristmill::device::cpu
