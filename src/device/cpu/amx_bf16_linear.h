#pragma once
// Linears of bfloat16 weights for AMX (TDPBF16PS). Include inside a target region. `Tiles` names the tile instructions
// (amx_tiles.h), `Isa` the rounding before them (avx512_bf16.h).
//
// The definition stands in amx_bf16.h: it is not that of the other sets.
//
// A panel of bfloat16 weights holds two inputs of an output side by side, which is a row of the tile that TDPBF16PS
// multiplies by: its halves are loaded as they lie. Tiles are used as in amx_shape.h.
#include <algorithm>
#include <cstring>

#include "device/cpu/amx_shape.h"
#include "device/cpu/kernels.h"
#include "device/cpu/panel_ahead.h"

namespace gristmill::device::cpu {
namespace {

template <class Tiles, class Isa>
void amx_bf16_pass(const PackedWeight& w, const AmxShape<Tiles>& shape, const std::byte* panel, PanelAhead ahead,
                   const float* x, int64_t x_stride, float* y, int64_t y_stride) {
  constexpr int kDepth = 32, kBlockBytes = kDepth / 2 * kStepBytes;
  alignas(64) uint16_t rows[kAmxRows][kDepth];
  alignas(64) std::byte steps[kBlockBytes];
  shape.zero();
  for (int64_t k = 0; k < w.inputs; k += kDepth) {
    const int inputs = static_cast<int>(std::min<int64_t>(kDepth, w.inputs - k));
    prefetch(ahead, kBlockBytes);
    for (int r = 0; r < shape.rows(); ++r) Isa::round(x + r * x_stride + k, inputs, rows[r]);
    const std::byte* weights = panel;
    if (inputs < kDepth) {  // behind the last pair there is nothing to load: zeros take its place
      const auto bytes = static_cast<size_t>((inputs + 1) / 2 * kStepBytes);
      std::memcpy(steps, panel, bytes);
      std::memset(steps + bytes, 0, sizeof steps - bytes);
      weights = steps;
    }
    shape.template multiply<true>(rows, sizeof rows[0], weights);
    panel += kBlockBytes;
  }
  shape.store(y, y_stride * static_cast<int64_t>(sizeof(float)));
}

/// y[r][c] of bf16 weights, as above.
template <class Tiles, class Isa>
void amx_bf16_linear(const PackedWeight& w, int64_t first, int64_t panels, const float* x, int64_t x_stride, int rows,
                     float* y, int64_t y_stride) {
  AmxShape<Tiles> shape(64);
  amx_passes(w, first, panels, rows, shape, y, y_stride,
             [&](const std::byte* panel, const PanelAhead& ahead, int row, float* to) {
               amx_bf16_pass<Tiles, Isa>(w, shape, panel, ahead, x + row * x_stride, x_stride, to, y_stride);
             });
}

}  // namespace
}  // namespace gristmill::device::cpu
