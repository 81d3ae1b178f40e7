#include "device/program.h"

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
  const Value out = value(program_.width(q));
  program_.ops_.push_back(AttentionOp{q, k, v, std::move(attention), out});
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
