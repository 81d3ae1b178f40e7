#include "device/cpu/executable.h"

#include <algorithm>
#include <cstring>

namespace gristmill::device::cpu {
namespace {

Limits checked(const Limits& limits) {
  if (limits.tokens < 1 || limits.seqs < 1 || limits.rows < 1 || limits.context < 1) {
    throw Error(cat("step limits of ", limits.tokens, " tokens, ", limits.seqs, " sequences, ", limits.rows,
                    " logit rows and a context of ", limits.context, ": each must be at least 1"));
  }
  return limits;
}

}  // namespace

CpuExecutable::CpuExecutable(std::shared_ptr<ComputeTeam> team, const Kernels& kernels, ActivationMode mode,
                             std::shared_ptr<const Program> program, const Limits& limits, const CacheOptions& cache,
                             const WeightCacheOptions& weights)
    : team_(std::move(team)),
      program_(std::move(program)),
      limits_(checked(limits)),
      block_size_(cache.block_size),
      weights_(program_, kernels, mode == ActivationMode::f32),
      lowered_(lower(*program_, limits_, cache, kernels, weights_, team_->size())) {
  plan_.weights = weights_.bytes();
  plan_.weights_mapped = weights_.open_cache(weights);
  plan_.scratch = lowered_.scratch.size();
  plan_.bytes_per_block = lowered_.bytes_per_block;
  plan_.bytes_per_state = lowered_.bytes_per_state;
  frame_.kernels = &kernels;
  frame_.members = team_->size();
  frame_.member_offset = lowered_.member_offset;
  frame_.member_bytes = lowered_.member_bytes;
  for (const auto& stage : lowered_.stages) contexts_.emplace_back(&frame_, stage.get());
  const auto run = [](void* context, uint32_t item, uint32_t member) {
    const auto& [frame, stage] = *static_cast<const std::pair<const Frame*, const Stage*>*>(context);
    stage->run(*frame, item, member);
  };
  for (auto& context : contexts_) phases_.push_back({run, &context, 0});
}

CpuExecutable::~CpuExecutable() {
  if (in_flight_) team_->finish();
}

void CpuExecutable::bind(const BindOptions& options) {
  if (frame_.scratch != nullptr) throw Error("an executable is bound once");
  if (options.num_blocks < 1) throw Error(cat(options.num_blocks, " cache blocks: at least 1 is needed"));
  if (options.num_states < 0) throw Error(cat(options.num_states, " slots of recurrent state: at least 0 are needed"));
  SilentProgress silent;
  frame_.group_blocks = kGroupTokens / block_size_;
  frame_.group_bytes = plan_.bytes_per_block * static_cast<size_t>(frame_.group_blocks);
  const int groups = (options.num_blocks + frame_.group_blocks - 1) / frame_.group_blocks;
  cache_ = Region(frame_.group_bytes * static_cast<size_t>(groups), true, "the KV cache");
  scratch_ = Region(plan_.scratch, false, "activations");
  weights_.load(*team_, options.progress == nullptr ? silent : *options.progress);
  for (const auto& stage : lowered_.stages) stage->weights_loaded();
  if (plan_.bytes_per_state != 0 && options.num_states > 0) {
    frame_.num_states = static_cast<size_t>(options.num_states);
    // Huge pages only where a slot fills several: most slots are never used.
    constexpr size_t kLargeSlot = 8 << 20;
    states_ = Region(plan_.bytes_per_state * frame_.num_states, plan_.bytes_per_state >= kLargeSlot, "recurrent state");
    frame_.states = states_.data();
  }
  frame_.num_blocks = static_cast<size_t>(options.num_blocks);
  frame_.cache = cache_.data();
  frame_.scratch = scratch_.data();
}

std::string CpuExecutable::fault_of(const SequenceStep& sequence, int32_t first_row) const {
  if (sequence.first_row != first_row || sequence.rows < 1 || sequence.context < 0) {
    return cat("its rows start at ", sequence.first_row, ", not ", first_row, ", or are ", sequence.rows);
  }
  const int64_t end = static_cast<int64_t>(sequence.context) + sequence.rows;
  if (end > limits_.context) return cat("it reaches position ", end, " of a context of ", limits_.context);
  const int64_t needed = (end + block_size_ - 1) / block_size_;
  if (static_cast<int64_t>(sequence.blocks.size()) < needed) {
    return cat("its table has ", sequence.blocks.size(), " blocks of the ", needed, " it needs");
  }
  for (int64_t i = 0; i < needed; ++i) {
    const int32_t block = sequence.blocks[static_cast<size_t>(i)];
    if (block < 0 || static_cast<size_t>(block) >= frame_.num_blocks) {
      return cat("block ", block, " is not one of ", frame_.num_blocks);
    }
  }
  return "";
}

std::string CpuExecutable::fault_of(const StepInputs& inputs) const {
  if (frame_.scratch == nullptr) return "the executable is not bound";
  const auto over = [](size_t count, int limit) { return count > static_cast<size_t>(limit); };
  if (over(inputs.ids.size(), limits_.tokens)) return cat(inputs.ids.size(), " tokens, limit ", limits_.tokens);
  if (over(inputs.sequences.size(), limits_.seqs))
    return cat(inputs.sequences.size(), " sequences, limit ", limits_.seqs);
  if (over(inputs.logit_rows.size(), limits_.rows))
    return cat(inputs.logit_rows.size(), " logit rows, limit ", limits_.rows);
  for (int32_t id : inputs.ids) {
    if (id < 0 || id >= program_->vocabulary())
      return cat("token id ", id, " of a vocabulary of ", program_->vocabulary());
  }
  int64_t rows = 0;
  for (size_t i = 0; i < inputs.sequences.size(); ++i) {
    const std::string fault = fault_of(inputs.sequences[i], static_cast<int32_t>(rows));
    if (!fault.empty()) return cat("sequence ", i, ": ", fault);
    rows += inputs.sequences[i].rows;
    if (rows > limits_.tokens) break;
  }
  if (rows != static_cast<int64_t>(inputs.ids.size()))
    return cat("sequences of other than ", inputs.ids.size(), " rows");
  if (std::string fault = fault_of_states(inputs); !fault.empty()) return fault;
  if (inputs.want_logits.size() != inputs.logit_rows.size()) return "want_logits and logit_rows differ in length";
  int32_t before = -1;
  for (int32_t row : inputs.logit_rows) {
    if (row <= before || row >= rows) return cat("logit row ", row, " is out of order or range");
    before = row;
  }
  return "";
}

std::string CpuExecutable::fault_of_states(const StepInputs& inputs) const {
  if (plan_.bytes_per_state == 0) return "";
  std::vector<bool> used(frame_.num_states);
  for (const SequenceStep& sequence : inputs.sequences) {
    if (sequence.state < 0 || static_cast<size_t>(sequence.state) >= frame_.num_states)
      return cat("slot ", sequence.state, " of recurrent state is not one of ", frame_.num_states);
    if (used[static_cast<size_t>(sequence.state)])
      return cat("slot ", sequence.state, " of recurrent state belongs to two sequences");
    used[static_cast<size_t>(sequence.state)] = true;
  }
  return "";
}

void CpuExecutable::fill_frame(const StepInputs& inputs) {
  frame_.inputs = inputs;
  frame_.tokens = static_cast<int>(inputs.ids.size());
  frame_.sequence_of.resize(inputs.ids.size());
  frame_.position_of.resize(inputs.ids.size());
  for (size_t i = 0; i < inputs.sequences.size(); ++i) {
    const SequenceStep& sequence = inputs.sequences[i];
    for (int32_t r = 0; r < sequence.rows; ++r) {
      frame_.sequence_of[static_cast<size_t>(sequence.first_row + r)] = static_cast<int32_t>(i);
      frame_.position_of[static_cast<size_t>(sequence.first_row + r)] = sequence.context + r;
    }
  }
  for (const auto& work : lowered_.works) work->plan(frame_);
}

Ticket CpuExecutable::launch(const StepShape&, const StepInputs& inputs) {
  if (in_flight_) throw StepError("another step is in flight");
  const Ticket ticket{++ticket_};
  fault_ = fault();
  if (fault_.empty()) fault_ = fault_of(inputs);
  if (!fault_.empty()) return ticket;
  fill_frame(inputs);
  for (size_t i = 0; i < phases_.size(); ++i) phases_[i].items = lowered_.stages[i]->items(frame_);
  in_flight_ = true;
  team_->start(phases_);
  return ticket;
}

const StepResult& CpuExecutable::wait(Ticket ticket) {
  if (ticket.id != ticket_) throw StepError(cat("step ", ticket.id, " is not the last one launched"));
  if (!fault_.empty()) throw StepError(cat("the step cannot run: ", fault_));
  if (in_flight_) {
    team_->finish();
    in_flight_ = false;
    fill_result();
  }
  return result_;
}

void CpuExecutable::fill_result() {
  const size_t rows = frame_.inputs.logit_rows.size();
  logits_.assign(rows, nullptr);
  for (size_t r = 0; r < rows; ++r) {
    if (frame_.inputs.want_logits[r] != 0) logits_[r] = lowered_.head->logits().row(frame_, static_cast<int64_t>(r));
  }
  result_.argmax = {reinterpret_cast<const int32_t*>(frame_.scratch + lowered_.argmax), rows};
  result_.logits = logits_;
  result_.taps.clear();
  for (size_t offset : lowered_.taps) {
    result_.taps.emplace_back(reinterpret_cast<const float*>(frame_.scratch + offset),
                              static_cast<size_t>(frame_.tokens) * static_cast<size_t>(program_->tap_width()));
  }
  result_.ranges.clear();
  for (const size_t offset : lowered_.ranges) {
    const auto* const rows_of = reinterpret_cast<const ValueRange*>(frame_.scratch + offset);
    ValueRange all = frame_.tokens > 0 ? rows_of[0] : ValueRange{};
    for (int t = 1; t < frame_.tokens; ++t)
      all = {std::min(all.low, rows_of[t].low), std::max(all.high, rows_of[t].high)};
    result_.ranges.push_back(all);
  }
}

void CpuExecutable::copy_states(std::span<const std::pair<int32_t, int32_t>> pairs) {
  if (plan_.bytes_per_state == 0) return;
  const auto valid = [&](int32_t slot) { return slot >= 0 && static_cast<size_t>(slot) < frame_.num_states; };
  for (const auto& [from, to] : pairs) {
    if (!valid(from) || !valid(to))
      throw StepError(
          cat("slot ", from, " of recurrent state cannot be copied to ", to, ": there are ", frame_.num_states));
    if (from == to) continue;
    std::memcpy(frame_.states + static_cast<size_t>(to) * plan_.bytes_per_state,
                frame_.states + static_cast<size_t>(from) * plan_.bytes_per_state, plan_.bytes_per_state);
  }
}

}  // namespace gristmill::device::cpu
