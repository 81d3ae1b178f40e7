#pragma once
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <vector>

#include "device/backend.h"

namespace gristmill::device {

/// A back end without a model, to test scheduling and caching: the "K/V" of a token is its id, and the logits of a row
/// are pseudo-random numbers drawn from all ids of its sequence up to it, read back through the block table. A wrong
/// block, a stale one or one never written changes the output or fails the step.
class FakeBackend final : public Backend {
 public:
  static constexpr int32_t vocabulary = 61;

  std::string name() const override { return "fake"; }
  std::string describe() const override { return "fake"; }
  std::unique_ptr<Executable> compile(std::shared_ptr<const Program>, const Limits& limits, const CacheOptions& cache,
                                      const WeightCacheOptions&) override;

  /// The program that goes with it: an embedding and a head.
  static std::shared_ptr<const Program> program();

  /// Also keeps a recurrent state per slot: logits then come from the state, so a wrong, stale or half-updated one
  /// shows.
  bool recurrent = false;
  int64_t state_copies = 0;
  /// A step that computes this id throws StepError, once per id put here.
  std::multiset<int32_t> poison;
  /// Rows of this id have NaN for logits.
  int32_t not_a_number = -1;
  int64_t steps = 0;
  int64_t rows = 0;
  int32_t most_rows = 0;
  int32_t most_sequences = 0;
};

class OnesSource final : public WeightSource {
 public:
  OnesSource(int64_t rows, int64_t columns) : WeightSource("ones", rows, columns, {}, 0) {}
  void read_f32(int64_t, int64_t count, float* out) const override {
    for (int64_t i = 0; i < count * columns(); ++i) out[i] = 1;
  }
  void read_16(int64_t, int64_t, uint16_t*) const override {}
  void read_codes(int64_t, int64_t, const CodeRows&) const override {}
};

class FakeExecutable final : public Executable {
 public:
  FakeExecutable(FakeBackend& owner, const Limits& limits, const CacheOptions& cache)
      : owner_(owner), limits_(limits), block_size_(cache.block_size) {
    plan_.weights = 1000;
    plan_.scratch = 1000;
    plan_.bytes_per_state = owner.recurrent ? 16 : 0;
    plan_.bytes_per_block = static_cast<size_t>(cache.block_size) * sizeof(int32_t);
  }
  const MemoryPlan& memory() const override { return plan_; }
  void bind(const BindOptions& options) override {
    cache_.assign(static_cast<size_t>(options.num_blocks) * static_cast<size_t>(block_size_), -1);
    states_.assign(static_cast<size_t>(options.num_states), {});
  }
  Ticket launch(const StepShape& shape, const StepInputs& inputs) override {
    shape_ = shape;
    inputs_ = inputs;
    return {1};
  }
  const StepResult& wait(Ticket) override {
    ++owner_.steps;
    owner_.rows += shape_.tokens;
    owner_.most_rows = std::max(owner_.most_rows, shape_.tokens);
    owner_.most_sequences = std::max(owner_.most_sequences, shape_.seqs);
    if (shape_.tokens > limits_.tokens || shape_.seqs > limits_.seqs || shape_.rows > limits_.rows)
      throw StepError("step beyond limits");
    // As the contract has it: all rows are written before any is read.
    for (const SequenceStep& s : inputs_.sequences) {
      for (int32_t i = 0; i < s.rows; ++i) {
        const int32_t id = inputs_.ids[static_cast<size_t>(s.first_row + i)];
        const auto bad = owner_.poison.find(id);
        if (bad != owner_.poison.end()) {
          owner_.poison.erase(bad);
          throw StepError("poisoned token");
        }
        slot(s, s.context + i) = id;
      }
    }
    argmax_.clear();
    logits_.clear();
    row_states_.assign(static_cast<size_t>(shape_.tokens), start);
    for (const SequenceStep& s : inputs_.sequences) {
      if (owner_.recurrent) advance(s);
    }
    storage_.assign(inputs_.logit_rows.size() * FakeBackend::vocabulary, 0);
    for (size_t r = 0; r < inputs_.logit_rows.size(); ++r) {
      float* row = storage_.data() + r * FakeBackend::vocabulary;
      compute(inputs_.logit_rows[r], row);
      int32_t best = 0;
      for (int32_t v = 1; v < FakeBackend::vocabulary; ++v) best = row[v] > row[best] ? v : best;
      argmax_.push_back(best);
      if (inputs_.ids[static_cast<size_t>(inputs_.logit_rows[r])] == owner_.not_a_number) {
        std::fill(row, row + FakeBackend::vocabulary, std::numeric_limits<float>::quiet_NaN());
        argmax_.back() = -1;
      }
      logits_.push_back(inputs_.want_logits[r] != 0 ? row : nullptr);
    }
    result_.argmax = argmax_;
    result_.logits = logits_;
    return result_;
  }
  void copy_states(std::span<const std::pair<int32_t, int32_t>> pairs) override {
    for (const auto& [from, to] : pairs) states_.at(static_cast<size_t>(to)) = states_.at(static_cast<size_t>(from));
    owner_.state_copies += static_cast<int64_t>(pairs.size());
  }

 private:
  int32_t& slot(const SequenceStep& s, int32_t position) {
    const int32_t block = s.blocks[static_cast<size_t>(position / block_size_)];
    return cache_.at(static_cast<size_t>(block * block_size_ + position % block_size_));
  }
  struct State {
    uint64_t value = 0;
    int32_t tokens = -1;
  };
  static constexpr uint64_t start = 88172645463325252u;
  static uint64_t mix(uint64_t state, int32_t id) {
    return (state ^ static_cast<uint64_t>(id)) * 6364136223846793005u + 1442695040888963407u;
  }
  void advance(const SequenceStep& s) {
    State& state = states_.at(static_cast<size_t>(s.state));
    if (s.context == 0) state = {start, 0};
    if (state.tokens != s.context) throw StepError("the recurrent state is of another position");
    for (int32_t i = 0; i < s.rows; ++i) {
      state.value = mix(state.value, inputs_.ids[static_cast<size_t>(s.first_row + i)]);
      row_states_[static_cast<size_t>(s.first_row + i)] = state.value;
    }
    state.tokens += s.rows;
  }
  void compute(int32_t row, float* out) {
    for (const SequenceStep& s : inputs_.sequences) {
      if (row < s.first_row || row >= s.first_row + s.rows) continue;
      uint64_t state = start;
      for (int32_t p = 0; p <= s.context + row - s.first_row; ++p) {
        const int32_t id = slot(s, p);
        if (id < 0) throw StepError("read of a cache slot that was never written");
        state = mix(state, id);
      }
      if (owner_.recurrent && row_states_[static_cast<size_t>(row)] != state) {
        throw StepError("recurrent state and cache disagree");
      }
      for (int32_t v = 0; v < FakeBackend::vocabulary; ++v) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        out[v] = static_cast<float>(state >> 40) / static_cast<float>(1 << 22);
      }
    }
  }

  FakeBackend& owner_;
  Limits limits_;
  int32_t block_size_;
  MemoryPlan plan_;
  std::vector<int32_t> cache_;
  std::vector<State> states_;
  std::vector<uint64_t> row_states_;
  StepShape shape_;
  StepInputs inputs_;
  std::vector<int32_t> argmax_;
  std::vector<const float*> logits_;
  std::vector<float> storage_;
  StepResult result_;
};

inline std::unique_ptr<Executable> FakeBackend::compile(std::shared_ptr<const Program>, const Limits& limits,
                                                        const CacheOptions& cache, const WeightCacheOptions&) {
  return std::make_unique<FakeExecutable>(*this, limits, cache);
}

inline std::shared_ptr<const Program> FakeBackend::program() {
  ProgramBuilder builder;
  const WeightRef table = builder.weight(std::make_shared<OnesSource>(vocabulary, 8));
  const WeightRef norm = builder.weight(std::make_shared<OnesSource>(1, 8));
  const Value x = builder.embed(table);
  builder.head(x, {norm, 1e-5f}, table);
  return std::make_shared<const Program>(std::move(builder).build());
}

}  // namespace gristmill::device
