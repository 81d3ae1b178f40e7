#pragma once
#include <cstddef>
#include <cstdint>

#include "device/cpu/packed_weight.h"
#include "device/program.h"

namespace gristmill::device::cpu {

/// Tokens between two folds of the buffer into the state, at absolute multiples of the position
/// (device/reference/delta_net.h has the definition).
inline constexpr int kDeltaChunk = 16;

/// Where the recurrent state of one DeltaNet layer lies in its slot, in floats:
///
///   inputs  [conv_width - 1][channels]         qkv before the convolution: position p is in row p % (conv_width - 1)
///   keys    [k_heads][k_dim][kDeltaChunk]      k' of the tokens since the last fold, a token per column
///   and of each value head
///   totals  [kDeltaChunk]                      G
///   writes  [kDeltaChunk][v_padded]            n
///   folded  [v_padded / kFloatPanel][k_dim][kFloatPanel]   S at the last fold
///
/// `folded` is a float32 PackedWeight of v_dim outputs and k_dim inputs, so that the kernels of float linears compute
/// S'k and S'q. Columns beyond v_dim stay zero.
struct DeltaNetLayout {
  explicit DeltaNetLayout(const StateDecl& decl)
      : k_heads(decl.k_heads),
        v_heads(decl.v_heads),
        k_dim(decl.k_dim),
        v_dim(decl.v_dim),
        v_padded((decl.v_dim + kFloatPanel - 1) / kFloatPanel * kFloatPanel),
        conv_width(decl.conv_width),
        channels(2 * decl.k_heads * decl.k_dim + decl.v_heads * decl.v_dim) {
    keys = whole_lines(product(conv_width - 1, channels));
    heads = keys + product(k_heads, k_dim) * kDeltaChunk;
    writes = kDeltaChunk;
    folded = writes + product(kDeltaChunk, v_padded);
    head_floats = folded + product(k_dim, v_padded);
    floats = heads + head_floats * static_cast<size_t>(v_heads);
  }

  int k_heads, v_heads, k_dim, v_dim, v_padded, conv_width;
  int channels;           ///< of qkv
  size_t keys, heads;     ///< in the slot
  size_t writes, folded;  ///< in a head
  size_t head_floats;
  size_t floats;  ///< of the layer, a multiple of 16

  size_t key_floats() const { return product(k_dim, kDeltaChunk); }

 private:
  static size_t product(int a, int b) { return static_cast<size_t>(a) * static_cast<size_t>(b); }
  static size_t whole_lines(size_t count) { return (count + 15) / 16 * 16; }
};

/// Where one layer's recurrent state is.
struct LayerState {
  DeltaNetLayout layout;
  size_t offset = 0;  ///< in a slot, in bytes
};

}  // namespace gristmill::device::cpu
