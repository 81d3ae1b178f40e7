#pragma once
// Linears of the coded classes for AVX-512 with VNNI. Include inside a target region; `Isa` names the
// instructions (avx512_vnni.h).
//
// vpdpbusd multiplies unsigned weight codes by signed activation codes and adds four products to a 32-bit lane without
// an intermediate that could saturate. 4-bit codes are unsigned as they are; 8-bit codes are packed with 128 added,
// which the sum's start at -128 * (sum of the activation codes) takes back.
//
// A panel is 32 outputs, two vectors of lanes, so that a broadcast of activations serves two products while memory is
// read as one stream. Tiles of up to 6 rows keep everything in registers: 12 float accumulators, 12 sums, weights.
#include "device/cpu/kernels.h"
#include "device/cpu/panel_ahead.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {
namespace {

constexpr int kPanel512 = 32;

template <class Isa>
inline typename Isa::Ints step_codes_512(const int8_t* codes, int step) {
  return Isa::all_ints(reinterpret_cast<const int32_t*>(codes)[step]);
}

template <class Isa, bool kNibbles, bool kMin, bool kOffset, int kRows>
void tile_512(const PackedWeight& w, const std::byte* panel, PanelAhead ahead, const QuantizedBlock& x, int row,
              float* y, int64_t y_stride) {
  using Ints = typename Isa::Ints;
  using Floats = typename Isa::Floats;
  constexpr int kSteps = kNibbles ? 4 : 8, kTable = kSteps * 128, kBlockBytes = kTable + (kMin ? 128 : 64);
  const Floats zero = Isa::all(w.zero);
  const int8_t* codes = x.codes + row * kGroup;
  const GroupScale* scales = x.scales + row;
  Floats acc[kRows][2];
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = Isa::zero();
  for (int64_t group = w.inputs / kGroup; group > 0; --group) {
    Ints sums[kRows][2];
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = sums[r][1] = kNibbles ? Isa::zero_ints() : Isa::all_ints(scales[r].biased);
    }
    if (ahead.next()) {
      GRISTMILL_UNROLL
      for (int i = 0; i < kBlockBytes; i += 64) __builtin_prefetch(ahead.data + i);
    }
    ahead.data += kBlockBytes;
    GRISTMILL_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      Ints weights[2], upper[2];
      GRISTMILL_UNROLL
      for (int p = 0; p < 2; ++p) {
        weights[p] = Isa::load_ints(panel + step * 128 + p * 64);
        if constexpr (kNibbles) {
          upper[p] = Isa::high_nibbles(weights[p]);
          weights[p] = Isa::low_nibbles(weights[p]);
        }
      }
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Ints a = step_codes_512<Isa>(codes + r * kGroup, step);
        sums[r][0] = Isa::dot(sums[r][0], weights[0], a);
        sums[r][1] = Isa::dot(sums[r][1], weights[1], a);
        if constexpr (kNibbles) {
          const Ints b = step_codes_512<Isa>(codes + r * kGroup, step + 4);
          sums[r][0] = Isa::dot(sums[r][0], upper[0], b);
          sums[r][1] = Isa::dot(sums[r][1], upper[1], b);
        }
      }
    }
    GRISTMILL_UNROLL
    for (int p = 0; p < 2; ++p) {
      const std::byte* const table = panel + kTable + p * 32;
      const Floats scale = Isa::halves(table);
      const Floats min = kMin ? Isa::halves(table + 64) : Isa::zero();
      const Floats offset = Isa::fnma(zero, scale, min);
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        if (kOffset) acc[r][p] = Isa::fma(offset, Isa::all(scales[r].scaled_sum), acc[r][p]);
        acc[r][p] = Isa::fma(Isa::floats(sums[r][p]), Isa::mul(scale, Isa::all(scales[r].scale)), acc[r][p]);
      }
    }
    panel += kBlockBytes;
    codes += static_cast<int64_t>(x.rows) * kGroup;
    scales += x.rows;
  }
  GRISTMILL_UNROLL
  for (int r = 0; r < kRows; ++r) {
    Isa::store(y + r * y_stride, acc[r][0]);
    Isa::store(y + r * y_stride + 16, acc[r][1]);
  }
}

template <class Isa, bool kNibbles, bool kMin, bool kOffset>
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
          tile_512<Isa, kNibbles, kMin, kOffset, 1>(w, panel, ahead, x, row, to, y_stride);
          break;
        case 2:
          tile_512<Isa, kNibbles, kMin, kOffset, 2>(w, panel, ahead, x, row, to, y_stride);
          break;
        case 3:
          tile_512<Isa, kNibbles, kMin, kOffset, 3>(w, panel, ahead, x, row, to, y_stride);
          break;
        case 4:
          tile_512<Isa, kNibbles, kMin, kOffset, 4>(w, panel, ahead, x, row, to, y_stride);
          break;
        case 5:
          tile_512<Isa, kNibbles, kMin, kOffset, 5>(w, panel, ahead, x, row, to, y_stride);
          break;
        default:
          tile_512<Isa, kNibbles, kMin, kOffset, 6>(w, panel, ahead, x, row, to, y_stride);
          break;
      }
      row += rows;
    }
  }
}

template <class Isa>
void avx512_coded_linear(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                         int64_t y_stride) {
  if (w.cls == ComputeClass::i4_group) {
    if (w.has_min) return coded_panels_512<Isa, true, true, true>(w, first, panels, x, y, y_stride);
    if (w.zero != 0.0f) return coded_panels_512<Isa, true, false, true>(w, first, panels, x, y, y_stride);
    return coded_panels_512<Isa, true, false, false>(w, first, panels, x, y, y_stride);
  }
  if (w.has_min) return coded_panels_512<Isa, false, true, true>(w, first, panels, x, y, y_stride);
  coded_panels_512<Isa, false, false, false>(w, first, panels, x, y, y_stride);
}

}  // namespace
}  // namespace gristmill::device::cpu
