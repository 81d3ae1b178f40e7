#pragma once
// A model file BUILDS a Program once; a Backend COMPILES it (device/backend.h). Contract of every op: output row t depends
// only on row t and its sequence's cache, bit for bit, for any step shape, thread count or chunking.
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

/// Causal grouped-query attention over a paged cache. q, k, v come as values; K is stored after rope.
struct Attention {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  float scale = 1.0f;
  std::optional<Rope> rope;
  CacheRef cache;
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
struct ResidualOp {
  Value x, y;
  Value out;
};
struct TapOp {  ///< copies rows out to StepResult::taps[slot]
  Value in;
  int slot = 0;
};
struct HeadOp {  ///< only the rows named in StepInputs::logit_rows go through
  Value in;
  Norm norm;
  WeightRef vocabulary;
};
using Op = std::variant<EmbedOp, LinearOp, AttentionOp, ResidualOp, TapOp, HeadOp>;

class Program {
 public:
  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<WeightDecl>& weights() const { return weights_; }
  const std::vector<CacheDecl>& caches() const { return caches_; }
  /// Width (elements per row) of a value.
  int width(Value value) const { return widths_.at(value.id); }
  uint32_t values() const { return static_cast<uint32_t>(widths_.size()); }
  const WeightSource& weight(WeightRef ref) const { return *weights_.at(ref.id).source; }
  int vocabulary() const { return vocabulary_; }
  int taps() const { return taps_; }
  int tap_width() const { return tap_width_; }

 private:
  friend class ProgramBuilder;
  std::vector<Op> ops_;
  std::vector<WeightDecl> weights_;
  std::vector<CacheDecl> caches_;
  std::vector<int> widths_;
  int vocabulary_ = 0;
  int taps_ = 0;
  int tap_width_ = 0;
};

/// The only header a model file needs. Shapes are checked as ops are added; a mismatch throws Error naming the weight.
class ProgramBuilder {
 public:
  WeightRef weight(std::shared_ptr<const WeightSource> source, RankSlice slice = {});
  CacheRef cache(int kv_heads, int head_dim);
  Value embed(WeightRef table);
  /// One value per linear, or one value when `activation` joins a pair.
  std::vector<Value> linear(Value x, std::optional<Norm> norm, std::vector<Linear> linears,
                            Activation activation = Activation::none);
  Value attention(Value q, Value k, Value v, Attention attention);
  Value residual(Value x, Value y);
  void tap(Value x, int slot);
  void head(Value x, Norm norm, WeightRef vocabulary);
  Program build() &&;

 private:
  Value value(int width);
  Program program_;
};

}  // namespace gristmill::device
