// A step reads the matrices of the experts that it chose and of no other: the others' pages can be taken away.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "device/cpu/executable.h"
#include "device/cpu/isa.h"
#include "device/cpu/random_program.h"
#include "device/memory_weight.h"

namespace gristmill::device::cpu {
namespace {

constexpr int kExperts = 6, kTopK = 2, kHidden = 256, kWidth = 256, kTokens = 32;

/// Token t goes to experts t and t + 1.
struct Mixture {
  std::shared_ptr<const Program> program;
  WeightRef gate_up, down;

  explicit Mixture(Encoding encoding) {
    ProgramBuilder builder;
    testing::Numbers numbers(1);
    std::vector<float> table = numbers.take(kExperts * kHidden), router(kExperts * kHidden);
    for (int t = 0; t < kExperts; ++t) {
      std::fill_n(&table[static_cast<size_t>(t * kHidden)], kExperts, 0.0f);
      table[static_cast<size_t>(t * kHidden + t)] = 4;
      table[static_cast<size_t>(t * kHidden + (t + 1) % kExperts)] = 2;
      router[static_cast<size_t>(t * kHidden + t)] = 1;
    }
    const auto matrix = [&](const char* name, int rows, int columns, std::vector<float> values) {
      return builder.weight(std::make_shared<testing::MemoryWeight>(name, rows, columns, std::move(values)));
    };
    const WeightRef embeddings = matrix("table", kExperts, kHidden, std::move(table));
    const Value x = builder.embed(embeddings);
    Moe moe;
    moe.experts = kExperts;
    moe.top_k = kTopK;
    moe.width = kWidth;
    moe.router = matrix("router", kExperts, kHidden, std::move(router));
    moe.gate_up = gate_up =
        builder.weight(std::make_shared<RandomWeight>("gate_up", kExperts * 2 * kWidth, kHidden, encoding, 2, 1.0f));
    moe.down = down =
        builder.weight(std::make_shared<RandomWeight>("down", kExperts * kHidden, kWidth, encoding, 3, 1.0f));
    const Value y = builder.residual(x, builder.moe(x, moe));
    builder.head(y, {matrix("norm", 1, kHidden, std::vector<float>(kHidden, 1.0f)), 1e-5f}, embeddings);
    program = std::make_shared<const Program>(std::move(builder).build());
  }
};

/// Takes away, or gives back, the whole pages of `expert` in a matrix of `rows` rows for each.
void protect(const PackedWeight& weight, int expert, int64_t rows, int protection) {
  const int64_t first = (expert * rows + weight.panel - 1) / weight.panel, end = (expert + 1) * rows / weight.panel;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t from = (reinterpret_cast<uintptr_t>(weight.panel_data(first)) + page - 1) / page * page;
  const uintptr_t to = reinterpret_cast<uintptr_t>(weight.panel_data(end)) / page * page;
  ASSERT_GT(to, from + 2 * page);
  ASSERT_EQ(::mprotect(reinterpret_cast<void*>(from), to - from, protection), 0);
}

std::vector<float> logits(CpuExecutable& executable, const std::vector<int32_t>& ids) {
  const std::vector<uint8_t> want(ids.size(), 1);
  std::vector<int32_t> rows, block{0, 1};
  for (size_t i = 0; i < ids.size(); ++i) rows.push_back(static_cast<int32_t>(i));
  const auto count = static_cast<int>(ids.size());
  const std::vector<SequenceStep> sequences{{0, count, 0, block}};
  const StepResult& result = executable.wait(executable.launch({count, 1, count, false}, {ids, sequences, rows, want}));
  std::vector<float> all;
  for (const float* row : result.logits) all.insert(all.end(), row, row + kExperts);
  return all;
}

class UntouchedExperts : public ::testing::TestWithParam<Encoding> {};

TEST_P(UntouchedExperts, AreNeverRead) {
  Mixture mixture(GetParam());
  CpuExecutable executable(std::make_shared<ComputeTeam>(1), choose_kernels(), ActivationMode::int8, mixture.program,
                           {kTokens, 1, kTokens, kTokens}, {DType::f32, 16});
  BindOptions options;
  options.num_blocks = 2;
  executable.bind(options);
  // One row, and more rows than a block of rows has: experts 2 and 3, and 2, 3 and 4.
  std::vector<int32_t> many;
  for (int i = 0; i < 20; ++i) many.push_back(2 + i % 2);
  const std::vector<float> one_row = logits(executable, {2}), many_rows = logits(executable, many);
  const auto take_away = [&](int protection) {
    for (const int expert : {0, 1, 5}) {
      protect(executable.packed(mixture.gate_up), expert, 2 * kWidth, protection);
      protect(executable.packed(mixture.down), expert, kHidden, protection);
    }
  };
  take_away(PROT_NONE);
  EXPECT_EQ(logits(executable, {2}), one_row);
  EXPECT_EQ(logits(executable, many), many_rows);
  EXPECT_DEATH(logits(executable, {0}), "");
  take_away(PROT_READ | PROT_WRITE);
}

INSTANTIATE_TEST_SUITE_P(Classes, UntouchedExperts, ::testing::Values(kF32, kBf16, kQ40, kQ80, kW8A8, kW4A8),
                         [](const auto& each) { return cat(name_of(each.param.cls)); });

}  // namespace
}  // namespace gristmill::device::cpu
