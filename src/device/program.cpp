#include "device/program.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"

namespace gristmill::device {
namespace {

std::string shape_of(const WeightSource& weight) {
  return cat("[", weight.rows(), ", ", weight.columns(), "]");
}

/// Outputs and inputs of the part of a weight that this rank owns.
int64_t local_rows(const WeightDecl& decl) {
  return decl.slice.axis == RankSlice::Axis::rows ? decl.source->rows() / decl.slice.ranks : decl.source->rows();
}
int64_t local_columns(const WeightDecl& decl) {
  return decl.slice.axis == RankSlice::Axis::columns ? decl.source->columns() / decl.slice.ranks
                                                     : decl.source->columns();
}

void check_vector(const WeightSource& weight, int64_t width, const char* role) {
  if (weight.rows() != 1 || weight.columns() != width)
    throw Error(cat(weight.name(), ": ", role, " must have ", width, " elements, but its shape is ", shape_of(weight)));
}

void check_matrix(const WeightSource& weight, int64_t rows, int64_t columns, const char* role) {
  if (weight.rows() != rows || weight.columns() != columns)
    throw Error(cat(weight.name(), ": ", role, " must have shape [", rows, ", ", columns, "], but its shape is ",
                    shape_of(weight)));
}

void check_cache_scales(const CacheScales& scales, size_t channels) {
  for (const auto* const each : {&scales.k_scale, &scales.k_offset, &scales.v_scale, &scales.v_offset}) {
    if (each->size() != channels)
      throw Error(cat("attention: ", each->size(), " scales or offsets of an int8 cache for ", channels, " channels"));
    const bool is_scale = each == &scales.k_scale || each == &scales.v_scale;
    for (const float value : *each)
      if (!std::isfinite(value) || (is_scale && !(value > 0)))
        throw Error(cat("attention: ", value, is_scale ? " is no scale" : " is no offset", " of an int8 cache"));
  }
}

int int_width(const WeightSource& weight, int64_t width) {
  if (width < 1 || width > std::numeric_limits<int>::max())
    throw Error(cat(weight.name(), ": ", width, " outputs are out of range"));
  return static_cast<int>(width);
}

}  // namespace

Value ProgramBuilder::value(int width) {
  program_.widths_.push_back(width);
  return Value{program_.values() - 1};
}

WeightRef ProgramBuilder::weight(std::shared_ptr<const WeightSource> source, RankSlice slice) {
  if (source == nullptr) throw Error("a program's weight needs a source");
  if (source->rows() < 1 || source->columns() < 1)
    throw Error(cat(source->name(), ": empty weight of shape ", shape_of(*source)));
  if (slice.ranks < 1 || slice.rank < 0 || slice.rank >= slice.ranks)
    throw Error(cat(source->name(), ": rank ", slice.rank, " of ", slice.ranks, " does not exist"));
  const int64_t cut = slice.axis == RankSlice::Axis::rows      ? source->rows()
                      : slice.axis == RankSlice::Axis::columns ? source->columns()
                                                               : slice.ranks;
  if (cut % slice.ranks != 0)
    throw Error(cat(source->name(), ": shape ", shape_of(*source), " cannot be cut for ", slice.ranks, " ranks"));
  program_.weights_.push_back({std::move(source), slice});
  return WeightRef{static_cast<uint32_t>(program_.weights_.size() - 1)};
}

CacheRef ProgramBuilder::cache(int kv_heads, int head_dim) {
  if (kv_heads < 1 || head_dim < 1) throw Error(cat("a cache of ", kv_heads, " heads of ", head_dim, " is empty"));
  program_.caches_.push_back({kv_heads, head_dim});
  return CacheRef{static_cast<uint32_t>(program_.caches_.size() - 1)};
}

Value ProgramBuilder::embed(WeightRef table) {
  const WeightDecl& decl = program_.weights_.at(table.id);
  if (decl.source->rows() > std::numeric_limits<int32_t>::max())
    throw Error(cat(decl.source->name(), ": ", decl.source->rows(), " embeddings are out of range"));
  const Value out = value(int_width(*decl.source, decl.source->columns()));
  program_.ops_.push_back(EmbedOp{table, out});
  return out;
}

std::vector<Value> ProgramBuilder::linear(Value x, std::optional<Norm> norm, std::vector<Linear> linears,
                                          Activation activation) {
  const int width = program_.width(x);
  if (linears.empty()) throw Error("a linear op needs at least one weight");
  if (norm) check_vector(program_.weight(norm->weight), width, "a norm of these activations");
  std::vector<int> widths;
  for (const Linear& linear : linears) {
    const WeightDecl& decl = program_.weights_.at(linear.weight.id);
    const WeightSource& source = *decl.source;
    if (local_columns(decl) != width)
      throw Error(cat(source.name(), ": shape ", shape_of(source), " does not fit inputs of width ", width));
    int64_t outputs = local_rows(decl);
    if (linear.bias) check_vector(program_.weight(*linear.bias), outputs, "a bias of these outputs");
    if (linear.end == Collective::all_gather) outputs *= decl.slice.ranks;
    widths.push_back(int_width(source, outputs));
  }
  if (watches_) {
    if (norm) x = this->norm(x, *std::exchange(norm, std::nullopt));
    program_.ops_.push_back(RangeOp{x, static_cast<int>(program_.watched_.size())});
    program_.watched_.emplace_back();
    for (const Linear& linear : linears) program_.watched_.back().push_back(linear.weight);
  }
  LinearOp op{x, norm, std::move(linears), activation, {}};
  if (activation == Activation::silu_mul) {
    if (op.linears.size() != 2) throw Error("silu_mul joins exactly two linears, gate and up");
    if (widths[0] != widths[1])
      throw Error(cat(program_.weight(op.linears[1].weight).name(), ": ", widths[1], " outputs do not pair with the ",
                      widths[0], " of ", program_.weight(op.linears[0].weight).name()));
    widths.pop_back();
  }
  for (const int each : widths) op.out.push_back(value(each));
  program_.ops_.push_back(op);
  return op.out;
}

Value ProgramBuilder::attention(Value q, Value k, Value v, Attention attention) {
  const Attention& a = attention;
  if (a.heads < 1 || a.kv_heads < 1 || a.head_dim < 1 || a.heads % a.kv_heads != 0)
    throw Error(cat("attention: ", a.heads, " heads cannot share ", a.kv_heads, " key heads of ", a.head_dim));
  const auto check = [&](Value value, int64_t heads, const char* role) {
    if (program_.width(value) != heads * a.head_dim)
      throw Error(
          cat("attention: ", role, " of width ", program_.width(value), " are not ", heads, " heads of ", a.head_dim));
  };
  check(q, a.heads, "queries");
  check(k, a.kv_heads, "keys");
  check(v, a.kv_heads, "values");
  const CacheDecl& cache = program_.caches_.at(a.cache.id);
  if (cache.kv_heads != a.kv_heads || cache.head_dim != a.head_dim)
    throw Error(cat("attention: the cache holds ", cache.kv_heads, " heads of ", cache.head_dim, ", not ", a.kv_heads,
                    " of ", a.head_dim));
  if (a.rope && (a.rope->inv_freq.empty() || a.rope->inv_freq.size() > static_cast<size_t>(a.head_dim) / 2))
    throw Error(cat("attention: ", a.rope->inv_freq.size(), " rotary frequencies do not fit heads of ", a.head_dim));
  const auto check_norm = [&](const std::optional<Norm>& norm, int64_t heads, const char* role) {
    if (!norm) return;
    const WeightSource& weight = program_.weight(norm->weight);
    if (weight.rows() != 1 || (weight.columns() != a.head_dim && weight.columns() != heads * a.head_dim))
      throw Error(cat(weight.name(), ": ", role, " must have ", a.head_dim, " elements (each head) or ",
                      heads * a.head_dim, " (all heads), but its shape is ", shape_of(weight)));
  };
  check_norm(a.q_norm, a.heads, "a norm of queries");
  check_norm(a.k_norm, a.kv_heads, "a norm of keys");
  if (a.cache_scales) check_cache_scales(*a.cache_scales, static_cast<size_t>(a.kv_heads) * a.head_dim);
  const Value out = value(program_.width(q));
  program_.ops_.push_back(AttentionOp{q, k, v, std::move(attention), out});
  return out;
}

StateRef ProgramBuilder::state(const StateDecl& decl) {
  const StateDecl& d = decl;
  // Far above any model, and far below an overflow of the state's size.
  const auto fits = [](int size, int most) { return size >= 1 && size <= most; };
  if (!fits(d.k_heads, 1 << 12) || !fits(d.v_heads, 1 << 12) || !fits(d.k_dim, 1 << 12) || !fits(d.v_dim, 1 << 12) ||
      !fits(d.conv_width, 64) || d.v_heads % d.k_heads != 0)
    throw Error(cat("recurrent state: ", d.v_heads, " value heads of ", d.v_dim, " cannot share ", d.k_heads,
                    " key heads of ", d.k_dim, " with a convolution of ", d.conv_width));
  program_.states_.push_back(decl);
  return StateRef{static_cast<uint32_t>(program_.states_.size() - 1)};
}

Value ProgramBuilder::gate(Value x, Value gate) {
  const int width = program_.width(x);
  if (program_.width(gate) != width && program_.width(gate) != 1)
    throw Error(cat("gate: its width ", program_.width(gate), " is neither 1 nor the ", width, " of the gated rows"));
  const Value out = value(width);
  program_.ops_.push_back(GateOp{x, gate, out});
  return out;
}

Value ProgramBuilder::delta_net(Value qkv, Value z, Value b, Value a, DeltaNet delta_net) {
  const DeltaNet& d = delta_net;
  if (program_.states_.at(d.state.id) != StateDecl{d.v_heads, d.k_heads, d.k_dim, d.v_dim, d.conv_width})
    throw Error("DeltaNet: its recurrent state was declared with another shape");
  const int channels = 2 * d.k_heads * d.k_dim + d.v_heads * d.v_dim;
  const auto check = [&](Value value, int width, const char* role) {
    if (program_.width(value) != width)
      throw Error(cat("DeltaNet: ", role, " of width ", program_.width(value), ", not ", width));
  };
  check(qkv, channels, "queries, keys and values");
  check(z, d.v_heads * d.v_dim, "gates z");
  check(b, d.v_heads, "gates b");
  check(a, d.v_heads, "gates a");
  check_matrix(program_.weight(d.conv), channels, d.conv_width, "a convolution of these channels");
  check_vector(program_.weight(d.a_log), d.v_heads, "decays of these heads");
  check_vector(program_.weight(d.dt_bias), d.v_heads, "biases of these heads");
  check_vector(program_.weight(d.out_norm.weight), d.v_dim, "a norm of these heads");
  const Value out = value(d.v_heads * d.v_dim);
  program_.ops_.push_back(DeltaNetOp{qkv, z, b, a, delta_net, out});
  return out;
}

Value ProgramBuilder::norm(Value x, Norm norm) {
  check_vector(program_.weight(norm.weight), program_.width(x), "a norm of these activations");
  const Value out = value(program_.width(x));
  program_.ops_.push_back(NormOp{x, norm, out});
  return out;
}

Value ProgramBuilder::moe(Value normed, Moe moe) {
  const Moe& m = moe;
  const int hidden = program_.width(normed);
  const WeightSource& router = program_.weight(m.router);
  constexpr int kMostExperts = 1 << 16;
  if (m.experts < 1 || m.experts > kMostExperts || m.top_k < 1 || m.top_k > m.experts || m.width < 1)
    throw Error(
        cat(router.name(), ": ", m.top_k, " of ", m.experts, " experts of width ", m.width, " cannot be chosen"));
  check_matrix(router, m.experts, hidden, "a router of these experts");
  if (m.select_bias) check_vector(program_.weight(*m.select_bias), m.experts, "a bias of these experts");
  check_matrix(program_.weight(m.gate_up), int64_t{m.experts} * 2 * m.width, hidden, "gate and up rows of all experts");
  check_matrix(program_.weight(m.down), int64_t{m.experts} * hidden, m.width, "down rows of all experts");
  const Value out = value(hidden);
  program_.ops_.push_back(MoeOp{normed, moe, out});
  return out;
}

Value ProgramBuilder::residual(Value x, Value y) {
  if (program_.width(x) != program_.width(y))
    throw Error(cat("residual: widths ", program_.width(x), " and ", program_.width(y), " differ"));
  const Value out = value(program_.width(x));
  program_.ops_.push_back(ResidualOp{x, y, out});
  return out;
}

void ProgramBuilder::tap(Value x, int slot) {
  if (slot != program_.taps_)
    throw Error(cat("tap ", slot, ": taps are numbered in order, the next is ", program_.taps_));
  if (slot > 0 && program_.tap_width_ != program_.width(x))
    throw Error(cat("tap ", slot, ": width ", program_.width(x), " differs from ", program_.tap_width_, " of tap 0"));
  program_.tap_width_ = program_.width(x);
  program_.taps_ = slot + 1;
  program_.ops_.push_back(TapOp{x, slot});
}

void ProgramBuilder::head(Value x, Norm norm, WeightRef vocabulary) {
  const WeightSource& weight = program_.weight(vocabulary);
  if (program_.vocabulary_ != 0) throw Error(cat(weight.name(), ": a program has one head"));
  check_vector(program_.weight(norm.weight), program_.width(x), "a norm of these activations");
  if (weight.columns() != program_.width(x))
    throw Error(cat(weight.name(), ": shape ", shape_of(weight), " does not fit inputs of width ", program_.width(x)));
  program_.vocabulary_ = int_width(weight, weight.rows());
  program_.ops_.push_back(HeadOp{x, norm, vocabulary});
}

Program ProgramBuilder::build() && {
  if (program_.vocabulary_ == 0) throw Error("a program without a head computes nothing");
  for (const Op& op : program_.ops_)
    if (const auto* embed = std::get_if<EmbedOp>(&op);
        embed != nullptr && program_.weight(embed->table).rows() != program_.vocabulary_)
      throw Error(cat(program_.weight(embed->table).name(), ": ", program_.weight(embed->table).rows(),
                      " embeddings, but the head knows ", program_.vocabulary_, " tokens"));
  return std::move(program_);
}

}  // namespace gristmill::device
