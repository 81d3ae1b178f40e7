#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "device/cpu/isa.h"
#include "device/cpu/kernels.h"
#include "device/cpu/random_program.h"
#include "device/cpu/static_cache.h"
#include "sanitizers.h"

namespace gristmill::device::cpu {
namespace {

constexpr int kBlocks = 4 * 101;  // 101 is prime to the stride of Feeder's tables

struct Configuration {
  std::string isa;
  int threads = 1;
  ActivationMode mode = ActivationMode::int8;
  DType cache = DType::bf16;
  int block_size = 16;
};

/// An Executable of the model, and a way to feed it.
struct Machine {
  Machine(const RandomModel& model, const Configuration& setup, int context = 1024) {
    setenv("GRISTMILL_ISA", setup.isa.c_str(), 1);
    backend = make_cpu_backend(setup.threads, setup.mode);
    unsetenv("GRISTMILL_ISA");
    executable = backend->compile(random_program(model), {700, 8, 700, context}, {setup.cache, setup.block_size});
    executable->bind({kBlocks, nullptr});
    feeder = std::make_unique<Feeder>(*executable, model.vocabulary, setup.block_size, kBlocks);
  }
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Executable> executable;
  std::unique_ptr<Feeder> feeder;
};

/// The logits of every position of `ids`, given in pieces of `piece` tokens.
std::vector<std::vector<float>> in_pieces(Machine& machine, const std::vector<int32_t>& ids, size_t piece,
                                          int table = 0) {
  std::vector<std::vector<float>> logits;
  for (size_t first = 0; first < ids.size(); first += piece) {
    const size_t end = std::min(ids.size(), first + piece);
    const auto out = machine.feeder->run(
        {{{ids.begin() + static_cast<std::ptrdiff_t>(first), ids.begin() + static_cast<std::ptrdiff_t>(end)},
          static_cast<int>(first),
          table}});
    logits.insert(logits.end(), out.logits.begin(), out.logits.end());
  }
  return logits;
}

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (const Kernels* set : usable_kernels()) names.push_back(set->name);
  return names;
}

class EveryIsa : public testing::TestWithParam<std::string> {};

TEST_P(EveryIsa, GivesTheSameBitsForAnyChunking) {
  const RandomModel model;
  Machine machine(model, {GetParam()});
  const auto ids = random_ids(80, model.vocabulary, 5);
  const auto whole = in_pieces(machine, ids, ids.size());
  for (size_t piece : {1u, 3u, 17u, 64u, 79u}) EXPECT_EQ(in_pieces(machine, ids, piece, 1), whole) << piece;
}

TEST_P(EveryIsa, GivesTheSameBitsAcrossPartitionsOfTheContext) {
  RandomModel model;
  model.layers = 1;
  Machine machine(model, {GetParam()});
  const auto ids = random_ids(600, model.vocabulary, 6);
  const auto whole = in_pieces(machine, ids, ids.size());
  const auto halves = in_pieces(machine, ids, 300, 1);
  EXPECT_EQ(halves, whole);
  // The last tokens one by one on top of the first part of the prompt.
  machine.feeder->run({{{ids.begin(), ids.begin() + 500}, 0, 2}});
  for (int i = 500; i < 530; ++i) {
    const auto out = machine.feeder->run({{{ids[static_cast<size_t>(i)]}, i, 2}});
    ASSERT_EQ(out.logits[0], whole[static_cast<size_t>(i)]) << i;
  }
}

TEST_P(EveryIsa, GivesTheSameBitsAmongNeighbours) {
  const RandomModel model;
  Machine machine(model, {GetParam()});
  const auto a = random_ids(70, model.vocabulary, 7), b = random_ids(33, model.vocabulary, 8);
  const auto alone_a = in_pieces(machine, a, a.size(), 0), alone_b = in_pieces(machine, b, 1, 1);
  const auto out = machine.feeder->run({{{a.begin(), a.end()}, 0, 2}, {{b.begin(), b.begin() + 32}, 0, 3}});
  for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(out.logits[i], alone_a[i]) << i;
  for (size_t i = 0; i < 32; ++i) ASSERT_EQ(out.logits[a.size() + i], alone_b[i]) << i;
  const auto mixed = machine.feeder->run({{{b[32]}, 32, 3}, {{a[69]}, 69, 2}, {{a.begin(), a.begin() + 5}, 0, 0}});
  EXPECT_EQ(mixed.logits[0], alone_b[32]);
  EXPECT_EQ(mixed.logits[1], alone_a[69]);
  EXPECT_EQ(mixed.logits[6], alone_a[4]);
}

TEST_P(EveryIsa, GivesTheSameBitsForAnyNumberOfThreads) {
  const RandomModel model;
  const auto ids = random_ids(90, model.vocabulary, 9);
  std::vector<std::vector<std::vector<float>>> runs;
  for (int threads : {1, 2, 3}) {
    Machine machine(model, {GetParam(), threads});
    runs.push_back(in_pieces(machine, ids, 70));
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0], runs[2]);
}

TEST_P(EveryIsa, GivesTheBitsOfThePortableKernels) {
  for (DType cache : {DType::f32, DType::bf16, DType::f16, DType::i8, DType::fp8_e4m3}) {
    for (int block_size : {8, 16, 64}) {
      RandomModel model;
      model.layers = 1;
      model.head_dim = block_size == 64 ? 40 : 16;
      Configuration setup{GetParam(), 1, ActivationMode::int8, cache, block_size};
      Machine machine(model, setup);
      setup.isa = "portable";
      Machine portable(model, setup);
      const auto ids = random_ids(70, model.vocabulary, 10);
      EXPECT_EQ(in_pieces(machine, ids, 69), in_pieces(portable, ids, 69)) << name_of(cache) << " " << block_size;
    }
  }
}

TEST_P(EveryIsa, CacheScalesKnownBeforehandKeepEveryPromise) {
  RandomModel model;
  model.cache_scales = true;
  Configuration setup{GetParam(), 2, ActivationMode::int8, DType::i8, 16};
  Machine machine(model, setup);
  const auto ids = random_ids(300, model.vocabulary, 21);
  const auto whole = in_pieces(machine, ids, ids.size());
  for (size_t piece : {1u, 13u, 299u}) EXPECT_EQ(in_pieces(machine, ids, piece, 1), whole) << piece;
  setup.isa = "portable";
  Machine portable(model, setup);
  EXPECT_EQ(in_pieces(portable, ids, 64), whole);
}

TEST_P(EveryIsa, BlockSizeDoesNotChangeBits) {
  RandomModel model;
  model.layers = 1;
  const auto ids = random_ids(300, model.vocabulary, 11);
  std::vector<std::vector<float>> first;
  for (int block_size : {8, 16, 32, 256}) {
    Machine machine(model, {GetParam(), 1, ActivationMode::int8, DType::bf16, block_size});
    const auto logits = in_pieces(machine, ids, 299);
    if (first.empty()) first = logits;
    EXPECT_EQ(logits, first) << block_size;
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, EveryIsa, testing::ValuesIn(isa_names()), [](const auto& test) { return test.param; });

TEST(CpuExecutable, RunsEveryComputeClassOnSizesThatFillNoPanel) {
  for (Encoding encoding :
       {kQ41, kQ40, kQ80, kQ81, kF32, kF16, kBf16, kW8A8, kW8A8Static, kW4A8, kW4A8Group, kW8A16, kFp8, kFp8Group}) {
    RandomModel model;
    model.layers = 1;
    model.query = model.key = model.value = model.output = model.gate = model.up = model.down = model.table = encoding;
    if (encoding.group == 0 || is_channel_class(encoding.cls) || is_byte_class(encoding.cls)) {
      model.hidden = 75;
      model.ffn = 101;
      model.head_dim = 22;
      model.heads = 3;
      model.kv_heads = 1;
    }
    Machine machine(model, {});
    Machine portable(model, {"portable"});
    const auto ids = random_ids(20, model.vocabulary, 12);
    const auto whole = in_pieces(machine, ids, 20);
    EXPECT_EQ(whole, in_pieces(portable, ids, 20)) << name_of(encoding.cls);
    EXPECT_EQ(whole, in_pieces(machine, ids, 1, 1)) << name_of(encoding.cls);
    for (float logit : whole.back()) ASSERT_TRUE(std::isfinite(logit));
  }
}

TEST(CpuExecutable, OneOpReadsItsRowsInEveryFormItsWeightsAskFor) {
  RandomModel model;
  model.query = kW8A8;
  model.key = Encoding{ComputeClass::i8_channel, 0, 0, false, StaticInput{0.05f, 3}};
  model.value = kW8A8Static;
  model.output = kBf16;
  model.gate = kW4A8;
  model.up = kQ41;
  model.down = kW4A8Group;
  const auto ids = random_ids(90, model.vocabulary, 14);
  Machine machine(model, {});
  Machine portable(model, {"portable", 2});
  const auto whole = in_pieces(machine, ids, 90);
  EXPECT_EQ(whole, in_pieces(portable, ids, 70));
  EXPECT_EQ(whole, in_pieces(machine, ids, 7, 1));
}

TEST(CpuExecutable, Int8ActivationsStayNearFloat32) {
  const RandomModel model;
  Machine int8(model, {}), exact(model, {"", 1, ActivationMode::f32, DType::f32});
  const auto ids = random_ids(40, model.vocabulary, 13);
  const auto a = in_pieces(int8, ids, 40), b = in_pieces(exact, ids, 40);
  double error = 0, power = 0;
  for (size_t t = 0; t < a.size(); ++t) {
    for (size_t i = 0; i < a[t].size(); ++i) {
      error += (a[t][i] - b[t][i]) * (a[t][i] - b[t][i]);
      power += b[t][i] * b[t][i];
    }
  }
  EXPECT_GT(power, 0);
  EXPECT_LT(error / power, 1e-3);
}

TEST(CpuExecutable, Float32ModeFollowsTheReferenceBackEnd) {
  for (const bool tied : {true, false}) {
    RandomModel model;
    model.tied = tied;
    model.rope = tied;
    Machine exact(model, {"", 2, ActivationMode::f32, DType::f32});
    const auto reference =
        make_reference_backend()->compile(random_program(model), {700, 8, 700, 1024}, {DType::f32, 16});
    reference->bind({kBlocks, nullptr});
    Feeder feeder(*reference, model.vocabulary, 16, kBlocks);
    const auto ids = random_ids(330, model.vocabulary, 18);
    const auto a = exact.feeder->run({{ids, 0, 0}}), b = feeder.run({{ids, 0, 0}});
    for (size_t t = 0; t < ids.size(); ++t) {
      for (size_t i = 0; i < a.logits[t].size(); ++i) ASSERT_NEAR(a.logits[t][i], b.logits[t][i], 2e-4) << t;
    }
  }
}

TEST(CpuExecutable, CacheScalesKnownBeforehandFollowTheReferenceBackEnd) {
  RandomModel model;
  model.cache_scales = true;
  Machine exact(model, {"", 2, ActivationMode::f32, DType::i8});
  const auto reference = make_reference_backend()->compile(random_program(model), {700, 8, 700, 1024}, {DType::i8, 16});
  reference->bind({kBlocks, nullptr});
  Feeder feeder(*reference, model.vocabulary, 16, kBlocks);
  const auto ids = random_ids(280, model.vocabulary, 22);
  const auto a = exact.feeder->run({{ids, 0, 0}}), b = feeder.run({{ids, 0, 0}});
  double error = 0, size = 0;
  for (size_t t = 0; t < ids.size(); ++t)
    for (size_t i = 0; i < a.logits[t].size(); ++i) {
      error += std::fabs(a.logits[t][i] - b.logits[t][i]);
      size += std::fabs(b.logits[t][i]);
    }
  // A last bit of K or V can turn a code into its neighbour.
  EXPECT_LT(error / size, 1e-3);
  // They are for int8 caches only.
  Machine with(model, {});
  model.cache_scales = false;
  Machine without(model, {});
  EXPECT_EQ(in_pieces(with, ids, 280), in_pieces(without, ids, 280));
}

TEST(StaticCache, CodesAreRoundedToEvenWithinTheirRange) {
  const StaticCache cache({{0.5f, 0.25f, 1.0f}, {0, 3, -100}, {1, 1, 1}, {0, 0, 0}}, 3);
  std::vector<uint8_t> codes(3);
  const auto encoded = [&](std::vector<float> x) {
    EXPECT_EQ(cache.encode_k(0, x.data(), codes.data()), 1.0f);
    return std::vector<int>{static_cast<int8_t>(codes[0]), static_cast<int8_t>(codes[1]),
                            static_cast<int8_t>(codes[2])};
  };
  EXPECT_EQ(encoded({0.25f, 0.375f, 0.0f}), (std::vector<int>{0, 4, -100}));
  EXPECT_EQ(encoded({0.75f, -0.125f, -27.5f}), (std::vector<int>{2, 2, -128}));
  EXPECT_EQ(encoded({1e9f, -1e9f, -28.5f}), (std::vector<int>{127, -128, -128}));
  const std::vector<float> broken{0, NAN, 0};
  EXPECT_TRUE(std::isnan(cache.encode_v(0, broken.data(), codes.data())));
}

TEST(CpuExecutable, WeightsAloneInBytesKeepFloatActivations) {
  for (const Encoding& encoding : {kW8A16, kFp8, kFp8Group}) {
    RandomModel model;
    model.query = model.key = model.value = model.output = model.gate = model.up = model.down = encoding;
    model.table = kBf16;
    Machine machine(model, {"", 2, ActivationMode::int8, DType::f32}),
        exact(model, {"", 2, ActivationMode::f32, DType::f32});
    const auto ids = random_ids(70, model.vocabulary, 23);
    const auto a = in_pieces(machine, ids, 70), b = in_pieces(exact, ids, 70);
    for (size_t t = 0; t < ids.size(); ++t)
      for (size_t i = 0; i < a[t].size(); ++i) ASSERT_NEAR(a[t][i], b[t][i], 2e-4) << name_of(encoding.cls) << t;
    // A byte per weight in the layers, where float32 takes four.
    EXPECT_LT(machine.executable->memory().weights, exact.executable->memory().weights / 2);
  }
}

TEST(CpuExecutable, ArgmaxIsTheFirstMaximumAndLogitsComeOnlyWhereWanted) {
  const RandomModel model;
  Machine machine(model, {"", 2});
  const auto ids = random_ids(9, model.vocabulary, 14);
  const auto wanted = machine.feeder->run({{ids, 0, 0, true}});
  const auto unwanted = machine.feeder->run({{ids, 0, 1, false}});
  EXPECT_EQ(wanted.argmax, unwanted.argmax);
  for (size_t r = 0; r < ids.size(); ++r) {
    EXPECT_TRUE(unwanted.logits[r].empty());
    const auto& logits = wanted.logits[r];
    EXPECT_EQ(wanted.argmax[r], std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
}

TEST(CpuExecutable, ThereIsNoArgmaxOfLogitsThatAreNotFinite) {
  RandomModel model;
  const auto ids = random_ids(9, model.vocabulary, 14);
  const std::vector<int32_t> none(ids.size(), -1);
  for (const float norm : {INFINITY, NAN}) {
    model.last_norm = norm;
    for (const ActivationMode mode : {ActivationMode::int8, ActivationMode::f32}) {
      Machine machine(model, {"", 2, mode});
      EXPECT_EQ(machine.feeder->run({{ids, 0, 0, false}}).argmax, none) << norm;
    }
  }
  const auto reference = make_reference_backend()->compile(random_program(model), {64, 8, 64, 64}, {DType::f32, 16});
  reference->bind({kBlocks, nullptr});
  EXPECT_EQ(Feeder(*reference, model.vocabulary, 16, kBlocks).run({{ids, 0, 0, false}}).argmax, none);
}

TEST(CpuExecutable, TapsShowTheRowsAndChangeNothing) {
  RandomModel model;
  Machine plain(model, {});
  model.taps = true;
  Machine tapped(model, {});
  const auto ids = random_ids(12, model.vocabulary, 15);
  const auto a = plain.feeder->run({{ids, 0, 0}}), b = tapped.feeder->run({{ids, 0, 0}});
  EXPECT_EQ(a.logits, b.logits);
  ASSERT_EQ(b.taps.size(), 3u);
  std::vector<float> row(static_cast<size_t>(model.hidden));
  const RandomWeight table("table", model.vocabulary, model.hidden, model.table, 1);
  table.read_f32(ids[4], 1, row.data());
  EXPECT_EQ(std::vector<float>(b.taps[0].begin() + 4 * model.hidden, b.taps[0].begin() + 5 * model.hidden), row);
  EXPECT_NE(b.taps[1], b.taps[2]);
}

TEST(CpuExecutable, WatchedInputsHaveTheRangesOfTheReferenceBackEnd) {
  RandomModel model;
  Machine plain(model, {"", 2, ActivationMode::f32, DType::f32});
  model.watched = true;
  Machine watched(model, {"", 2, ActivationMode::f32, DType::f32});
  const auto ids = random_ids(70, model.vocabulary, 24);
  EXPECT_EQ(in_pieces(watched, ids, 70), in_pieces(plain, ids, 70));
  const auto reference =
      make_reference_backend()->compile(random_program(model), {700, 8, 700, 1024}, {DType::f32, 16});
  reference->bind({kBlocks, nullptr});
  const std::vector<int32_t> blocks{0, 1, 2, 3, 4}, row{69};
  const std::vector<uint8_t> want{0};
  const std::vector<SequenceStep> sequences{{0, 70, 0, blocks}};
  const StepInputs inputs{ids, sequences, row, want};
  const auto ranges = [&](Executable& executable) {
    return executable.wait(executable.launch({70, 1, 1, false}, inputs)).ranges;
  };
  const auto a = ranges(*watched.executable), b = ranges(*reference);
  // Queries to values, output, gate and up, down: four of each layer.
  ASSERT_EQ(a.size(), static_cast<size_t>(4 * model.layers));
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_LT(a[i].low, 0) << i;
    EXPECT_NEAR(a[i].low, b[i].low, 1e-4) << i;
    EXPECT_NEAR(a[i].high, b[i].high, 1e-4) << i;
  }
}

/// A line of /proc/self/status, in bytes.
size_t process_bytes(const char* name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name, 0) == 0) return std::stoul(line.substr(std::string(name).size() + 1)) << 10;
  }
  return 0;
}

TEST(CpuExecutable, AllocatesWhatThePlanSaysAndCommitsItOnUse) {
#if defined(GRISTMILL_SANITIZED)
  GTEST_SKIP() << "sanitizers map memory of their own";
#endif
  RandomModel model;
  model.hidden = 512;
  model.ffn = 1024;
  model.vocabulary = 8192;
  auto backend = make_cpu_backend(1, ActivationMode::int8);
  const size_t size_before = process_bytes("VmSize:"), resident_before = process_bytes("VmRSS:");
  auto executable = backend->compile(random_program(model), {2048, 64, 256, 8192}, {DType::bf16, 16});
  const MemoryPlan plan = executable->memory();
  constexpr size_t kNumBlocks = 100000;
  executable->bind({static_cast<int>(kNumBlocks), nullptr});
  const size_t planned = plan.weights + plan.scratch + kNumBlocks * plan.bytes_per_block;
  const size_t size = process_bytes("VmSize:") - size_before, resident = process_bytes("VmRSS:") - resident_before;
  constexpr size_t kSlack = 32 << 20;  // the test's own weights, and the allocator's arenas
  EXPECT_GT(planned, 300u << 20);
  EXPECT_GE(size, planned);
  EXPECT_LT(size, planned + kSlack);
  EXPECT_LT(resident, plan.weights + kSlack);
}

TEST(CpuExecutable, ReleasesEverySourceAfterPacking) {
  ProgramBuilder builder;
  const auto table = std::make_shared<RandomWeight>("table", 64, 32, kQ80, 1);
  const auto norm = std::make_shared<RandomWeight>("norm", 1, 32, kF32, 2);
  const WeightRef table_ref = builder.weight(table);
  const Value x = builder.embed(table_ref);
  builder.head(x, {builder.weight(norm), 1e-5f}, table_ref);
  auto backend = make_cpu_backend(2, ActivationMode::int8);
  auto executable = backend->compile(std::make_shared<const Program>(std::move(builder).build()), {4, 1, 4, 16}, {});
  EXPECT_EQ(table->released, 0);
  executable->bind({1, nullptr});
  EXPECT_EQ(table->released, 1);
  EXPECT_EQ(norm->released, 1);
  // One packed copy serves the embedding and the head: 64 rows of 34 bytes, and the norm.
  EXPECT_LE(executable->memory().weights, 64u * 34 + 32 * 4 + 128);
}

TEST(CpuExecutable, BadInputsFailTheStepAndNothingElse) {
  const RandomModel model;
  Machine machine(model, {});
  const auto ids = random_ids(4, model.vocabulary, 17);
  const auto good = machine.feeder->run({{ids, 0, 0}});
  const std::vector<int32_t> blocks{0, 1}, row{3}, outside{kBlocks};
  const std::vector<uint8_t> want{1};
  const std::vector<int32_t> bad_ids{1, 2, 3, model.vocabulary};
  const auto fails = [&](std::span<const int32_t> tokens, SequenceStep sequence, std::span<const int32_t> rows) {
    const std::vector<SequenceStep> sequences{sequence};
    EXPECT_THROW(machine.executable->wait(machine.executable->launch({}, {tokens, sequences, rows, want})), StepError);
  };
  fails(bad_ids, {0, 4, 0, blocks}, row);
  fails(ids, {0, 3, 0, blocks}, row);
  fails(ids, {1, 4, 0, blocks}, row);
  fails(ids, {0, 4, 1021, blocks}, row);
  fails(ids, {0, 4, 40, blocks}, row);
  fails(ids, {0, 4, 0, outside}, row);
  const std::vector<int32_t> far{4};
  fails(ids, {0, 4, 0, blocks}, far);
  EXPECT_EQ(machine.feeder->run({{ids, 0, 0}}).logits, good.logits);
}

TEST(CpuExecutable, NamesWhatItCannotRun) {
  EXPECT_THROW(make_cpu_backend(0, ActivationMode::int8), Error);
  auto backend = make_cpu_backend(1, ActivationMode::int8);
  const auto program = random_program({});
  EXPECT_THROW(backend->compile(program, {1, 1, 1, 16}, {DType::bf16, 12}), Error);
  EXPECT_THROW(backend->compile(program, {0, 1, 1, 16}, {DType::bf16, 16}), Error);
  setenv("GRISTMILL_ISA", "mmx", 1);
  try {
    make_cpu_backend(1, ActivationMode::int8);
    ADD_FAILURE() << "mmx was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("portable"), std::string::npos) << error.what();
  }
  unsetenv("GRISTMILL_ISA");
}

}  // namespace
}  // namespace gristmill::device::cpu
