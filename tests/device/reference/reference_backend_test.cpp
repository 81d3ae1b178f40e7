#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "device/backend.h"
#include "device/memory_weight.h"

namespace gristmill::device {
namespace {

using ::testing::HasSubstr;
using testing::Numbers;
using testing::random_weight;

constexpr int kVocabulary = 23, kWidth = 12, kHeads = 4, kKvHeads = 2, kDim = 6, kFfn = 20;
constexpr Limits kLimits{32, 4, 8, 64};

/// Two decoder layers of odd sizes, with biases, norms, partial rope and taps.
std::shared_ptr<const Program> small_program() {
  Numbers numbers(7);
  ProgramBuilder b;
  const auto add = [&](const std::string& name, int rows, int columns) {
    return b.weight(random_weight(name, rows, columns, numbers));
  };
  const auto norm = [&](const std::string& name) { return Norm{add(name, 1, kWidth), 1e-5f}; };
  const WeightRef table = add("table", kVocabulary, kWidth);
  Value x = b.embed(table);
  b.tap(x, 0);
  for (int layer = 0; layer < 2; ++layer) {
    const std::vector<Value> qkv = b.linear(x, norm("attention norm"),
                                            {{add("q", kHeads * kDim, kWidth), add("q bias", 1, kHeads * kDim)},
                                             {add("k", kKvHeads * kDim, kWidth), {}},
                                             {add("v", kKvHeads * kDim, kWidth), {}}});
    Attention a;
    a.heads = kHeads;
    a.kv_heads = kKvHeads;
    a.head_dim = kDim;
    a.scale = 0.4f;
    a.rope = Rope{{1.0f, 0.3f}, 1.0f};
    a.cache = b.cache(kKvHeads, kDim);
    const Value mixed = b.attention(qkv[0], qkv[1], qkv[2], a);
    x = b.residual(x, b.linear(mixed, {}, {{add("o", kWidth, kHeads * kDim), {}}})[0]);
    const Value gated = b.linear(x, norm("ffn norm"), {{add("gate", kFfn, kWidth), {}}, {add("up", kFfn, kWidth), {}}},
                                 Activation::silu_mul)[0];
    x = b.residual(x, b.linear(gated, {}, {{add("down", kWidth, kFfn), {}}})[0]);
    b.tap(x, layer + 1);
  }
  b.head(x, norm("output norm"), table);
  return std::make_shared<const Program>(std::move(b).build());
}

std::unique_ptr<Executable> bound(DType dtype = DType::f32, int block_size = 8, int blocks = 16) {
  auto executable = make_reference_backend()->compile(small_program(), kLimits, {dtype, block_size});
  BindOptions options;
  options.num_blocks = blocks;
  executable->bind(options);
  return executable;
}

std::vector<int32_t> some_ids(int count, uint64_t seed = 3) {
  Numbers numbers(seed);
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>((numbers.next() + 1) / 2 * (kVocabulary - 0.01f)));
  return ids;
}

/// The logits of each token of one sequence, run in chunks of the given lengths.
std::vector<std::vector<float>> run_chunks(Executable& executable, const std::vector<int32_t>& ids,
                                           const std::vector<int>& chunks, const std::vector<int32_t>& table) {
  std::vector<std::vector<float>> logits;
  int32_t context = 0;
  for (const int chunk : chunks) {
    const std::span<const int32_t> part(ids.data() + context, static_cast<size_t>(chunk));
    const SequenceStep sequence{0, chunk, context, table};
    for (int32_t first = 0; first < chunk; first += kLimits.rows) {
      // More logit rows than the limit: the same step again for the next ones, which stores the same cache.
      std::vector<int32_t> rows;
      for (int32_t row = first; row < std::min(chunk, first + kLimits.rows); ++row) rows.push_back(row);
      const std::vector<uint8_t> want(rows.size(), 1);
      const StepResult& result = executable.wait(
          executable.launch({chunk, 1, static_cast<int>(rows.size()), chunk == 1}, {part, {&sequence, 1}, rows, want}));
      for (const float* row : result.logits) logits.emplace_back(row, row + kVocabulary);
    }
    context += chunk;
  }
  return logits;
}

TEST(ReferenceBackend, GivesTheSameBitsForAnyChunking) {
  const std::vector<int32_t> ids = some_ids(21);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i8, DType::fp8_e4m3}) {
    const auto whole = run_chunks(*bound(dtype), ids, {21}, {0, 1, 2});
    ASSERT_EQ(whole.size(), 21u);
    EXPECT_EQ(run_chunks(*bound(dtype), ids, {1, 7, 8, 2, 3}, {0, 1, 2}), whole);
    EXPECT_EQ(run_chunks(*bound(dtype), ids, std::vector<int>(21, 1), {9, 3, 15}), whole);
    EXPECT_EQ(run_chunks(*bound(dtype, 16), ids, {21}, {5, 4}), whole);
  }
}

TEST(ReferenceBackend, AttendsTheValuesAsStored) {
  const std::vector<int32_t> ids = some_ids(9);
  const auto f32 = run_chunks(*bound(DType::f32), ids, {9}, {0, 1});
  for (const auto& [dtype, tolerance] : {std::pair(DType::bf16, 0.2f), std::pair(DType::f16, 0.02f),
                                         std::pair(DType::i8, 0.2f), std::pair(DType::fp8_e4m3, 1.0f)}) {
    const auto rounded = run_chunks(*bound(dtype), ids, {9}, {0, 1});
    float largest = 0;
    for (size_t t = 0; t < f32.size(); ++t)
      for (size_t i = 0; i < f32[t].size(); ++i) largest = std::max(largest, std::fabs(rounded[t][i] - f32[t][i]));
    EXPECT_GT(largest, 0.0f);
    EXPECT_LT(largest, tolerance);
  }
}

TEST(ReferenceBackend, GivesTheSameBitsBesideOtherSequences) {
  const std::vector<int32_t> a = some_ids(6, 4), b = some_ids(9, 5);
  const auto alone_a = run_chunks(*bound(), a, {6}, {0});
  const auto alone_b = run_chunks(*bound(), b, {9}, {0, 1});

  const auto executable = bound();
  run_chunks(*executable, b, {8}, {2, 3});
  // b's last token, then all of a, in one step.
  std::vector<int32_t> ids = {b[8]};
  ids.insert(ids.end(), a.begin(), a.end());
  const std::vector<int32_t> table_a = {7}, table_b = {2, 3};
  const SequenceStep steps[] = {{0, 1, 8, table_b}, {1, 6, 0, table_a}};
  const std::vector<int32_t> rows = {0, 3, 6};
  const std::vector<uint8_t> want = {1, 0, 1};
  const StepResult& result = executable->wait(executable->launch({7, 2, 3, false}, {ids, steps, rows, want}));
  const auto row = [&](size_t i) { return std::vector<float>(result.logits[i], result.logits[i] + kVocabulary); };
  EXPECT_EQ(row(0), alone_b[8]);
  EXPECT_EQ(result.logits[1], nullptr);
  EXPECT_EQ(row(2), alone_a[5]);
  EXPECT_EQ(result.argmax[1], std::max_element(alone_a[2].begin(), alone_a[2].end()) - alone_a[2].begin());
}

TEST(ReferenceBackend, TapsGiveEveryRow) {
  const auto executable = bound();
  const std::vector<int32_t> ids = {4, 2, 4}, table = {0};
  const SequenceStep sequence{0, 3, 0, table};
  const StepResult& result = executable->wait(executable->launch({3, 1, 0, false}, {ids, {&sequence, 1}, {}, {}}));
  ASSERT_EQ(result.taps.size(), 3u);
  for (const std::span<const float> tap : result.taps) ASSERT_EQ(tap.size(), 3u * kWidth);
  std::vector<float> table_rows(kVocabulary * kWidth);
  small_program()->weight(WeightRef{0}).read_f32(0, kVocabulary, table_rows.data());
  for (size_t t = 0; t < 3; ++t)
    for (size_t i = 0; i < kWidth; ++i)
      EXPECT_EQ(result.taps[0][t * kWidth + i], table_rows[static_cast<size_t>(ids[t]) * kWidth + i]);
  EXPECT_TRUE(std::equal(result.taps[0].begin(), result.taps[0].begin() + kWidth, result.taps[0].end() - kWidth));
  EXPECT_FALSE(std::equal(result.taps[2].begin(), result.taps[2].begin() + kWidth, result.taps[2].end() - kWidth));
}

TEST(ReferenceBackend, PlansMemoryExactly) {
  const auto executable = make_reference_backend()->compile(small_program(), kLimits, {DType::bf16, 16});
  const MemoryPlan& plan = executable->memory();
  EXPECT_EQ(plan.bytes_per_block, 2u /* layers */ * 2 * 16 * kKvHeads * kDim * 2);
  size_t weights = 0;
  const auto program = small_program();
  for (const WeightDecl& decl : program->weights()) {
    const int64_t rows = decl.source->rows() == 1 ? 1 : (decl.source->rows() + 7) / 8 * 8;
    weights += static_cast<size_t>((rows * decl.source->columns() * 4 + 63) / 64 * 64);
  }
  EXPECT_EQ(plan.weights, weights);
  // Values that do not live at the same time share room: far less than one piece for each of them.
  size_t all = 0;
  for (uint32_t id = 0; id < program->values(); ++id)
    all += static_cast<size_t>(program->width(Value{id})) * kLimits.tokens * 4;
  const size_t fixed = kLimits.rows * (kVocabulary + kWidth) * 4 + 3 * kLimits.tokens * kWidth * 4;
  EXPECT_LT(plan.scratch, fixed + all);
  EXPECT_GT(plan.scratch, fixed);
}

TEST(ReferenceBackend, RefusesStepsThatDoNotFit) {
  const auto executable = bound();
  const std::vector<int32_t> ids = {1, 2, 3}, table = {0}, rows = {2};
  const std::vector<uint8_t> want = {1};
  const SequenceStep good{0, 3, 0, table};
  const auto refused = [&](const StepShape& shape, const std::vector<int32_t>& with_ids,
                           std::vector<SequenceStep> steps, const std::vector<int32_t>& with_rows,
                           const std::vector<uint8_t>& with_want) -> std::string {
    try {
      executable->wait(executable->launch(shape, {with_ids, steps, with_rows, with_want}));
    } catch (const StepError& error) {
      return error.what();
    }
    return "";
  };
  const StepShape shape{3, 1, 1, false};
  EXPECT_EQ(refused(shape, ids, {good}, rows, want), "");
  EXPECT_THAT(refused({4, 1, 1, false}, ids, {good}, rows, want), HasSubstr("3 ids for 4 tokens"));
  EXPECT_THAT(refused({33, 1, 1, false}, some_ids(33), {good}, rows, want), HasSubstr("the limit is 32"));
  EXPECT_THAT(refused(shape, {1, 2, kVocabulary}, {good}, rows, want), HasSubstr("id 23"));
  EXPECT_THAT(refused(shape, {1, -2, 3}, {good}, rows, want), HasSubstr("id -2"));
  EXPECT_THAT(refused(shape, ids, {good}, {3}, want), HasSubstr("logit row 3"));
  EXPECT_THAT(refused(shape, ids, {good}, {1, 1}, {1, 1}), HasSubstr("logit row 1"));
  EXPECT_THAT(refused(shape, ids, {good}, rows, {}), HasSubstr("want_logits"));
  EXPECT_THAT(refused(shape, ids, {{0, 2, 0, table}}, rows, want), HasSubstr("no sequence"));
  EXPECT_THAT(refused(shape, ids, {{0, 2, 0, table}, {1, 2, 0, table}}, rows, want), HasSubstr("two sequences"));
  EXPECT_THAT(refused(shape, ids, {{1, 3, 0, table}}, rows, want), HasSubstr("1 + 3"));
  EXPECT_THAT(refused(shape, ids, {{0, 3, 6, table}}, rows, want), HasSubstr("1 cache blocks where 2"));
  EXPECT_THAT(refused(shape, ids, {{0, 3, 62, table}}, rows, want), HasSubstr("the limit is 64"));
  const std::vector<int32_t> outside = {16};
  EXPECT_THAT(refused(shape, ids, {{0, 3, 0, outside}}, rows, want), HasSubstr("cache block 16"));
  EXPECT_EQ(refused(shape, ids, {good}, rows, want), "");  // and goes on
}

TEST(ReferenceBackend, TakesOneStepAtATime) {
  const auto executable = bound();
  const std::vector<int32_t> ids = {1}, table = {0};
  const SequenceStep sequence{0, 1, 0, table};
  const StepInputs inputs{ids, {&sequence, 1}, {}, {}};
  const Ticket first = executable->launch({1, 1, 0, true}, inputs);
  EXPECT_THROW(executable->launch({1, 1, 0, true}, inputs), StepError);
  EXPECT_THROW(executable->wait(Ticket{first.id + 1}), StepError);
  executable->wait(first);
  EXPECT_THROW(executable->wait(first), StepError);
}

TEST(ReferenceBackend, RefusesWhatItCannotCompileOrBind) {
  const auto backend = make_reference_backend();
  EXPECT_EQ(backend->name(), "reference");
  EXPECT_THROW(backend->compile(small_program(), kLimits, {DType::f32, 12}), Error);
  EXPECT_THROW(backend->compile(small_program(), Limits{}, {DType::f32, 16}), Error);
  const auto executable = backend->compile(small_program(), kLimits, {DType::f32, 16});
  const std::vector<int32_t> ids = {1}, table = {0};
  const SequenceStep sequence{0, 1, 0, table};
  EXPECT_THROW(executable->launch({1, 1, 0, true}, {ids, {&sequence, 1}, {}, {}}), StepError);
  EXPECT_THROW(executable->bind({}), Error);
  BindOptions options;
  options.num_blocks = 1;
  executable->bind(options);
  EXPECT_THROW(executable->bind(options), Error);
}

}  // namespace
}  // namespace gristmill::device
