#pragma once
// Linears of the coded classes for AVX2 and AVX-VNNI. Include inside a target region with avx2, fma and f16c (and
// avxvnni); `Isa` names the instructions (avx2_dot.h).
//
// A panel is 8 outputs, one per 32-bit lane. vpmaddubsw multiplies unsigned weight codes by signed activation codes and
// adds pairs into 16 bits: 4-bit codes give at most 2 * 15 * 127 = 3,810, so all 8 steps of a group add up in 16 bits
// before one vpmaddwd widens them. 8-bit codes take the absolute value on the weight (|-128| fits unsigned) and the
// sign on the activation, 2 * 128 * 127 = 32,512, and are widened at every step.
//
// With AVX-VNNI, vpdpbusd adds four products to a 32-bit lane at once: 8-bit codes are packed with 128 added then,
// which the sum's start at -128 * (sum of the activation codes) takes back.
#include "device/cpu/kernels.h"
#include "device/cpu/panel_ahead.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {
namespace {

template <class Isa>
struct Avx2Block {
  typename Isa::Floats scale, offset;
};

template <class Isa, bool kNibbles, bool kMin>
inline Avx2Block<Isa> block_scales(const std::byte* block, typename Isa::Floats zero) {
  const std::byte* const table = block + (kNibbles ? 128 : 256);
  const typename Isa::Floats scale = Isa::halves(table);
  const typename Isa::Floats min = kMin ? Isa::halves(table + 16) : Isa::zero();
  return {scale, Isa::fnma(zero, scale, min)};
}

template <class Isa>
inline typename Isa::Ints step_codes(const int8_t* codes, int step) {
  return Isa::all_ints(reinterpret_cast<const int32_t*>(codes)[step]);
}

template <class Isa, bool kOffset>
inline typename Isa::Floats add_group(typename Isa::Ints sum, const Avx2Block<Isa>& block, const GroupScale& x,
                                      typename Isa::Floats acc) {
  if (kOffset) acc = Isa::fma(block.offset, Isa::all(x.scaled_sum), acc);
  return Isa::fma(Isa::floats(sum), Isa::mul(block.scale, Isa::all(x.scale)), acc);
}

/// A register tile of kRows rows over all groups of a panel.
template <class Isa, bool kNibbles, bool kMin, bool kOffset, int kRows>
void tile_coded(const PackedWeight& w, const std::byte* panel, PanelAhead ahead, const QuantizedBlock& x, int row,
                float* y, int64_t y_stride) {
  using Ints = typename Isa::Ints;
  using Floats = typename Isa::Floats;
  constexpr int kBlockBytes = (kNibbles ? 128 : 256) + (kMin ? 32 : 16);
  const Floats zero = Isa::all(w.zero);
  const int8_t* codes = x.codes + row * kGroup;
  const GroupScale* scales = x.scales + row;
  Floats acc[kRows];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) acc[r] = Isa::zero();
  for (int64_t group = w.inputs / kGroup; group > 0; --group) {
    if (ahead.next()) {
      GRISTMILL_UNROLL
      for (int i = 0; i < kBlockBytes; i += 64) __builtin_prefetch(ahead.data + i);
    }
    ahead.data += kBlockBytes;
    Ints sums[kRows];
    if constexpr (kNibbles) {
      GRISTMILL_UNROLL
      for (int step = 0; step < 4; ++step) {
        const Ints both = Isa::load_ints(panel + 32 * step);
        const Ints a = Isa::low_nibbles(both), b = Isa::high_nibbles(both);
        GRISTMILL_UNROLL
        for (int r = 0; r < kRows; ++r) {
          if constexpr (Isa::kDot) {
            if (step == 0) sums[r] = Isa::zero_ints();
            sums[r] = Isa::dot(sums[r], a, step_codes<Isa>(codes + r * kGroup, step));
            sums[r] = Isa::dot(sums[r], b, step_codes<Isa>(codes + r * kGroup, step + 4));
          } else {
            const Ints pair = Isa::add_pairs(Isa::pairs(a, step_codes<Isa>(codes + r * kGroup, step)),
                                             Isa::pairs(b, step_codes<Isa>(codes + r * kGroup, step + 4)));
            sums[r] = step == 0 ? pair : Isa::add_pairs(sums[r], pair);
            Isa::settle(sums[r]);
          }
        }
      }
      if constexpr (!Isa::kDot) {
        GRISTMILL_UNROLL
        for (int r = 0; r < kRows; ++r) sums[r] = Isa::widen(sums[r]);
      }
    } else {
      GRISTMILL_UNROLL
      for (int step = 0; step < 8; ++step) {
        const Ints code = Isa::load_ints(panel + 32 * step);
        if constexpr (Isa::kDot) {
          GRISTMILL_UNROLL
          for (int r = 0; r < kRows; ++r) {
            if (step == 0) sums[r] = Isa::all_ints(scales[r].biased);
            sums[r] = Isa::dot(sums[r], code, step_codes<Isa>(codes + r * kGroup, step));
          }
        } else {
          const Ints size = Isa::sizes(code);
          GRISTMILL_UNROLL
          for (int r = 0; r < kRows; ++r) {
            const Ints product = Isa::pairs(size, Isa::signed_like(step_codes<Isa>(codes + r * kGroup, step), code));
            const Ints wide = Isa::widen(product);
            sums[r] = step == 0 ? wide : Isa::add(sums[r], wide);
            Isa::settle(sums[r]);
          }
        }
      }
    }
    const Avx2Block<Isa> block = block_scales<Isa, kNibbles, kMin>(panel, zero);
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) acc[r] = add_group<Isa, kOffset>(sums[r], block, scales[r], acc[r]);
    panel += kBlockBytes;
    codes += static_cast<int64_t>(x.rows) * kGroup;
    scales += x.rows;
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) Isa::store(y + r * y_stride, acc[r]);
}

template <class Isa, bool kNibbles, bool kMin, bool kOffset>
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
          tile_coded<Isa, kNibbles, kMin, kOffset, 1>(w, panel, ahead, x, row, to, y_stride);
          break;
        case 2:
          tile_coded<Isa, kNibbles, kMin, kOffset, 2>(w, panel, ahead, x, row, to, y_stride);
          break;
        case 3:
          tile_coded<Isa, kNibbles, kMin, kOffset, 3>(w, panel, ahead, x, row, to, y_stride);
          break;
        default:
          tile_coded<Isa, kNibbles, kMin, kOffset, 4>(w, panel, ahead, x, row, to, y_stride);
          break;
      }
      row += rows;
    }
  }
}

template <class Isa>
void avx2_coded_linear(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                       int64_t y_stride) {
  if (w.cls == ComputeClass::i4_group) {
    if (w.has_min) return coded_panels<Isa, true, true, true>(w, first, panels, x, y, y_stride);
    if (w.zero != 0.0f) return coded_panels<Isa, true, false, true>(w, first, panels, x, y, y_stride);
    return coded_panels<Isa, true, false, false>(w, first, panels, x, y, y_stride);
  }
  if (w.has_min) return coded_panels<Isa, false, true, true>(w, first, panels, x, y, y_stride);
  coded_panels<Isa, false, false, false>(w, first, panels, x, y, y_stride);
}

}  // namespace
}  // namespace gristmill::device::cpu
