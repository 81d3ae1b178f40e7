#pragma once
// The kernels of one instruction set as a table of functions. Each function has one definition of its arithmetic,
// written down beside its portable form; every set gives the same bits for it (docs/architecture.md, "Numbers").
#include <cstdint>

#include "device/cpu/delta_net_layout.h"
#include "device/cpu/kv_layout.h"
#include "device/cpu/packed_weight.h"

namespace gristmill::device::cpu {

/// Rows of quantized activations lie together in blocks of this many: a block's codes for one group are read row after
/// row while the group's weights stay in registers, and a block of 64 x 576 codes fits L1.
inline constexpr int kRowBlock = 64;
/// Keys in an absolute partition of the context; partial results are merged in ascending order.
inline constexpr int kPartition = 256;
/// Rows (queries x heads of one K/V head) that a prefill tile aims at.
inline constexpr int kTileRows = 96;

/// What one row of activations knows of a group of 32 columns beside its codes.
struct GroupScale {
  float scale;       ///< x = scale * code
  float scaled_sum;  ///< scale * sum of the codes, rounded once
  int32_t biased;    ///< -128 * sum of the codes: takes back the 128 that kernels add to 8-bit weight codes
};

/// Up to kRowBlock rows of activations quantized to int8 per 32 columns: codes [groups][rows][32] in -127..127, scales
/// [groups][rows].
struct QuantizedBlock {
  const int8_t* codes = nullptr;
  const GroupScale* scales = nullptr;
  int rows = 0;
};

/// What a row of activations quantized as a whole has beside its codes.
struct TokenScale {
  float scale;  ///< x = scale * code; 1 for static inputs, whose scale is in the weights'
  int32_t sum;  ///< of the codes
};

/// Up to kRowBlock rows of activations, each quantized to int8 as a whole: codes [blocks of 32 inputs][rows][32], zeros
/// behind the last input, sums of each block's codes [blocks][rows].
struct TokenBlock {
  const int8_t* codes = nullptr;
  const int32_t* sums = nullptr;
  const TokenScale* scales = nullptr;
  int rows = 0;
};

/// Queries of one sequence against its cache. Query i stands at position first_position + i; row (i, h) of the
/// `group` heads that share the K/V head lies at q + i * q_stride + h * head_dim, already rotated and multiplied by
/// the softmax scale times log2(e).
struct AttentionQuery {
  const float* q = nullptr;
  int64_t q_stride = 0;
  int queries = 0;
  int group = 0;
  int first_position = 0;
};

/// Consecutive tokens of one value head within a chunk (device/cpu/delta_net_layout.h); token t of `count` stands at
/// place first + t of the chunk. Rows of `padded` columns unless said.
struct DeltaNetRows {
  int first = 0;
  int count = 0;
  int v_dim = 0;
  int padded = 0;
  const float* values = nullptr;  ///< [count][v_dim], rows value_stride apart
  int64_t value_stride = 0;
  const float* key_reads = nullptr;      ///< S'k
  float* query_reads = nullptr;          ///< S'q, becomes o
  const float* kept = nullptr;           ///< [count], e^{G_i}
  const float* beta = nullptr;           ///< [count]
  const float* key_weights = nullptr;    ///< [count][kDeltaChunk], e^{G_i - G_j} (k_i.k_j) for j < i
  const float* query_weights = nullptr;  ///< [count][kDeltaChunk], e^{G_i - G_j} (q_i.k_j) for j <= i
  float* writes = nullptr;               ///< [kDeltaChunk]: rows before `first` are read, those from there on written
};

/// Tokens through a causal convolution and silu, `n` channels of them. Rows `channels` apart belong to successive
/// positions; the inputs of the `width - 1` tokens before `position` come from `earlier`, where those of the last ones
/// are left: position p in row p % (width - 1), width `n` of a row `earlier_stride` apart. Before position 0 all is
/// zero.
struct ConvRows {
  const float* x = nullptr;  ///< [rows]
  int64_t x_stride = 0;
  float* out = nullptr;  ///< [rows], may be x
  int64_t out_stride = 0;
  int rows = 0;
  int64_t n = 0;
  int32_t position = 0;  ///< of the first row
  int width = 0;
  const float* taps = nullptr;  ///< [width], oldest first
  int64_t tap_stride = 0;
  float* earlier = nullptr;
  int64_t earlier_stride = 0;
};
inline constexpr int kMostConvWidth = 64;  // Program checks it

/// Gated DeltaNet. The products with the folded state are float linears.
struct DeltaNetKernels {
  /// out[i] = silu(s), s over j < width ascending, s = fma(taps[j][i], input of token t - width + 1 + j, s), from 0.
  void (*conv_silu)(const ConvRows& rows);
  /// x * (1 / sqrt(sum + 1e-6) * factor) in place; the sum of squares as in rms_norm.
  void (*l2_norm)(float* x, float factor, int64_t n);
  /// out = exp2(x * log2(e)); out may be x.
  void (*exp)(const float* x, int64_t n, float* out);
  /// out[r][j] = over k ascending, s = fma(x[r][k], keys[k][j], s), from 0, for the kDeltaChunk columns j.
  void (*key_products)(const float* keys, const float* x, int64_t x_stride, int rows, int k_dim, float* out,
                       int64_t out_stride);
  /// Token after token, s = fma(-kept, key_read, value), then over j < i ascending fma(-key_weight, write_j, s), times
  /// beta: write_i; and o = kept * query_read, then over j <= i ascending fma(query_weight, write_j, o).
  void (*rows)(const DeltaNetRows& rows);
  /// out[k][j] = factors[j] * keys[k][j] for the kDeltaChunk columns j.
  void (*scale_keys)(const float* keys, const float* factors, int k_dim, float* out);
  /// folded = kept * folded, then over j ascending fma(weighted_keys[k][j], writes[j][c], folded[k][c]).
  void (*fold)(float kept, const float* weighted_keys, const float* writes, int padded, int k_dim, float* folded);
};

struct Kernels {
  const char* name;
  int coded_panel;  ///< columns of a packed panel of the coded classes
  bool biased_i8;   ///< 8-bit codes are packed with 128 added
  /// Products of negative i8_channel codes are formed as |w| * ~x, since -x = ~x + 1: the sum of |w| is in the addends.
  bool complements_i8;
  int v_chunk;  ///< dimensions of V summed at once (KvLayout)

  /// y[r][c] for the outputs of `panels` panels from `first` on (all of them, padding too), r < x.rows:
  /// over groups g ascending, acc = fma(min_g - zero * scale_g, scaled_sum_g, acc), left out for classes with neither
  /// min nor zero; acc = fma(float(sum of code * x), scale_g * x.scale_g, acc).
  void (*coded_linear)(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                       int64_t y_stride);
  /// The same for the channel classes, with the integer sum of code * x over all inputs, or those of each group:
  ///   one scale per output   y = (float(sum + addend) * scale) * x.scale
  ///   scales per group       over groups ascending, acc = fma(float(sum_g), scale_g, acc); y = acc * x.scale
  void (*channel_linear)(const PackedWeight& w, int64_t first, int64_t panels, const TokenBlock& x, float* y,
                         int64_t y_stride);
  /// y[r][c] = over k ascending, acc = fma(x[r][k], w[c][k], acc), from 0; of i8_float the code is w, and y = acc *
  /// scale. Of f8_float w is 2^-8 of the code, and over groups ascending y = fma(acc of the group, scale_g, y), from 0.
  void (*float_linear)(const PackedWeight& w, int64_t first, int64_t panels, const float* x, int64_t x_stride, int rows,
                       float* y, int64_t y_stride);

  /// One row to int8: scale = max|x| / 127, code = round(x * (127 / max|x|)), ties to even; all zero where max|x| is
  /// below 1e-30; with a NaN among x the scale is one. Group g goes to codes + g * code_stride and scales + g *
  /// scale_stride.
  void (*quantize)(const float* x, int64_t groups, int8_t* codes, int64_t code_stride, GroupScale* scales,
                   int64_t scale_stride);
  /// One row of n values to int8 as a whole. Dynamic (`input` null): scale = max|x| / 127, code = round(x / scale),
  /// ties to even, within -127..127; all zero where the scale is 0, which is NaN with a NaN among x. Static: code =
  /// round(x / scale + offset) within -128..127. Block b of 32 goes to codes + b * code_stride, its sum to sums + b *
  /// sum_stride.
  void (*quantize_token)(const float* x, int64_t n, const StaticInput* input, int8_t* codes, int64_t code_stride,
                         int32_t* sums, int64_t sum_stride, TokenScale* scale);
  /// out = (x * 1 / sqrt(sum / n + eps)) * w; the sum of squares over 32 virtual lanes (lane i mod 32, ascending, FMA)
  /// and a tree of halves.
  void (*rms_norm)(const float* x, const float* w, float eps, int64_t n, float* out);
  /// out = x + y; out may be x or y.
  void (*add)(const float* x, const float* y, int64_t n, float* out);
  /// out = gate / (1 + exp2(-gate * log2(e))) * up; out may be gate or up.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  /// Pairs (j, j + half): (a * cos - b * sin, b * cos + a * sin) * factor, as fma(a, cos, -(b * sin)) and
  /// fma(b, cos, a * sin), then one multiplication; the dimensions beyond 2 * half are multiplied only.
  void (*rotate)(const float* x, const float* cos, const float* sin, int half, int head_dim, float factor, float* out);
  /// x to bf16 or f16, to nearest even.
  void (*round)(DType dtype, const float* x, int64_t n, uint16_t* out);
  /// One head's K or V to codes of a scaled cache type; returns what the values that attention reads from them are to
  /// be multiplied by, from the largest |x|. int8: scale = max / 127, code = round(x * (127 / max)). fp8_e4m3: code =
  /// round(x * (448 / max)), read as 2^-8 of what it says, scale = max / 448 * 2^8. Ties to even; scale 0 where max is
  /// below 1e-30, NaN where a value is.
  float (*encode)(DType dtype, const float* x, int n, uint8_t* codes);
  /// Index of the first maximum.
  int64_t (*argmax)(const float* x, int64_t n);

  /// One query against the keys [partition * 256, + keys) of its sequence: per head the maximum m of the scores, l =
  /// sum of exp2(score - m) and o = sum of exp2(score - m) * v, to out + h * out_stride as o[v_dim], m, l. A score is
  /// the FMA over d ascending; l goes over 16 virtual lanes (lane key mod 16) and a tree of halves; o ascends over the
  /// keys. fp8_e4m3: the key's scale multiplies the finished score, its V's exp2(...) in o. int8: device/cpu/
  /// int8_attention.h. `scratch` holds attention_scratch() bytes.
  void (*attend_partition)(const KvLayout& layout, const KvHead& kv, const AttentionQuery& query, int partition,
                           int keys, std::byte* scratch, float* out, int64_t out_stride);
  /// Joins the results of `partitions` partitions in ascending order and divides: out[head_dim]. Overwrites the first.
  void (*merge_partitions)(float* partials, int64_t stride, int partitions, int v_dim, int head_dim, float* out);
  /// All queries (queries * group rows of them) against all keys before and at their positions: what attend_partition
  /// and merge_partitions give, bit for bit. Row (i, h) goes to out + i * out_stride + h * head_dim.
  void (*attend_tile)(const KvLayout& layout, const KvHead& kv, const AttentionQuery& query, std::byte* scratch,
                      float* out, int64_t out_stride);
  /// out = x / (1 + exp2(-gate * log2(e))); out may be x or gate.
  void (*gate)(const float* x, const float* gate, int64_t n, float* out);
  /// out = fma(weight, x, out).
  void (*add_weighted)(float weight, const float* x, int64_t n, float* out);
  DeltaNetKernels delta_net;
};

/// Kernels::channel_linear in plain C++, for any group and any set's packing.
void portable_channel_linear(const PackedWeight& w, int64_t first, int64_t panels, const TokenBlock& x, float* y,
                             int64_t y_stride);

const Kernels& portable_kernels();
#if defined(__x86_64__)
const Kernels& avx2_kernels();
const Kernels& avxvnni_kernels();
const Kernels& avx512_kernels();
const Kernels& amx_kernels();
#elif defined(__aarch64__)
const Kernels& dotprod_kernels();
const Kernels& i8mm_kernels();
const Kernels& sve256_kernels();
#endif

/// Queries of a prefill tile when `group` heads share a K/V head.
int tile_queries(int group);
/// Working memory of attend_partition and attend_tile, in bytes.
size_t attention_scratch(const KvLayout& layout, int group);
/// Floats of one head's partial result.
inline int64_t partial_floats(const KvLayout& layout) {
  return layout.v_dim + 16;
}

}  // namespace gristmill::device::cpu
