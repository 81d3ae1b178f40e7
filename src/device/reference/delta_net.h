#pragma once
#include <cstddef>
#include <cstdint>

#include "device/program.h"

namespace gristmill::device::reference {

/// Tokens between two folds of the buffer into the state, at absolute multiples of the position.
inline constexpr int kDeltaChunk = 16;

/// Where the recurrent state of one DeltaNet layer lies in its slot, in floats. Heads that share a key head make a
/// group; a group's state depends on no other, and groups follow each other:
///
///   inputs  [conv_width][2 * k_dim + values * v_dim]  qkv before the convolution: position p is in row p % conv_width
///   decay   [kDeltaChunk][values]                     G of the tokens since the last fold
///   key     [kDeltaChunk][k_dim]                      k'
///   write   [kDeltaChunk][values][v_dim]              n
///   folded  [values][k_dim][v_dim]                    S at the last absolute multiple of kDeltaChunk
struct DeltaNetLayout {
  explicit DeltaNetLayout(const StateDecl& decl);

  int values;    ///< value heads of a group
  int channels;  ///< of qkv that a group reads
  size_t decay, key, write, folded;
  size_t group_floats;
  size_t floats;  ///< of all groups
};

/// Weights of a DeltaNet as plain float32.
struct DeltaNetWeights {
  const float* conv = nullptr;  ///< [channels of qkv][conv_width]
  const float* a_log = nullptr;
  const float* dt_bias = nullptr;
  const float* out_norm = nullptr;
};

/// One token's inputs and result, whole rows.
struct DeltaNetRow {
  const float* qkv = nullptr;
  const float* z = nullptr;
  const float* b = nullptr;
  const float* a = nullptr;
  float* out = nullptr;
};

/// Floats of working memory of delta_net_token().
size_t delta_net_work(const DeltaNetLayout& layout, const DeltaNet& op);

/// Group `group` of the token at `position`; the tokens before it must have gone through the same state in order.
/// Position 0 starts from zeros whatever the state holds.
///
/// One definition serves every chunking: with S0 = folded, i = position % kDeltaChunk and G_i the sum of g over tokens
/// 0..i of the chunk,
///
///   n_i = beta_i * (v_i - e^{G_i} S0'k_i - sum_{j<i} e^{G_i - G_j} (k_i.k_j) n_j)
///   o_i = e^{G_i} S0'q_i + sum_{j<=i} e^{G_i - G_j} (q_i.k_j) n_j                       (j ascending)
///
/// and behind the chunk's last token S0 <- e^{G_15} S0 + sum_j e^{G_15 - G_j} k_j n_j'. This is the recurrence of
/// program.h unrolled over the tokens since the last fold.
void delta_net_token(const DeltaNet& op, const DeltaNetLayout& layout, const DeltaNetWeights& weights,
                     const DeltaNetRow& row, int group, int32_t position, float* group_state, float* work);

/// The recurrence's S of one group after `tokens` tokens: folded plus the buffer, [values][k_dim][v_dim].
void delta_net_state(const DeltaNet& op, const DeltaNetLayout& layout, const float* group_state, int32_t tokens,
                     float* out);

}  // namespace gristmill::device::reference
