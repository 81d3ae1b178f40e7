#pragma once
// Linears of codes for AMX: what avx512_coded_linear.h and avx512_channel_linear.h compute, for more rows than a few.
// Include inside a target region. `Tiles` names the tile instructions (amx_tiles.h), `Isa` those around them
// (avx512_vnni.h).
//
// Weights are packed as for AVX-512: four inputs of an output lie together, so that a step's 64 bytes of 16 outputs
// are a row of the tile that TDPBSUD multiplies by, and a panel's two halves are loaded with a stride of 128 bytes.
// The sums are exact integers, whichever instruction forms them: rows give the same bits in tiles as alone.
//
// Scales per group need the sums every 32 inputs, half the depth of a tile;
// one scale per output lets two blocks of inputs fill it, for which their activations are put side by side.
#include <algorithm>
#include <cstring>

#include "device/cpu/amx_shape.h"
#include "device/cpu/kernels.h"
#include "device/cpu/panel_ahead.h"

namespace gristmill::device::cpu {
namespace {

/// Up to this many rows read weights as fast as memory gives them without tiles.
constexpr int kAmxFewRows = 4;

/// A block's 8 steps as bytes: 4-bit codes hold steps i and i + 4 in the halves of a byte.
template <class Isa>
void unpack_nibbles(const std::byte* block, std::byte* steps) {
  for (int i = 0; i < 512; i += 64) {
    const typename Isa::Ints both = Isa::load_ints(block + i);
    Isa::store_ints(steps + i, Isa::low_nibbles(both));
    Isa::store_ints(steps + 512 + i, Isa::high_nibbles(both));
  }
}

template <class Tiles, class Isa, bool kNibbles, bool kMin, bool kOffset>
void amx_coded_pass(const PackedWeight& w, const AmxShape<Tiles>& shape, const std::byte* panel, PanelAhead ahead,
                    const QuantizedBlock& x, int row, float* y, int64_t y_stride) {
  using Floats = typename Isa::Floats;
  constexpr int kTable = kNibbles ? 512 : 1024, kBlockBytes = kTable + (kMin ? 128 : 64);
  alignas(64) int32_t sums[kAmxRows][kAmxPanel];
  alignas(64) std::byte steps[1024];
  const Floats zero = Isa::all(w.zero);
  const int8_t* codes = x.codes + row * kGroup;
  const GroupScale* scales = x.scales + row;
  for (int r = 0; r < shape.rows(); ++r)
    for (int p = 0; p < kAmxPanel; p += Isa::kLanes) Isa::store(y + r * y_stride + p, Isa::zero());
  for (int64_t group = w.inputs / kGroup; group > 0; --group) {
    prefetch(ahead, kBlockBytes);
    if constexpr (kNibbles) unpack_nibbles<Isa>(panel, steps);
    shape.zero();
    shape.template multiply<false>(codes, kGroup, kNibbles ? steps : panel);
    shape.store(sums, sizeof sums[0]);
    for (int p = 0; p < kAmxPanel; p += Isa::kLanes) {
      const Floats scale = Isa::halves(panel + kTable + 2 * p);
      const Floats min = kMin ? Isa::halves(panel + kTable + 64 + 2 * p) : Isa::zero();
      const Floats offset = Isa::fnma(zero, scale, min);
      for (int r = 0; r < shape.rows(); ++r) {
        float* const to = y + r * y_stride + p;
        typename Isa::Ints sum = Isa::load_ints(sums[r] + p);
        if constexpr (!kNibbles) sum = Isa::add(sum, Isa::all_ints(scales[r].biased));
        Floats acc = Isa::load(to);
        if (kOffset) acc = Isa::fma(offset, Isa::all(scales[r].scaled_sum), acc);
        Isa::store(to, Isa::fma(Isa::floats(sum), Isa::mul(scale, Isa::all(scales[r].scale)), acc));
      }
    }
    panel += kBlockBytes;
    codes += static_cast<int64_t>(x.rows) * kGroup;
    scales += x.rows;
  }
}

template <class Tiles, class Isa, bool kNibbles, bool kMin, bool kOffset>
void amx_coded_panels(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                      int64_t y_stride) {
  AmxShape<Tiles> shape(kGroup);
  amx_passes(w, first, panels, x.rows, shape, y, y_stride,
             [&](const std::byte* panel, const PanelAhead& ahead, int row, float* to) {
               amx_coded_pass<Tiles, Isa, kNibbles, kMin, kOffset>(w, shape, panel, ahead, x, row, to, y_stride);
             });
}

/// Kernels::coded_linear for more than kAmxFewRows rows.
template <class Tiles, class Isa>
void amx_coded_linear(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                      int64_t y_stride) {
  if (w.cls == ComputeClass::i4_group) {
    if (w.has_min) return amx_coded_panels<Tiles, Isa, true, true, true>(w, first, panels, x, y, y_stride);
    if (w.zero != 0.0f) return amx_coded_panels<Tiles, Isa, true, false, true>(w, first, panels, x, y, y_stride);
    return amx_coded_panels<Tiles, Isa, true, false, false>(w, first, panels, x, y, y_stride);
  }
  if (w.has_min) return amx_coded_panels<Tiles, Isa, false, true, true>(w, first, panels, x, y, y_stride);
  amx_coded_panels<Tiles, Isa, false, false, false>(w, first, panels, x, y, y_stride);
}

/// One scale per output: two blocks of inputs at a time.
template <class Tiles, class Isa, bool kNibbles>
void amx_channel_pass(const PackedWeight& w, const AmxShape<Tiles>& shape, const std::byte* panel, PanelAhead ahead,
                      const TokenBlock& x, int row, float* y, int64_t y_stride) {
  constexpr int kBlockBytes = kNibbles ? 512 : 1024, kAdded = kNibbles ? 8 : 128;
  alignas(64) int32_t sums[kAmxRows][kAmxPanel];
  alignas(64) std::byte steps[2048];
  alignas(64) int8_t pairs[kAmxRows][2 * kGroup];
  const int32_t* const addends = w.addends(panel);
  const float* const scales = w.scales(panel);
  const TokenScale* const tokens = x.scales + row;
  const int8_t* codes = x.codes + row * kGroup;
  const int64_t row_block = static_cast<int64_t>(x.rows) * kGroup;
  shape.zero();
  for (int64_t left = w.blocks(); left > 0; left -= 2) {
    const bool whole = left > 1;
    prefetch(ahead, kBlockBytes);
    if (whole) prefetch(ahead, kBlockBytes);
    for (int r = 0; r < shape.rows(); ++r) {
      std::memcpy(pairs[r], codes + r * kGroup, kGroup);
      if (whole) {
        std::memcpy(pairs[r] + kGroup, codes + row_block + r * kGroup, kGroup);
      } else {
        std::memset(pairs[r] + kGroup, 0, kGroup);
      }
    }
    const std::byte* weights = panel;
    if (kNibbles || !whole) {  // behind the last block there are no codes to load: zeros take their place
      if constexpr (kNibbles) {
        unpack_nibbles<Isa>(panel, steps);
        if (whole) unpack_nibbles<Isa>(panel + kBlockBytes, steps + 1024);
      } else {
        std::memcpy(steps, panel, 1024);
      }
      if (!whole) std::memset(steps + 1024, 0, 1024);
      weights = steps;
    }
    shape.template multiply<false>(pairs[0], sizeof pairs[0], weights);
    panel += 2 * kBlockBytes;
    codes += 2 * row_block;
  }
  shape.store(sums, sizeof sums[0]);
  for (int p = 0; p < kAmxPanel; p += Isa::kLanes) {
    const typename Isa::Ints start = Isa::load_ints(addends + p);
    const typename Isa::Floats scale = Isa::load(scales + p);
    for (int r = 0; r < shape.rows(); ++r) {
      const typename Isa::Ints from = Isa::sub(start, Isa::all_ints(kAdded * tokens[r].sum));
      const typename Isa::Ints sum = Isa::add(Isa::load_ints(sums[r] + p), from);
      Isa::store(y + r * y_stride + p, Isa::mul(Isa::mul(Isa::floats(sum), scale), Isa::all(tokens[r].scale)));
    }
  }
}

/// 4-bit codes with a scale per group of a multiple of 32 inputs.
template <class Tiles, class Isa>
void amx_grouped_pass(const PackedWeight& w, const AmxShape<Tiles>& shape, const std::byte* panel, PanelAhead ahead,
                      const TokenBlock& x, int row, float* y, int64_t y_stride) {
  constexpr int kBlockBytes = 512;
  alignas(64) int32_t sums[kAmxRows][kAmxPanel];
  alignas(64) std::byte steps[1024];
  const float* scales = w.scales(panel);
  const TokenScale* const tokens = x.scales + row;
  const int8_t* codes = x.codes + row * kGroup;
  const int32_t* block_sums = x.sums + row;
  for (int r = 0; r < shape.rows(); ++r)
    for (int p = 0; p < kAmxPanel; p += Isa::kLanes) Isa::store(y + r * y_stride + p, Isa::zero());
  const int64_t groups = w.scale_groups(), all = w.blocks(), per_group = w.group / kGroup;
  int64_t done = 0;
  for (int64_t group = 0; group < groups; ++group, scales += kAmxPanel) {
    int32_t added[kAmxRows] = {};
    shape.zero();
    for (const int64_t end = std::min(all, done + per_group); done < end; ++done) {
      prefetch(ahead, kBlockBytes);
      unpack_nibbles<Isa>(panel, steps);
      shape.template multiply<false>(codes, kGroup, steps);
      for (int r = 0; r < shape.rows(); ++r) added[r] += 8 * block_sums[r];
      panel += kBlockBytes;
      codes += static_cast<int64_t>(x.rows) * kGroup;
      block_sums += x.rows;
    }
    shape.store(sums, sizeof sums[0]);
    for (int p = 0; p < kAmxPanel; p += Isa::kLanes) {
      const typename Isa::Floats scale = Isa::load(scales + p);
      for (int r = 0; r < shape.rows(); ++r) {
        float* const to = y + r * y_stride + p;
        const typename Isa::Ints sum = Isa::sub(Isa::load_ints(sums[r] + p), Isa::all_ints(added[r]));
        Isa::store(to, Isa::fma(Isa::floats(sum), scale, Isa::load(to)));
      }
    }
  }
  for (int r = 0; r < shape.rows(); ++r)
    for (int p = 0; p < kAmxPanel; p += Isa::kLanes) {
      float* const to = y + r * y_stride + p;
      Isa::store(to, Isa::mul(Isa::load(to), Isa::all(tokens[r].scale)));
    }
}

/// Kernels::channel_linear for more than kAmxFewRows rows, with one scale per output or 4-bit codes with groups of a
/// multiple of 32 inputs.
template <class Tiles, class Isa>
void amx_channel_linear(const PackedWeight& w, int64_t first, int64_t panels, const TokenBlock& x, float* y,
                        int64_t y_stride) {
  AmxShape<Tiles> shape(w.group == 0 ? 2 * kGroup : kGroup);
  amx_passes(w, first, panels, x.rows, shape, y, y_stride,
             [&](const std::byte* panel, const PanelAhead& ahead, int row, float* to) {
               if (w.group != 0) {
                 amx_grouped_pass<Tiles, Isa>(w, shape, panel, ahead, x, row, to, y_stride);
               } else if (w.cls == ComputeClass::i4_channel) {
                 amx_channel_pass<Tiles, Isa, true>(w, shape, panel, ahead, x, row, to, y_stride);
               } else {
                 amx_channel_pass<Tiles, Isa, false>(w, shape, panel, ahead, x, row, to, y_stride);
               }
             });
}

/// Whether amx_channel_linear computes this class.
inline bool amx_takes(const PackedWeight& w) {
  return w.group == 0 || (w.cls == ComputeClass::i4_channel && w.group % kGroup == 0);
}

}  // namespace
}  // namespace gristmill::device::cpu
