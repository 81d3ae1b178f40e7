#pragma once
// A model file BUILDS a Program once; a Backend COMPILES it (device/backend.h). Contract of every op: output row t
// depends only on row t and its sequence's cache, bit for bit, for any step shape, thread count or chunking.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "device/weight_source.h"

namespace gristmill::device {

/// The result of an op on this rank: rows x width activations. Layout is the back end's secret.
struct Value {
  uint32_t id = UINT32_MAX;
  bool operator==(const Value&) const = default;
};
struct WeightRef {
  uint32_t id = UINT32_MAX;
  bool operator==(const WeightRef&) const = default;
};
struct CacheRef {
  uint32_t id = UINT32_MAX;
};
struct StateRef {
  uint32_t id = UINT32_MAX;
};

/// Which part of a weight a rank owns. Axis::rows cuts outputs (column parallel), Axis::columns cuts inputs (row
/// parallel, in 8 canonical segments).
struct RankSlice {
  enum class Axis : uint8_t { none, rows, columns };
  Axis axis = Axis::none;
  int rank = 0;
  int ranks = 1;
};

/// How the ranks' results are joined after an op; a phase boundary, never a blocking call inside a kernel.
enum class Collective : uint8_t { none, all_reduce, reduce_scatter, all_gather };

enum class Activation : uint8_t {
  none,
  silu_mul,  ///< on the pair (gate, up): silu(gate) * up
};

/// rms(x; w, eps) = w * x / sqrt(mean(x^2) + eps)
struct Norm {
  WeightRef weight;
  float eps = 1e-5f;
};

/// y = W x (+ bias)
struct Linear {
  WeightRef weight;
  std::optional<WeightRef> bias;
  Collective end = Collective::none;
};

/// Rotary embedding on the first 2 * inv_freq.size() dimensions of each head, half-split pairs (j, j + n/2): angle =
/// position * inv_freq[j]; cos and sin are multiplied by `magnitude` (yarn). Scaling is already inside inv_freq.
struct Rope {
  std::vector<float> inv_freq;
  float magnitude = 1.0f;
};

/// Numbers known beforehand that turn K and V into codes of an int8 cache, one for each channel (K/V head * head_dim +
/// dimension): code = clamp(round(x * (1 / scale) + offset), -128, 127), ties to even, and x ~ (code - offset) * scale.
/// These are C8 of msmodelslim. Scales are positive, all numbers finite.
struct CacheScales {
  std::vector<float> k_scale, k_offset, v_scale, v_offset;  ///< [kv_heads * head_dim]
};

/// Causal grouped-query attention over a paged cache. q, k, v come as values; K is stored after norm and rope.
struct Attention {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float scale = 1.0f;
  std::optional<Rope> rope;
  CacheRef cache;
  /// Norms of q and k before rope: over each head (weight of head_dim elements), or over the whole row when the weight
  /// has heads * head_dim (kv_heads * head_dim) elements.
  std::optional<Norm> q_norm{}, k_norm{};
  /// Used where the cache is int8, which otherwise makes a scale per token; other caches do without.
  std::optional<CacheScales> cache_scales{};
};

/// Gated DeltaNet of one token (device/reference/delta_net.h has the definition of its arithmetic):
///
///   c = silu(causal convolution of qkv over the last conv_width tokens);  q, k, v = split(c)
///   value head h reads key head h * k_heads / v_heads, or h % k_heads where value heads are tiled
///   q' = q / sqrt(sum q^2 + 1e-6) / sqrt(k_dim);  k' = k / sqrt(sum k^2 + 1e-6)
///   g = -exp(a_log) * softplus(a + dt_bias);  beta = sigmoid(b)
///   S <- e^g S;  S <- S + k' (beta (v - S'k'))';  o = S'q'
///   out = rms(o; out_norm) * silu(z), per value head
///
/// Inputs: qkv [2 * k_heads * k_dim + v_heads * v_dim] (all q heads, all k heads, all v heads), z [v_heads * v_dim],
/// b and a [v_heads].
struct DeltaNet {
  int k_heads = 0;
  int v_heads = 0;
  int k_dim = 0;
  int v_dim = 0;
  int conv_width = 4;
  bool tiled = false;  ///< value heads are ordered as GGUF has them
  WeightRef conv;      ///< [channels of qkv, conv_width], oldest tap first
  WeightRef a_log;     ///< [v_heads]
  WeightRef dt_bias;   ///< [v_heads]
  Norm out_norm;       ///< [v_dim]
  StateRef state;
};

/// Mixture of experts: sum over the top_k chosen experts, in rank order, of w_e * down_e(silu(gate_e x) * (up_e x)).
/// The router's scores are float32. Rank is by (score + select_bias) descending, the lower expert among equals.
struct Moe {
  int experts = 0;
  int top_k = 0;
  int width = 0;                         ///< of one expert
  WeightRef router;                      ///< [experts, hidden]
  bool sigmoid = false;                  ///< scores are sigmoid(logit); else softmax over all experts
  std::optional<WeightRef> select_bias;  ///< [experts], added to the scores for choosing only
  bool renormalize = true;               ///< the chosen scores are divided by their sum
  float scale = 1.0f;                    ///< factor of all weights
  WeightRef gate_up;                     ///< [experts * 2 * width, hidden]: of each expert first gate, then up rows
  WeightRef down;                        ///< [experts * hidden, width]
  Collective end = Collective::none;
};

/// Recurrent state of one DeltaNet layer, float32: one slot per sequence and snapshot.
struct StateDecl {
  int v_heads = 0;
  int k_heads = 0;
  int k_dim = 0;
  int v_dim = 0;
  int conv_width = 0;
  bool operator==(const StateDecl&) const = default;
};

/// Paged K/V of one layer; its element type and block size are CacheOptions of the compilation.
struct CacheDecl {
  int kv_heads = 0;
  int head_dim = 0;
};

struct WeightDecl {
  std::shared_ptr<const WeightSource> source;
  RankSlice slice;
};

// The ops. Each knows its input values and the ids of its results.
/// Least and largest element of a value; infinite where an element is not finite.
struct ValueRange {
  float low = 0, high = 0;
};
struct EmbedOp {
  WeightRef table;
  Value out;
};
struct LinearOp {  ///< one norm, one quantization of the activations, many matrices
  Value in;
  std::optional<Norm> norm;
  std::vector<Linear> linears;
  Activation activation = Activation::none;  ///< silu_mul: exactly two linears, one result
  std::vector<Value> out;
};
struct AttentionOp {
  Value q, k, v;
  Attention attention;
  Value out;
};
struct GateOp {  ///< x * sigmoid(gate); a gate of width 1 scales the whole row
  Value x, gate;
  Value out;
};
struct DeltaNetOp {
  Value qkv, z, b, a;
  DeltaNet delta_net;
  Value out;
};
struct MoeOp {  ///< on rows that are normed already
  Value in;
  Moe moe;
  Value out;
};
struct NormOp {  ///< a norm whose result several ops read
  Value in;
  Norm norm;
  Value out;
};
struct ResidualOp {
  Value x, y;
  Value out;
};
struct TapOp {  ///< copies rows out to StepResult::taps[slot]
  Value in;
  int slot = 0;
};
struct RangeOp {  ///< least and largest element of all rows to StepResult::ranges[slot]
  Value in;
  int slot = 0;
};
struct HeadOp {  ///< only the rows named in StepInputs::logit_rows go through
  Value in;
  Norm norm;
  WeightRef vocabulary;
};
using Op =
    std::variant<EmbedOp, LinearOp, AttentionOp, ResidualOp, TapOp, HeadOp, GateOp, DeltaNetOp, MoeOp, NormOp, RangeOp>;

class Program {
 public:
  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<WeightDecl>& weights() const { return weights_; }
  const std::vector<CacheDecl>& caches() const { return caches_; }
  const std::vector<StateDecl>& states() const { return states_; }
  /// Width (elements per row) of a value.
  int width(Value value) const { return widths_.at(value.id); }
  uint32_t values() const { return static_cast<uint32_t>(widths_.size()); }
  const WeightSource& weight(WeightRef ref) const { return *weights_.at(ref.id).source; }
  int vocabulary() const { return vocabulary_; }
  int taps() const { return taps_; }
  int tap_width() const { return tap_width_; }
  /// By slot of RangeOp: the weights of the linears that read the value.
  const std::vector<std::vector<WeightRef>>& watched() const { return watched_; }

 private:
  friend class ProgramBuilder;
  std::vector<Op> ops_;
  std::vector<WeightDecl> weights_;
  std::vector<CacheDecl> caches_;
  std::vector<StateDecl> states_;
  std::vector<int> widths_;
  int vocabulary_ = 0;
  int taps_ = 0;
  int tap_width_ = 0;
  std::vector<std::vector<WeightRef>> watched_;
};

/// The only header a model file needs. Shapes are checked as ops are added; a mismatch throws Error naming the weight.
class ProgramBuilder {
 public:
  WeightRef weight(std::shared_ptr<const WeightSource> source, RankSlice slice = {});
  CacheRef cache(int kv_heads, int head_dim);
  Value embed(WeightRef table);
  /// From here on the inputs of linears, behind their norms, are watched by a RangeOp each (for calibration).
  void watch_inputs() { watches_ = true; }
  /// One value per linear, or one value when `activation` joins a pair.
  std::vector<Value> linear(Value x, std::optional<Norm> norm, std::vector<Linear> linears,
                            Activation activation = Activation::none);
  Value attention(Value q, Value k, Value v, Attention attention);
  StateRef state(const StateDecl& decl);
  /// A gate of width 1 scales whole rows.
  Value gate(Value x, Value gate);
  /// The state's shape must be that of the DeltaNet.
  Value delta_net(Value qkv, Value z, Value b, Value a, DeltaNet delta_net);
  Value norm(Value x, Norm norm);
  Value moe(Value normed, Moe moe);
  Value residual(Value x, Value y);
  void tap(Value x, int slot);
  void head(Value x, Norm norm, WeightRef vocabulary);
  Program build() &&;

 private:
  Value value(int width);
  Program program_;
  bool watches_ = false;
};

}  // namespace gristmill::device
