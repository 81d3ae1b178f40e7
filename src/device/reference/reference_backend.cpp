// The scalar decomposition of every op as a complete back end: one thread, float32 arithmetic on the weights' exact
// values, integers for the classes that are defined by them (i8_channel, i4_channel).
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "device/backend.h"
#include "device/reference/delta_net.h"
#include "device/reference/experts.h"
#include "device/reference/inspect.h"
#include "device/reference/matrix.h"
#include "device/reference/paged_cache.h"
#include "device/reference/reserved_memory.h"
#include "device/reference/scalar_ops.h"
#include "device/reference/scratch_plan.h"

namespace gristmill::device {
namespace {

using namespace reference;

/// Norm weights, biases and the like are kept as plain rows, everything else in panels.
std::vector<bool> find_plain(const Program& program) {
  std::vector<bool> plain(program.weights().size());
  const auto mark = [&](WeightRef ref) { plain[ref.id] = true; };
  const auto mark_norm = [&](const std::optional<Norm>& norm) {
    if (norm) mark(norm->weight);
  };
  for (const Op& op : program.ops()) {
    if (const auto* linear = std::get_if<LinearOp>(&op)) {
      mark_norm(linear->norm);
      for (const Linear& each : linear->linears)
        if (each.bias) mark(*each.bias);
    } else if (const auto* attention = std::get_if<AttentionOp>(&op)) {
      mark_norm(attention->attention.q_norm);
      mark_norm(attention->attention.k_norm);
    } else if (const auto* delta_net = std::get_if<DeltaNetOp>(&op)) {
      const DeltaNet& d = delta_net->delta_net;
      for (const WeightRef ref : {d.conv, d.a_log, d.dt_bias, d.out_norm.weight}) mark(ref);
    } else if (const auto* moe = std::get_if<MoeOp>(&op)) {
      if (moe->moe.select_bias) mark(*moe->moe.select_bias);
    } else if (const auto* norm = std::get_if<NormOp>(&op)) {
      mark(norm->norm.weight);
    } else if (const auto* head = std::get_if<HeadOp>(&op)) {
      mark(head->norm.weight);
    }
  }
  return plain;
}

class ReferenceExecutable final : public Executable {
 public:
  ReferenceExecutable(std::shared_ptr<const Program> program, const Limits& limits, const CacheOptions& cache)
      : program_(std::move(program)),
        limits_(limits),
        cache_(program_->caches(), cache),
        plan_(plan_scratch(*program_, limits)),
        plain_(find_plain(*program_)) {
    for (size_t i = 0; i < program_->weights().size(); ++i) plan_memory_.weights += weight_bytes(i);
    plan_memory_.scratch = plan_.bytes;
    plan_memory_.bytes_per_block = cache_.bytes_per_block();
    for (const StateDecl& decl : program_->states()) {
      states_.push_back({DeltaNetLayout(decl), plan_memory_.bytes_per_state / sizeof(float)});
      plan_memory_.bytes_per_state += states_.back().layout.floats * sizeof(float);
    }
  }

  const MemoryPlan& memory() const override { return plan_memory_; }
  void bind(const BindOptions& options) override;
  Ticket launch(const StepShape& shape, const StepInputs& inputs) override;
  const StepResult& wait(Ticket ticket) override;
  void copy_states(std::span<const std::pair<int32_t, int32_t>> pairs) override;
  std::span<const float> state(int32_t slot) const {
    if (slot < 0 || slot >= num_states_) return {};
    return {state_slot(slot), plan_memory_.bytes_per_state / sizeof(float)};
  }

 private:
  size_t weight_bytes(size_t id) const {
    const WeightSource& source = *program_->weights()[id].source;
    const size_t bytes =
        plain_[id] ? static_cast<size_t>(source.rows()) * static_cast<size_t>(source.columns()) * sizeof(float)
                   : matrix_bytes(source);
    return (bytes + 63) / 64 * 64;
  }
  /// Recurrent state of one layer.
  struct LayerState {
    DeltaNetLayout layout;
    size_t offset = 0;  ///< in a slot, in floats
  };

  void check(const StepShape& shape, const StepInputs& inputs) const;
  void check_state(const SequenceStep& sequence, std::vector<bool>& used) const;
  float* state_slot(int32_t slot) const {
    return reinterpret_cast<float*>(state_memory_.data() + static_cast<size_t>(slot) * plan_memory_.bytes_per_state);
  }

  float* scratch(size_t offset) const { return reinterpret_cast<float*>(scratch_.data() + offset); }
  float* value(Value value) const { return scratch(plan_.values[value.id]); }
  const Matrix& matrix(WeightRef ref) const { return weights_[ref.id]; }
  float* row_of(Value of, int row) const {
    return value(of) + static_cast<size_t>(row) * static_cast<size_t>(program_->width(of));
  }
  const float* plain(WeightRef ref) const { return weights_[ref.id].panels; }

  void run(const EmbedOp& op);
  void run(const LinearOp& op);
  void run(const AttentionOp& op);
  void run(const GateOp& op);
  void run(const DeltaNetOp& op);
  void run(const MoeOp& op);
  void run(const NormOp& op);
  void run(const ResidualOp& op);
  void run(const TapOp& op);
  void run(const RangeOp& op);
  void run(const HeadOp& op);

  std::shared_ptr<const Program> program_;
  Limits limits_;
  PagedCache cache_;
  ScratchPlan plan_;
  std::vector<bool> plain_;
  MemoryPlan plan_memory_;
  std::vector<LayerState> states_;  ///< by StateRef
  ReservedMemory weight_memory_, scratch_, state_memory_;
  int num_states_ = 0;
  std::vector<Matrix> weights_;  ///< by WeightRef; the elements of a plain one are in `panels`

  StepInputs inputs_;  ///< of the step in flight
  int tokens_ = 0;
  bool bound_ = false;
  bool in_flight_ = false;
  uint64_t steps_ = 0;
  StepResult result_;
  std::vector<int32_t> argmax_;
  std::vector<const float*> logits_;
};

void ReferenceExecutable::bind(const BindOptions& options) {
  if (bound_) throw Error("an executable is bound once");
  if (options.num_blocks < 1) throw Error(cat("a cache of ", options.num_blocks, " blocks holds nothing"));
  if (options.num_states < 0) throw Error(cat(options.num_states, " slots of recurrent state are no number"));
  cache_.reserve(options.num_blocks);
  num_states_ = plan_memory_.bytes_per_state == 0 ? 0 : options.num_states;
  state_memory_ = ReservedMemory(static_cast<size_t>(num_states_) * plan_memory_.bytes_per_state, "recurrent state");
  scratch_ = ReservedMemory(plan_memory_.scratch, "activations");
  weight_memory_ = ReservedMemory(plan_memory_.weights, "weights");
  if (options.progress != nullptr) options.progress->begin("Loading weights", plan_memory_.weights);
  size_t offset = 0;
  for (size_t i = 0; i < program_->weights().size(); ++i) {
    const WeightSource& source = *program_->weights()[i].source;
    auto* const data = reinterpret_cast<float*>(weight_memory_.data() + offset);
    if (plain_[i]) {
      source.read_f32(0, source.rows(), data);
      weights_.push_back({.rows = source.rows(), .columns = source.columns(), .panels = data});
    } else {
      weights_.push_back(read_matrix(source, data));
    }
    source.release();
    offset += weight_bytes(i);
    if (options.progress != nullptr) options.progress->advance(weight_bytes(i));
  }
  if (options.progress != nullptr) options.progress->end();
  bound_ = true;
}

void ReferenceExecutable::check(const StepShape& shape, const StepInputs& in) const {
  const auto require = [](bool good, const auto&... what) {
    if (!good) throw StepError(cat("step: ", what...));
  };
  require(bound_, "the executable is not bound");
  require(!in_flight_, "another one is in flight");
  require(shape.tokens >= 0 && static_cast<size_t>(shape.tokens) == in.ids.size(), in.ids.size(), " ids for ",
          shape.tokens, " tokens");
  require(shape.tokens <= limits_.tokens, shape.tokens, " tokens, the limit is ", limits_.tokens);
  require(in.sequences.size() <= static_cast<size_t>(limits_.seqs), in.sequences.size(), " sequences, the limit is ",
          limits_.seqs);
  require(in.logit_rows.size() <= static_cast<size_t>(limits_.rows), in.logit_rows.size(), " logit rows, the limit is ",
          limits_.rows);
  require(in.want_logits.size() == in.logit_rows.size(), "want_logits and logit_rows differ in length");
  for (size_t i = 0; i < in.ids.size(); ++i)
    require(in.ids[i] >= 0 && in.ids[i] < program_->vocabulary(), "id ", in.ids[i], " is outside of the vocabulary");
  for (size_t i = 0; i < in.logit_rows.size(); ++i)
    require(
        in.logit_rows[i] >= 0 && in.logit_rows[i] < shape.tokens && (i == 0 || in.logit_rows[i - 1] < in.logit_rows[i]),
        "logit row ", in.logit_rows[i], " is out of order or range");
  std::vector<bool> owned(in.ids.size());
  std::vector<bool> states(static_cast<size_t>(num_states_));
  for (const SequenceStep& sequence : in.sequences) {
    require(sequence.rows > 0 && sequence.first_row >= 0 && sequence.rows <= shape.tokens - sequence.first_row,
            "a sequence of rows ", sequence.first_row, " + ", sequence.rows, " does not fit ", shape.tokens, " tokens");
    require(sequence.context >= 0 && sequence.context <= limits_.context - sequence.rows, "a sequence of ",
            sequence.context, " + ", sequence.rows, " tokens, the limit is ", limits_.context);
    const auto needed = static_cast<size_t>((sequence.context + sequence.rows - 1) / cache_.block_size() + 1);
    require(sequence.blocks.size() >= needed, sequence.blocks.size(), " cache blocks where ", needed, " are needed");
    for (const int32_t block : sequence.blocks.first(needed))
      require(block >= 0 && block < cache_.blocks(), "cache block ", block, " does not exist");
    check_state(sequence, states);
    for (int32_t row = 0; row < sequence.rows; ++row) {
      const auto at = static_cast<size_t>(sequence.first_row + row);
      require(!owned[at], "row ", at, " belongs to two sequences");
      owned[at] = true;
    }
  }
  require(std::find(owned.begin(), owned.end(), false) == owned.end(), "a row belongs to no sequence");
}

void ReferenceExecutable::check_state(const SequenceStep& sequence, std::vector<bool>& used) const {
  if (states_.empty()) return;
  if (sequence.state < 0 || sequence.state >= num_states_)
    throw StepError(cat("step: slot ", sequence.state, " of recurrent state is not one of ", num_states_));
  if (used[static_cast<size_t>(sequence.state)])
    throw StepError(cat("step: slot ", sequence.state, " of recurrent state belongs to two sequences"));
  used[static_cast<size_t>(sequence.state)] = true;
}

Ticket ReferenceExecutable::launch(const StepShape& shape, const StepInputs& inputs) {
  check(shape, inputs);
  inputs_ = inputs;
  tokens_ = shape.tokens;
  in_flight_ = true;
  return Ticket{++steps_};
}

const StepResult& ReferenceExecutable::wait(Ticket ticket) {
  if (!in_flight_ || ticket.id != steps_) throw StepError(cat("step ", ticket.id, " is not in flight"));
  in_flight_ = false;
  result_.ranges.assign(program_->watched().size(), {});
  for (const Op& op : program_->ops()) std::visit([&](const auto& each) { run(each); }, op);

  const size_t rows = inputs_.logit_rows.size();
  const auto vocabulary = static_cast<size_t>(program_->vocabulary());
  argmax_.resize(rows);
  logits_.resize(rows);
  for (size_t i = 0; i < rows; ++i) {
    const float* const row = scratch(plan_.logits) + i * vocabulary;
    const int32_t best = argmax(row, program_->vocabulary());
    argmax_[i] = std::isfinite(row[best]) ? best : -1;
    logits_[i] = inputs_.want_logits[i] != 0 ? row : nullptr;
  }
  result_.argmax = argmax_;
  result_.logits = logits_;
  result_.taps.clear();
  const auto tap_size = static_cast<size_t>(tokens_) * static_cast<size_t>(program_->tap_width());
  for (int slot = 0; slot < program_->taps(); ++slot)
    result_.taps.emplace_back(scratch(plan_.taps) + static_cast<size_t>(slot) * tap_size, tap_size);
  return result_;
}

void ReferenceExecutable::copy_states(std::span<const std::pair<int32_t, int32_t>> pairs) {
  if (states_.empty()) return;
  for (const auto& [from, to] : pairs) {
    if (from < 0 || from >= num_states_ || to < 0 || to >= num_states_)
      throw StepError(cat("slot ", from, " of recurrent state cannot be copied to ", to, ": there are ", num_states_));
    if (from != to) std::copy_n(state_slot(from), plan_memory_.bytes_per_state / sizeof(float), state_slot(to));
  }
}

void ReferenceExecutable::run(const EmbedOp& op) {
  const Matrix& table = matrix(op.table);
  float* out = value(op.out);
  for (const int32_t id : inputs_.ids)
    for (int64_t k = 0; k < table.columns; ++k) *out++ = table.at(id, k);
}

void ReferenceExecutable::run(const LinearOp& op) {
  const float* x = value(op.in);
  if (op.norm) {
    const int width = program_->width(op.in);
    float* const normed = scratch(plan_.normed);
    for (int t = 0; t < tokens_; ++t)
      rms_norm(x + static_cast<size_t>(t) * width, width, plain(op.norm->weight), op.norm->eps,
               normed + static_cast<size_t>(t) * width);
    x = normed;
  }
  const auto apply = [&](const Linear& linear, float* out) {
    multiply(x, tokens_, matrix(linear.weight), linear.bias ? plain(*linear.bias) : nullptr, out);
  };
  if (op.activation == Activation::silu_mul) {
    float* const gate = value(op.out[0]);
    float* const up = scratch(plan_.up);
    apply(op.linears[0], gate);
    apply(op.linears[1], up);
    silu_mul(gate, up, static_cast<size_t>(tokens_) * static_cast<size_t>(program_->width(op.out[0])));
    return;
  }
  for (size_t i = 0; i < op.linears.size(); ++i) apply(op.linears[i], value(op.out[i]));
}

void ReferenceExecutable::run(const AttentionOp& op) {
  const Attention& a = op.attention;
  const auto q_width = static_cast<size_t>(a.heads) * static_cast<size_t>(a.head_dim);
  const auto kv_width = static_cast<size_t>(a.kv_heads) * static_cast<size_t>(a.head_dim);
  float* const q = scratch(plan_.rotated);
  float* const k = q + q_width;
  for (const SequenceStep& sequence : inputs_.sequences) {
    for (int32_t i = 0; i < sequence.rows; ++i) {
      const auto row = static_cast<size_t>(sequence.first_row + i);
      const int32_t position = sequence.context + i;
      std::copy_n(value(op.q) + row * q_width, q_width, q);
      std::copy_n(value(op.k) + row * kv_width, kv_width, k);
      const auto norm = [&](const std::optional<Norm>& by, float* x, size_t width) {
        if (by)
          norm_parts(x, static_cast<int>(width), plain(by->weight), static_cast<int>(matrix(by->weight).columns),
                     by->eps);
      };
      norm(a.q_norm, q, q_width);
      norm(a.k_norm, k, kv_width);
      if (a.rope) {
        rotate(q, a.heads, a.head_dim, *a.rope, position);
        rotate(k, a.kv_heads, a.head_dim, *a.rope, position);
      }
      cache_.store(a, sequence.blocks, position, k, value(op.v) + row * kv_width);
      // Keys of this step's later rows are not there yet, and causality does not ask for them.
      cache_.attend(a, sequence.blocks, position, q, scratch(plan_.scores), value(op.out) + row * q_width);
    }
  }
}

void ReferenceExecutable::run(const GateOp& op) {
  const int width = program_->width(op.x), gate_width = program_->width(op.gate);
  for (int t = 0; t < tokens_; ++t)
    apply_gate(row_of(op.x, t), width, row_of(op.gate, t), gate_width, row_of(op.out, t));
}

void ReferenceExecutable::run(const NormOp& op) {
  for (int t = 0; t < tokens_; ++t)
    rms_norm(row_of(op.in, t), program_->width(op.in), plain(op.norm.weight), op.norm.eps, row_of(op.out, t));
}

void ReferenceExecutable::run(const DeltaNetOp& op) {
  const DeltaNet& d = op.delta_net;
  const LayerState& layer = states_[d.state.id];
  const DeltaNetWeights weights{plain(d.conv), plain(d.a_log), plain(d.dt_bias), plain(d.out_norm.weight)};
  for (const SequenceStep& sequence : inputs_.sequences) {
    for (int32_t i = 0; i < sequence.rows; ++i) {
      const int t = sequence.first_row + i;
      const DeltaNetRow row{row_of(op.qkv, t), row_of(op.z, t), row_of(op.b, t), row_of(op.a, t), row_of(op.out, t)};
      float* state = state_slot(sequence.state) + layer.offset;
      for (int group = 0; group < d.k_heads; ++group, state += layer.layout.group_floats)
        delta_net_token(d, layer.layout, weights, row, group, sequence.context + i, state, scratch(plan_.work));
    }
  }
}

void ReferenceExecutable::run(const MoeOp& op) {
  const Moe& m = op.moe;
  const float* const bias = m.select_bias ? plain(*m.select_bias) : nullptr;
  for (int t = 0; t < tokens_; ++t)
    mix_experts(m, row_of(op.in, t), program_->width(op.in), matrix(m.router), bias, matrix(m.gate_up), matrix(m.down),
                scratch(plan_.work), row_of(op.out, t));
}

void ReferenceExecutable::run(const ResidualOp& op) {
  const float* const x = value(op.x);
  const float* const y = value(op.y);
  float* const out = value(op.out);
  const auto count = static_cast<size_t>(tokens_) * static_cast<size_t>(program_->width(op.out));
  for (size_t i = 0; i < count; ++i) out[i] = x[i] + y[i];
}

void ReferenceExecutable::run(const TapOp& op) {
  const auto count = static_cast<size_t>(tokens_) * static_cast<size_t>(program_->width(op.in));
  std::copy_n(value(op.in), count, scratch(plan_.taps) + static_cast<size_t>(op.slot) * count);
}

void ReferenceExecutable::run(const RangeOp& op) {
  const auto count = static_cast<size_t>(tokens_) * static_cast<size_t>(program_->width(op.in));
  result_.ranges[static_cast<size_t>(op.slot)] = range_of(value(op.in), count);
}

void ReferenceExecutable::run(const HeadOp& op) {
  const auto width = static_cast<size_t>(program_->width(op.in));
  float* const rows = scratch(plan_.head_rows);
  for (size_t i = 0; i < inputs_.logit_rows.size(); ++i)
    rms_norm(value(op.in) + static_cast<size_t>(inputs_.logit_rows[i]) * width, static_cast<int>(width),
             plain(op.norm.weight), op.norm.eps, rows + i * width);
  multiply(rows, static_cast<int>(inputs_.logit_rows.size()), matrix(op.vocabulary), nullptr, scratch(plan_.logits));
}

class ReferenceBackend final : public Backend {
 public:
  std::string name() const override { return "reference"; }
  std::string describe() const override { return "reference back end: scalar float32, 1 thread"; }
  std::unique_ptr<Executable> compile(std::shared_ptr<const Program> program, const Limits& limits,
                                      const CacheOptions& cache, const WeightCacheOptions&) override {
    if (limits.tokens < 1 || limits.seqs < 1 || limits.rows < 1 || limits.context < 1)
      throw Error("the limits of a step must be positive");
    for (const WeightDecl& weight : program->weights())
      if (weight.slice.ranks != 1)
        throw Error(cat(weight.source->name(), ": the reference back end runs one rank, not ", weight.slice.ranks));
    return std::make_unique<ReferenceExecutable>(std::move(program), limits, cache);
  }
};

}  // namespace

std::span<const float> reference::recurrent_state(const Executable& executable, int32_t slot) {
  const auto* const own = dynamic_cast<const ReferenceExecutable*>(&executable);
  return own == nullptr ? std::span<const float>() : own->state(slot);
}

std::unique_ptr<Backend> make_reference_backend() {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace gristmill::device
