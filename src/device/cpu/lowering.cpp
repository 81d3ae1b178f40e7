#include "device/cpu/lowering.h"

#include <algorithm>
#include <deque>
#include <map>

#include "base/error.h"
#include "device/cpu/expert_stages.h"

namespace gristmill::device::cpu {
namespace {

int64_t padded(int64_t width) {
  return (width + kFloatPanel - 1) / kFloatPanel * kFloatPanel;
}

/// Buffers for the values of a Program; one is given again when its value has been read for the last time.
class RowBuffers {
 public:
  RowBuffers(Layout& layout, int rows) : layout_(layout), rows_(rows) {}

  Rows take(int width) {
    const int64_t stride = padded(width);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->stride != stride) continue;
      Rows rows = *it;
      free_.erase(it);
      rows.width = width;
      return rows;
    }
    return {layout_.add(static_cast<size_t>(stride) * rows_ * sizeof(float)), stride, width};
  }
  void give(const Rows& rows) { free_.push_back(rows); }

 private:
  Layout& layout_;
  int rows_;
  std::vector<Rows> free_;
};

class Lowering {
 public:
  Lowering(const Program& program, const Limits& limits, const CacheOptions& cache, const Kernels& kernels,
           WeightStore& weights, int members)
      : program_(program),
        limits_(limits),
        cache_(cache),
        kernels_(kernels),
        weights_(weights),
        members_(members),
        buffers_(result_.scratch, limits.tokens),
        values_(program.values()),
        uses_(program.values(), 0),
        last_use_(program.values(), 0) {}

  Lowered run() && {
    lay_out_caches();
    lay_out_states();
    count_uses();
    for (current_ = 0; current_ < program_.ops().size(); ++current_) {
      moved_ = UINT32_MAX;
      std::visit([this](const auto& op) { lower(op); }, program_.ops()[current_]);
      for (uint32_t id = 0; id < values_.size(); ++id) {
        const bool over = uses_[id] > 0 && last_use_[id] == current_ && id != moved_;
        if (over && values_[id].stride != 0) buffers_.give(values_[id]);
      }
    }
    for (const auto& stage : result_.stages)
      result_.member_bytes = std::max(result_.member_bytes, stage->working_bytes());
    result_.member_bytes = (result_.member_bytes + 4095) / 4096 * 4096;
    result_.member_offset = result_.scratch.add(result_.member_bytes * members_);
    return std::move(result_);
  }

 private:
  void lay_out_caches() {
    const int size = cache_.block_size;
    if (size < 8 || size > 256 || (size & (size - 1)) != 0) {
      throw Error(cat("KV cache block size ", size, ": must be 8, 16, 32, 64, 128 or 256"));
    }
    for (const CacheDecl& decl : program_.caches()) {
      if (cache_.dtype == DType::i8 && decl.head_dim > 512) {
        throw Error(cat("KV cache type int8: heads of ", decl.head_dim, " dimensions; at most 512 are summed exactly"));
      }
      result_.caches.push_back(
          {KvLayout(cache_.dtype, decl.kv_heads, decl.head_dim, size, kernels_.v_chunk), result_.bytes_per_block});
      result_.bytes_per_block += result_.caches.back().layout.block_bytes();
    }
  }

  void lay_out_states() {
    for (const StateDecl& decl : program_.states()) {
      result_.states.push_back({DeltaNetLayout(decl), result_.bytes_per_state});
      result_.bytes_per_state += result_.states.back().layout.floats * sizeof(float);
    }
  }

  void count_uses() {
    const auto use = [&](Value value, size_t at) {
      ++uses_.at(value.id);
      last_use_[value.id] = at;
    };
    for (size_t i = 0; i < program_.ops().size(); ++i) {
      const Op& op = program_.ops()[i];
      if (const auto* linear = std::get_if<LinearOp>(&op)) use(linear->in, i);
      if (const auto* attention = std::get_if<AttentionOp>(&op)) {
        use(attention->q, i);
        use(attention->k, i);
        use(attention->v, i);
      }
      if (const auto* residual = std::get_if<ResidualOp>(&op)) {
        use(residual->x, i);
        use(residual->y, i);
      }
      if (const auto* gate = std::get_if<GateOp>(&op)) {
        use(gate->x, i);
        use(gate->gate, i);
      }
      if (const auto* delta_net = std::get_if<DeltaNetOp>(&op))
        for (const Value in : {delta_net->qkv, delta_net->z, delta_net->b, delta_net->a}) use(in, i);
      if (const auto* moe = std::get_if<MoeOp>(&op)) use(moe->in, i);
      if (const auto* norm = std::get_if<NormOp>(&op)) use(norm->in, i);
      if (const auto* tap = std::get_if<TapOp>(&op)) use(tap->in, i);
      if (const auto* range = std::get_if<RangeOp>(&op)) use(range->in, i);
      if (const auto* head = std::get_if<HeadOp>(&op)) use(head->in, i);
    }
  }

  Rows& define(Value value) { return values_.at(value.id) = buffers_.take(program_.width(value)); }
  const Rows& rows(Value value) const { return values_.at(value.id); }

  template <class T, class... Arguments>
  T& add(Arguments&&... arguments) {
    auto stage = std::make_unique<T>(std::forward<Arguments>(arguments)...);
    T& made = *stage;
    result_.stages.push_back(std::move(stage));
    return made;
  }

  CodedRows coded_rows(int width, int rows) {
    const size_t padded_rows = static_cast<size_t>(rows);
    CodedRows coded;
    coded.groups = width / kGroup;
    coded.codes = result_.scratch.add(padded_rows * static_cast<size_t>(width));
    coded.scales = result_.scratch.add(padded_rows * static_cast<size_t>(coded.groups) * sizeof(GroupScale));
    return coded;
  }
  TokenRows token_rows(int width, int rows, const std::optional<StaticInput>& input) {
    TokenRows made;
    made.width = width;
    made.input = input;
    const auto blocks = static_cast<size_t>(rows) * static_cast<size_t>(made.blocks());
    made.codes = result_.scratch.add(blocks * kGroup);
    made.sums = result_.scratch.add(blocks * sizeof(int32_t));
    made.scales = result_.scratch.add(static_cast<size_t>(rows) * sizeof(TokenScale));
    return made;
  }
  /// Rows quantized as a whole in each way that one of the weights asks for; buffers serve all layers.
  std::vector<TokenRows> shared_tokens(int width, const std::vector<const PackedWeight*>& weights) {
    std::vector<TokenRows> all;
    for (const PackedWeight* const weight : weights) {
      const auto same = [&](const TokenRows& rows) { return rows.input == weight->input; };
      if (!weight->channel() || std::any_of(all.begin(), all.end(), same)) continue;
      auto& pool = prepared_tokens_[width];
      if (pool.size() == all.size()) pool.push_back(token_rows(width, limits_.tokens, std::nullopt));
      all.push_back(pool[all.size()]);
      all.back().input = weight->input;
    }
    return all;
  }
  /// Quantized rows that live from one stage to the next; one buffer per width and purpose serves all layers.
  CodedRows shared_codes(std::map<int, CodedRows>& pool, int width) {
    auto [it, fresh] = pool.try_emplace(width);
    if (fresh) it->second = coded_rows(width, limits_.tokens);
    return it->second;
  }

  const Op* next() const { return current_ + 1 < program_.ops().size() ? &program_.ops()[current_ + 1] : nullptr; }

  /// What earlier ops left for the preparation of the op that reads their result.
  Preparation begin_preparation(Value in) {
    Preparation p;
    p.in = rows(in);
    if (pending_merge_ != nullptr) p.merge = pending_merge_;
    if (pending_sum_) {
      p.in = pending_sum_->in;
      p.addend = pending_sum_->addend;
      p.sum = pending_sum_->sum;
    }
    pending_merge_ = nullptr;
    pending_sum_.reset();
    return p;
  }

  void lower(const EmbedOp& op) { add<EmbedStage>(weights_.matrix(op.table), define(op.out)); }

  void lower(const LinearOp& op) {
    if (op.activation == Activation::silu_mul) weights_.interleave(op.linears[0].weight, op.linears[1].weight);
    std::vector<Matrix> matrices;
    std::vector<const PackedWeight*> read;
    for (const Linear& linear : op.linears) {
      Matrix matrix;
      matrix.weight = &weights_.matrix(linear.weight);
      if (linear.bias) matrix.bias = &weights_.vector(*linear.bias);
      read.push_back(matrix.weight);
      matrices.push_back(matrix);
    }
    LinearInput in;
    const int width = program_.width(op.in);
    if (ready_codes_) {
      in.codes = *ready_codes_;
      ready_codes_.reset();
    } else {
      in = prepare(begin_preparation(op.in), op.norm, width, read);
    }
    if (op.activation == Activation::silu_mul) {
      lower_gated(op, in, matrices);
    } else {
      for (size_t i = 0; i < matrices.size(); ++i) matrices[i].out = define(op.out[i]);
      add<LinearStage>(in, matrices);
    }
    if (normed_) buffers_.give(*normed_);
    normed_.reset();
  }

  /// The rows in every form that one of the weights reads.
  LinearInput prepare(Preparation p, const std::optional<Norm>& norm, int width,
                      const std::vector<const PackedWeight*>& read) {
    LinearInput in;
    const auto any = [&](auto is) { return std::any_of(read.begin(), read.end(), is); };
    const bool any_coded = any([](const PackedWeight* weight) { return weight->coded(); });
    const bool any_float = any([](const PackedWeight* weight) { return !weight->coded() && !weight->channel(); });
    if (norm) {
      p.norm_weight = &weights_.vector(norm->weight);
      p.norm_eps = norm->eps;
    }
    in.floats = p.sum ? *p.sum : p.in;
    if (any_float && norm) {
      normed_ = buffers_.take(width);
      p.floats = in.floats = *normed_;
    }
    if (any_coded) p.codes = in.codes = shared_codes(prepared_codes_, width);
    p.tokens = in.tokens = shared_tokens(width, read);
    if (p.merge != nullptr || p.addend || p.floats || p.codes || !p.tokens.empty()) add<PrepareStage>(p);
    return in;
  }

  void lower_gated(const LinearOp& op, const LinearInput& in, const std::vector<Matrix>& matrices) {
    const Value out = op.out[0];
    const auto* consumer = next() == nullptr ? nullptr : std::get_if<LinearOp>(next());
    const bool quantize = consumer != nullptr && consumer->in == out && !consumer->norm && uses_[out.id] == 1 &&
                          program_.width(out) % kGroup == 0 &&
                          std::all_of(consumer->linears.begin(), consumer->linears.end(),
                                      [&](const Linear& linear) { return weights_.matrix(linear.weight).coded(); });
    if (quantize) {
      ready_codes_ = shared_codes(gated_codes_, program_.width(out));
      add<GatedLinearStage>(in, matrices[0], matrices[1], std::nullopt, ready_codes_);
    } else {
      add<GatedLinearStage>(in, matrices[0], matrices[1], define(out), std::nullopt);
    }
  }

  void lower(const AttentionOp& op) {
    const Attention& attention = op.attention;
    LayerCache layer = result_.caches.at(attention.cache.id);
    if (attention.cache_scales && cache_.dtype == DType::i8)
      layer.scales = std::make_shared<const StaticCache>(*attention.cache_scales, attention.head_dim);
    const RotaryStage* rotary = attention.rope ? &rotary_for(*attention.rope) : nullptr;
    const Rows q = normed_parts(op.q, attention.q_norm), k = normed_parts(op.k, attention.k_norm);
    const Rows rotated = buffers_.take(program_.width(op.q));
    add<CacheWriteStage>(attention, rotary, layer, q, k, rows(op.v), rotated);
    if (attention.q_norm) buffers_.give(q);
    if (attention.k_norm) buffers_.give(k);
    const int partitions = (limits_.context + kPartition - 1) / kPartition;
    const size_t partial_bytes = sizeof(float) * static_cast<size_t>(limits_.seqs) * attention.heads * partitions *
                                 static_cast<size_t>(partial_floats(layer.layout));
    auto [partials, fresh] = partials_.try_emplace(partial_bytes);
    if (fresh) partials->second = result_.scratch.add(partial_bytes);
    const auto& stage = add<AttentionStage>(attention, work_for(attention.heads / attention.kv_heads), layer, rotated,
                                            define(op.out), partials->second, partitions);
    buffers_.give(rotated);
    pending_merge_ = &stage;
    const auto* consumer = next() == nullptr ? nullptr : std::get_if<LinearOp>(next());
    if (consumer == nullptr || !(consumer->in == op.out)) add<PrepareStage>(begin_preparation(op.out));
  }

  /// Queries or keys behind their norm, in a buffer of their own where there is one.
  Rows normed_parts(Value in, const std::optional<Norm>& norm) {
    if (!norm) return rows(in);
    const Rows out = buffers_.take(program_.width(in));
    const int width = static_cast<int>(program_.weight(norm->weight).columns());
    add<PartNormStage>(rows(in), weights_.vector(norm->weight), width, norm->eps, out);
    return out;
  }

  void lower(const GateOp& op) { add<GateStage>(rows(op.x), rows(op.gate), define(op.out)); }

  void lower(const NormOp& op) {
    Preparation p = begin_preparation(op.in);
    p.norm_weight = &weights_.vector(op.norm.weight);
    p.norm_eps = op.norm.eps;
    p.floats = define(op.out);
    add<PrepareStage>(p);
  }

  void lower(const DeltaNetOp& op) {
    const DeltaNet& d = op.delta_net;
    const Rows qkv = rows(op.qkv);
    const bool in_place = uses_[op.qkv.id] == 1;  // nobody else reads it
    DeltaNetFrame shared(result_.states.at(d.state.id), result_.bytes_per_state);
    shared.mixed = in_place ? qkv : buffers_.take(qkv.width);
    shared.products = buffers_.take(d.k_heads * 2 * kDeltaChunk);
    const size_t panel_bytes = sizeof(float) * static_cast<size_t>(d.k_heads) * shared.state.layout.key_floats();
    auto [panels, fresh] = key_panels_.try_emplace(panel_bytes);
    if (fresh)
      panels->second = result_.scratch.add(panel_bytes * DeltaNetFrame::most_panels(limits_.tokens, limits_.seqs));
    shared.panels = panels->second;
    add<DeltaNetInputStage>(d, shared, weights_.vector(d.conv), qkv);
    const DeltaNetHeadStage::Weights weights{&weights_.vector(d.a_log), &weights_.vector(d.dt_bias),
                                             &weights_.vector(d.out_norm.weight)};
    add<DeltaNetHeadStage>(d, shared, weights, rows(op.z), rows(op.b), rows(op.a), define(op.out));
    buffers_.give(shared.products);
    if (!in_place) buffers_.give(shared.mixed);
  }

  void lower(const MoeOp& op) {
    const Moe& moe = op.moe;
    const PackedWeight& router = weights_.matrix(moe.router);
    const PackedWeight& gate_up = weights_.matrix(moe.gate_up);
    const PackedWeight& down = weights_.matrix(moe.down);
    const ExpertBuffers& buffers = expert_buffers(moe, program_.width(op.in), gate_up, down);
    std::vector<const PackedWeight*> read{&router};
    if (gate_up.channel()) read.push_back(&gate_up);  // a token is quantized once, for all its experts
    const LinearInput in = prepare(begin_preparation(op.in), std::nullopt, program_.width(op.in), read);
    add<LinearStage>(in, std::vector<Matrix>{{&router, nullptr, buffers.scores}});
    add<RouteStage>(moe, moe.select_bias ? &weights_.vector(*moe.select_bias) : nullptr, buffers);
    add<PlaceStage>(buffers);
    std::vector<TokenRows> tokens;
    if (gate_up.channel()) tokens.push_back(in.tokens_for(gate_up));
    add<DispatchStage>(rows(op.in), tokens, buffers);
    add<ExpertGateStage>(gate_up, buffers);
    if (down.channel()) add<ExpertQuantizeStage>(buffers);
    add<ExpertDownStage>(down, buffers);
    add<CombineStage>(buffers, define(op.out));
  }

  const ExpertBuffers& expert_buffers(const Moe& moe, int hidden, const PackedWeight& gate_up,
                                      const PackedWeight& down) {
    const auto alike = [](const PackedWeight& a, const PackedWeight& b) {
      return a.coded() == b.coded() && a.channel() == b.channel() && a.input == b.input;
    };
    for (const ExpertBuffers& known : expert_buffers_)
      if (known.experts == moe.experts && known.top_k == moe.top_k && known.hidden == hidden &&
          known.width == moe.width && alike(*known.gate_up, gate_up) && alike(*known.down, down))
        return known;
    const int pairs = limits_.tokens * moe.top_k;
    const auto rows = [&](int count, int width) {
      const int64_t stride = padded(width);
      return Rows{result_.scratch.add(sizeof(float) * static_cast<size_t>(stride) * static_cast<size_t>(count)), stride,
                  width};
    };
    const auto input = [&](int width, const PackedWeight& weight, bool is_made_of_floats) {
      LinearInput made;
      if (weight.coded()) made.codes = coded_rows(width, pairs);
      if (weight.channel()) made.tokens.push_back(token_rows(width, pairs, weight.input));
      if (!weight.coded() && (!weight.channel() || is_made_of_floats)) made.floats = rows(pairs, width);
      return made;
    };
    ExpertBuffers b;
    b.experts = moe.experts, b.top_k = moe.top_k, b.hidden = hidden, b.width = moe.width;
    b.gate_up = &gate_up, b.down = &down;
    b.scores = rows(limits_.tokens, moe.experts);
    b.chosen = result_.scratch.add(sizeof(int32_t) * static_cast<size_t>(pairs));
    b.weights = result_.scratch.add(sizeof(float) * static_cast<size_t>(pairs));
    b.first = result_.scratch.add(sizeof(int32_t) * (static_cast<size_t>(moe.experts) + 1));
    b.place = result_.scratch.add(sizeof(int32_t) * static_cast<size_t>(pairs));
    b.active = result_.scratch.add(sizeof(int32_t) * (static_cast<size_t>(moe.experts) + 1));
    b.in = input(hidden, gate_up, false);
    b.inner = input(moe.width, down, true);
    b.results = rows(pairs, hidden);
    expert_buffers_.push_back(b);
    return expert_buffers_.back();
  }

  void lower(const ResidualOp& op) {
    PendingSum sum{rows(op.x), rows(op.y), {}};
    if (last_use_[op.x.id] == current_ && uses_[op.x.id] > 0) {
      moved_ = op.x.id;
      sum.sum = values_.at(op.out.id) = rows(op.x);
    } else {
      sum.sum = define(op.out);
    }
    pending_sum_ = sum;
    const auto* linear = next() == nullptr ? nullptr : std::get_if<LinearOp>(next());
    const auto* head = next() == nullptr ? nullptr : std::get_if<HeadOp>(next());
    const auto* norm = next() == nullptr ? nullptr : std::get_if<NormOp>(next());
    const bool fused = (norm != nullptr && norm->in == op.out) || (linear != nullptr && linear->in == op.out) ||
                       (head != nullptr && head->in == op.out && uses_[op.out.id] == 1);
    if (!fused) add<PrepareStage>(begin_preparation(op.out));
  }

  void lower(const TapOp& op) {
    result_.taps.push_back(result_.scratch.add(sizeof(float) * static_cast<size_t>(limits_.tokens) *
                                               static_cast<size_t>(program_.tap_width())));
    add<TapStage>(rows(op.in), result_.taps.back());
  }

  void lower(const RangeOp& op) {
    result_.ranges.push_back(result_.scratch.add(sizeof(ValueRange) * static_cast<size_t>(limits_.tokens)));
    add<RangeStage>(rows(op.in), result_.ranges.back());
  }

  void lower(const HeadOp& op) {
    const int width = program_.width(op.in);
    const PackedWeight& vocabulary = weights_.matrix(op.vocabulary);
    Preparation p = begin_preparation(op.in);
    p.sum.reset();  // only the gathered rows are summed, and nobody else reads them
    p.norm_weight = &weights_.vector(op.norm.weight);
    p.norm_eps = op.norm.eps;
    p.logit_rows = true;
    LinearInput in;
    if (vocabulary.channel()) {
      in.tokens.push_back(token_rows(width, limits_.rows, vocabulary.input));
      p.tokens = in.tokens;
    } else if (vocabulary.coded()) {
      p.codes = in.codes = coded_rows(width, limits_.rows);
    } else {
      const int64_t stride = padded(width);
      in.floats = {result_.scratch.add(sizeof(float) * static_cast<size_t>(stride) * limits_.rows), stride, width};
      p.floats = in.floats;
    }
    add<PrepareStage>(p);
    auto& head = add<HeadStage>(in, vocabulary);
    const int64_t stride = padded(program_.vocabulary());
    head.place(result_.scratch.add(sizeof(HeadStage::Best) * static_cast<size_t>(head.chunks()) * limits_.rows),
               {result_.scratch.add(sizeof(float) * static_cast<size_t>(stride) * limits_.rows), stride,
                program_.vocabulary()});
    result_.head = &head;
    result_.argmax = result_.scratch.add(sizeof(int32_t) * static_cast<size_t>(limits_.rows));
    add<ArgmaxStage>(head, result_.argmax);
  }

  const RotaryStage& rotary_for(const Rope& rope) {
    for (const RotaryStage* known : rotaries_) {
      if (known->rope().inv_freq == rope.inv_freq && known->rope().magnitude == rope.magnitude) return *known;
    }
    const int64_t stride = 2 * padded(static_cast<int64_t>(rope.inv_freq.size()));
    const Rows table{result_.scratch.add(sizeof(float) * static_cast<size_t>(stride) * limits_.tokens), stride,
                     static_cast<int>(stride)};
    rotaries_.push_back(&add<RotaryStage>(rope, table));
    return *rotaries_.back();
  }

  const AttentionWork& work_for(int group) {
    for (const auto& work : result_.works) {
      if (work->group() == group) return *work;
    }
    result_.works.push_back(std::make_unique<AttentionWork>(group));
    return *result_.works.back();
  }

  struct PendingSum {
    Rows in, addend, sum;
  };

  const Program& program_;
  const Limits& limits_;
  const CacheOptions& cache_;
  const Kernels& kernels_;
  WeightStore& weights_;
  int members_;
  Lowered result_;
  RowBuffers buffers_;
  std::vector<Rows> values_;
  std::vector<int> uses_;
  std::vector<size_t> last_use_;
  size_t current_ = 0;
  uint32_t moved_ = UINT32_MAX;  // the value whose buffer went on to the result of this op
  const AttentionStage* pending_merge_ = nullptr;
  std::optional<PendingSum> pending_sum_;
  std::optional<CodedRows> ready_codes_;
  std::optional<Rows> normed_;
  std::map<int, CodedRows> prepared_codes_, gated_codes_;
  std::map<int, std::vector<TokenRows>> prepared_tokens_;
  std::map<size_t, size_t> partials_, key_panels_;
  std::deque<ExpertBuffers> expert_buffers_;
  std::vector<const RotaryStage*> rotaries_;
};

}  // namespace

Lowered lower(const Program& program, const Limits& limits, const CacheOptions& cache, const Kernels& kernels,
              WeightStore& weights, int members) {
  return Lowering(program, limits, cache, kernels, weights, members).run();
}

}  // namespace gristmill::device::cpu
