// DeltaNets, mixtures of experts, gates and norms of queries and keys on both back ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "device/cpu/random_program.h"

namespace gristmill::device::cpu {
namespace {

using ::testing::HasSubstr;

constexpr int kVocabulary = 77, kHidden = 64, kHeads = 4, kKvHeads = 2, kDim = 16;
constexpr int kTokens = 160, kSlots = 4, kBlock = 16, kBlocksEach = 8;

/// A DeltaNet layer and a gated attention layer, each with experts and a shared one behind a gate.
std::shared_ptr<const Program> hybrid_program(Encoding experts, int width) {
  ProgramBuilder builder;
  uint32_t seed = 1;
  const auto matrix = [&](const char* name, int rows, int columns, Encoding encoding = kF32) {
    return builder.weight(std::make_shared<RandomWeight>(name, rows, columns, encoding, seed++));
  };
  const auto vector = [&](const char* name, int count) {
    return builder.weight(
        std::make_shared<RandomWeight>(name, 1, count, kF32, seed++, std::sqrt(static_cast<float>(count))));
  };
  const auto linear = [&](const char* name, int rows, int columns) {
    return Linear{matrix(name, rows, columns), {}, Collective::none};
  };
  const WeightRef table = matrix("table", kVocabulary, kHidden);
  Value x = builder.embed(table);
  for (const bool attends : {false, true, false}) {
    const Norm before{vector("norm", kHidden), 1e-5f};
    Value mixed;
    if (attends) {
      const auto in = builder.linear(x, before,
                                     {linear("q", kHeads * kDim, kHidden), linear("k", kKvHeads * kDim, kHidden),
                                      linear("v", kKvHeads * kDim, kHidden), linear("gate", kHeads * kDim, kHidden)});
      Attention a;
      a.heads = kHeads;
      a.kv_heads = kKvHeads;
      a.head_dim = kDim;
      a.scale = 0.25f;
      a.rope = Rope{{1.0f, 0.1f}, 1.0f};
      a.cache = builder.cache(kKvHeads, kDim);
      a.q_norm = Norm{vector("q norm", kDim), 1e-5f};
      a.k_norm = Norm{vector("k norm", kKvHeads * kDim), 1e-5f};
      mixed = builder.gate(builder.attention(in[0], in[1], in[2], a), in[3]);
    } else {
      DeltaNet d;
      d.k_heads = 2;
      d.v_heads = 4;
      d.k_dim = 8;
      d.v_dim = 16;
      const int channels = 2 * d.k_heads * d.k_dim + d.v_heads * d.v_dim;
      const auto in = builder.linear(x, before,
                                     {linear("qkv", channels, kHidden), linear("z", d.v_heads * d.v_dim, kHidden),
                                      linear("b", d.v_heads, kHidden), linear("a", d.v_heads, kHidden)});
      d.conv = matrix("conv", channels, d.conv_width);
      d.a_log = vector("a_log", d.v_heads);
      d.dt_bias = vector("dt_bias", d.v_heads);
      d.out_norm = Norm{vector("out norm", d.v_dim), 1e-5f};
      d.state = builder.state({d.v_heads, d.k_heads, d.k_dim, d.v_dim, d.conv_width});
      mixed = builder.delta_net(in[0], in[1], in[2], in[3], d);
    }
    x = builder.residual(x, builder.linear(mixed, {}, {linear("out", kHidden, static_cast<int>(kHeads * kDim))})[0]);
    const Value normed = builder.norm(x, {vector("norm", kHidden), 1e-5f});
    Moe moe;
    moe.experts = 5;
    moe.top_k = 2;
    moe.width = width;
    moe.router = matrix("router", moe.experts, kHidden);
    moe.gate_up = matrix("gate_up", moe.experts * 2 * width, kHidden, experts);
    moe.down = matrix("down", moe.experts * kHidden, width, width % 32 == 0 ? experts : kF32);
    const Value routed = builder.moe(normed, moe);
    const Value inner = builder.linear(
        normed, {}, {linear("shared gate", 32, kHidden), linear("shared up", 32, kHidden)}, Activation::silu_mul)[0];
    const Value shared = builder.linear(inner, {}, {linear("shared down", kHidden, 32)})[0];
    const Value scale = builder.linear(normed, {}, {linear("scale", 1, kHidden)})[0];
    x = builder.residual(x, builder.residual(routed, builder.gate(shared, scale)));
  }
  builder.head(x, {vector("norm", kHidden), 1e-5f}, table);
  return std::make_shared<const Program>(std::move(builder).build());
}

/// Sequence n has state slot n and its own blocks.
class Sequences {
 public:
  explicit Sequences(Backend& backend, const std::shared_ptr<const Program>& program)
      : executable_(backend.compile(program, {kTokens, kSlots, kTokens, kBlock * kBlocksEach}, {DType::f32, kBlock})) {
    BindOptions options;
    options.num_blocks = kSlots * kBlocksEach;
    options.num_states = kSlots;
    executable_->bind(options);
    for (int n = 0; n < kSlots; ++n) {
      tables_.emplace_back(kBlocksEach);
      std::iota(tables_.back().begin(), tables_.back().end(), n * kBlocksEach);
    }
  }
  Executable& executable() { return *executable_; }

  struct Part {
    int sequence = 0;
    int context = 0;
    std::vector<int32_t> ids;
    int slot = -1;  ///< other than the sequence
  };
  /// The logits of all rows, part after part.
  std::vector<std::vector<float>> step(const std::vector<Part>& parts) {
    std::vector<int32_t> ids, rows;
    std::vector<SequenceStep> sequences;
    for (const Part& part : parts) {
      SequenceStep step{static_cast<int32_t>(ids.size()), static_cast<int32_t>(part.ids.size()), part.context,
                        tables_[static_cast<size_t>(part.sequence)], part.slot < 0 ? part.sequence : part.slot};
      sequences.push_back(step);
      ids.insert(ids.end(), part.ids.begin(), part.ids.end());
    }
    rows.resize(ids.size());
    std::iota(rows.begin(), rows.end(), 0);
    const std::vector<uint8_t> want(rows.size(), 1);
    const StepShape shape{static_cast<int>(ids.size()), static_cast<int>(parts.size()), static_cast<int>(rows.size()),
                          false};
    const StepResult& result = executable_->wait(executable_->launch(shape, {ids, sequences, rows, want}));
    std::vector<std::vector<float>> logits;
    for (const float* row : result.logits) logits.emplace_back(row, row + kVocabulary);
    return logits;
  }

 private:
  std::unique_ptr<Executable> executable_;
  std::vector<std::vector<int32_t>> tables_;
};

std::vector<int32_t> ids(int count, int seed) {
  std::vector<int32_t> made;
  for (int i = 0; i < count; ++i) made.push_back((i * i * 7 + i * 13 + seed * 29) % kVocabulary);
  return made;
}
std::vector<int32_t> slice(const std::vector<int32_t>& all, int first, int end) {
  return {all.begin() + first, all.begin() + end};
}

TEST(FamilyOps, BothBackEndsAgreeInFloat32) {
  for (const int width : {32, 20}) {
    const auto program = hybrid_program(kF32, width);
    const auto reference = make_reference_backend();
    const auto cpu = make_cpu_backend(2, ActivationMode::f32);
    Sequences a(*reference, program), b(*cpu, program);
    EXPECT_GT(a.executable().memory().bytes_per_state, 0u);
    EXPECT_GT(b.executable().memory().bytes_per_state, 0u);
    const auto expected = a.step({{0, 0, ids(50, 1)}}), got = b.step({{0, 0, ids(50, 1)}});
    for (size_t t = 0; t < expected.size(); ++t)
      for (size_t i = 0; i < expected[t].size(); ++i) ASSERT_NEAR(got[t][i], expected[t][i], 1e-3) << t;
  }
}

struct Setup {
  const char* name;
  int threads;
  ActivationMode mode;
  Encoding experts;
};
class CpuFamilyOps : public ::testing::TestWithParam<Setup> {};

TEST_P(CpuFamilyOps, NeighboursChunksAndThreadsDoNotChangeBits) {
  const auto program = hybrid_program(GetParam().experts, 32);
  const auto one = make_cpu_backend(1, GetParam().mode);
  const auto backend = make_cpu_backend(GetParam().threads, GetParam().mode);
  Sequences alone(*one, program), together(*backend, program);
  std::vector<std::vector<int32_t>> texts;
  std::vector<std::vector<std::vector<float>>> expected;
  for (int n = 0; n < 3; ++n) {
    texts.push_back(ids(40 + n, n));
    expected.push_back(alone.step({{n, 0, texts.back()}}));
  }
  // Chunks of different lengths, so that the sequences pass folds and partial buffers at different steps.
  const int cuts[3][4] = {{0, 15, 17, 40}, {0, 16, 32, 41}, {0, 1, 2, 42}};
  for (int step = 0; step < 3; ++step) {
    std::vector<Sequences::Part> parts;
    for (const int n : {2, 0, 1}) {
      const int first = cuts[n][step], end = cuts[n][step + 1];
      parts.push_back({n, first, slice(texts[static_cast<size_t>(n)], first, end)});
    }
    const auto got = together.step(parts);
    size_t row = 0;
    for (const Sequences::Part& part : parts)
      for (size_t t = 0; t < part.ids.size(); ++t)
        ASSERT_EQ(got[row++], expected[static_cast<size_t>(part.sequence)][static_cast<size_t>(part.context) + t])
            << "sequence " << part.sequence << " token " << part.context << " + " << t;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Modes, CpuFamilyOps,
    ::testing::Values(Setup{"f32", 3, ActivationMode::f32, kF32}, Setup{"bf16", 2, ActivationMode::int8, kBf16},
                      Setup{"q41", 3, ActivationMode::int8, kQ41}, Setup{"q80", 2, ActivationMode::int8, kQ80},
                      Setup{"w8a8", 3, ActivationMode::int8, kW8A8}, Setup{"w4a8", 2, ActivationMode::int8, kW4A8},
                      Setup{"w4a8_group", 2, ActivationMode::int8, kW4A8Group}),
    [](const auto& each) { return std::string(each.param.name); });

TEST_P(CpuFamilyOps, CodedExpertsLoseLittle) {
  const auto program = hybrid_program(GetParam().experts, 32);
  const auto reference = make_reference_backend();
  const auto cpu = make_cpu_backend(GetParam().threads, GetParam().mode);
  Sequences exact(*reference, program), quantized(*cpu, program);
  // More rows than a block of quantized activations has, so that some experts have several blocks.
  const auto expected = exact.step({{0, 0, ids(100, 1)}}), got = quantized.step({{0, 0, ids(100, 1)}});
  double error = 0, size = 0;
  for (size_t t = 0; t < expected.size(); ++t)
    for (size_t i = 0; i < expected[t].size(); ++i) {
      error += std::fabs(got[t][i] - expected[t][i]);
      size += std::fabs(expected[t][i]);
    }
  std::printf("%s: relative error of logits %.1e\n", GetParam().name, error / size);
  EXPECT_LT(error / size, GetParam().experts.group != 0 || is_channel_class(GetParam().experts.cls) ? 0.03 : 1e-4);
}

class StateOfBoth : public ::testing::TestWithParam<bool> {
 protected:
  static std::unique_ptr<Backend> backend() {
    return GetParam() ? make_cpu_backend(2, ActivationMode::f32) : make_reference_backend();
  }
};

TEST_P(StateOfBoth, CopiesCarryASequenceOn) {
  const auto made = backend();
  Sequences sequences(*made, hybrid_program(kF32, 32));
  const std::vector<int32_t> text = ids(45, 3);
  const auto expected = sequences.step({{0, 0, text}});
  sequences.step({{1, 0, slice(text, 0, 21)}});
  const std::vector<std::pair<int32_t, int32_t>> states{{1, 3}};
  sequences.executable().copy_states(states);
  sequences.step({{1, 21, ids(9, 8)}});  // the state goes another way; the first 21 tokens' blocks stay
  const auto got = sequences.step({{1, 21, slice(text, 21, 45), 3}});
  for (size_t t = 0; t < got.size(); ++t) ASSERT_EQ(got[t], expected[t + 21]) << t;
}

TEST_P(StateOfBoth, RefusesSlotsThatAreNotThere) {
  const auto made = backend();
  Sequences sequences(*made, hybrid_program(kF32, 32));
  const auto refused = [&](const std::vector<Sequences::Part>& parts) {
    try {
      sequences.step(parts);
    } catch (const StepError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused({{0, 0, {1}, kSlots}}), HasSubstr("slot 4 of recurrent state is not one of 4"));
  EXPECT_THAT(refused({{0, 0, {1}}, {1, 0, {1}, 0}}), HasSubstr("belongs to two sequences"));
  EXPECT_EQ(refused({{0, 0, {1}}}), "");
  const std::vector<std::pair<int32_t, int32_t>> outside{{0, kSlots}};
  EXPECT_THROW(sequences.executable().copy_states(outside), StepError);
}

INSTANTIATE_TEST_SUITE_P(BackEnds, StateOfBoth, ::testing::Bool(),
                         [](const auto& each) { return std::string(each.param ? "cpu" : "reference"); });

}  // namespace
}  // namespace gristmill::device::cpu
