// The CPU back end against transformers in float32, and what its int8 activations cost.
#include <gtest/gtest.h>

#include "model/golden.h"

namespace gristmill::model {
namespace {

constexpr float kTolerance = 2e-3f;
constexpr int kThreads = 2;

TEST(CpuGolden, TinyModelInFloat32AgreesWithTransformers) {
  const Golden golden("tiny_llama_golden");
  const Model model = load_model(GRISTMILL_TEST_DIR "/golden/tiny_llama.gguf", {.exact = true, .tap_layers = true});
  const auto backend = device::make_cpu_backend(kThreads, device::ActivationMode::f32);
  EXPECT_LT(hidden_state_error(*backend, model, golden), 1e-4f);
  Runner runner(*backend, model);
  EXPECT_LT(logit_error(runner, model, golden), 1e-4f);
  EXPECT_EQ(expect_same_greedy_text(runner, golden, 100), 6);
}

TEST(CpuGolden, DefaultModelInFloat32AgreesWithTransformers) {
  const std::string path = default_model();
  if (const std::string why = no_default_model(); !why.empty()) GTEST_SKIP() << why;
  const Golden golden("smollm2_golden");
  const auto backend = device::make_cpu_backend(kThreads, device::ActivationMode::f32);
  const Model model = load_model(path, {.exact = true, .tap_layers = true});
  const float hidden = hidden_state_error(*backend, model, golden);
  Runner runner(*backend, model);
  const float logits = logit_error(runner, model, golden);
  std::printf("cpu, float32: largest error of hidden states %.1e, of logits %.1e\n", hidden, logits);
  EXPECT_LT(hidden, kTolerance);
  EXPECT_LT(logits, kTolerance);
  EXPECT_EQ(expect_same_greedy_text(runner, golden, 100), 10);
}

/// Kullback-Leibler divergence of softmax(q) from softmax(p), in nats.
double divergence(const float* p, const float* q, size_t count) {
  const auto log_sum = [count](const float* x) {
    const double highest = static_cast<double>(*std::max_element(x, x + count));
    double sum = 0;
    for (size_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(x[i]) - highest);
    return highest + std::log(sum);
  };
  const double log_p = log_sum(p), log_q = log_sum(q);
  double total = 0;
  for (size_t i = 0; i < count; ++i) {
    const double lp = static_cast<double>(p[i]) - log_p;
    total += std::exp(lp) * (lp - (static_cast<double>(q[i]) - log_q));
  }
  return total;
}

struct Loss {
  double mean = 0, p99 = 0, largest = 0;
  double same_top = 0;  ///< share of positions with the same likeliest token
};

/// Of every position of the chats and their continuations.
std::vector<float> logits_of(Runner& runner, const Golden& golden) {
  std::vector<float> all;
  for (int n = 0; golden.has(cat("greedy.", n, ".ids")); ++n) {
    std::vector<int32_t> ids = golden.ids(cat("greedy.", n, ".prompt"));
    const std::vector<int32_t> continuation = golden.ids(cat("greedy.", n, ".ids"));
    ids.insert(ids.end(), continuation.begin(), continuation.end());
    const std::vector<float> one = runner.logits(ids);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

/// What logits `q` lose against `p`.
Loss loss_of(const std::vector<float>& q, const std::vector<float>& p, size_t vocabulary, const std::string& what) {
  std::vector<double> losses;
  Loss loss;
  for (size_t at = 0; at < p.size(); at += vocabulary) {
    losses.push_back(divergence(&p[at], &q[at], vocabulary));
    loss.same_top +=
        std::max_element(&p[at], &p[at] + vocabulary) - &p[at] == std::max_element(&q[at], &q[at] + vocabulary) - &q[at]
            ? 1
            : 0;
  }
  std::sort(losses.begin(), losses.end());
  loss.mean = std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
  loss.p99 = losses[losses.size() * 99 / 100];
  loss.largest = losses.back();
  loss.same_top /= static_cast<double>(losses.size());
  std::printf("%s, %zu positions: KL mean %.2e, p99 %.2e, largest %.2e; same top %.1f %%\n", what.c_str(),
              losses.size(), loss.mean, loss.p99, loss.largest, 100 * loss.same_top);
  return loss;
}

/// What int8 activations and a bfloat16 cache (the defaults) lose against float32.
Loss int8_loss(const std::string& path, const Golden& golden) {
  const Model exact = load_model(path, {.exact = true, .tap_layers = false});
  const auto f32 = device::make_cpu_backend(kThreads, device::ActivationMode::f32);
  const auto int8 = device::make_cpu_backend(kThreads, device::ActivationMode::int8);
  Runner reference(*f32, exact);
  Runner runner(*int8, load_model(path, {}), DType::bf16);
  return loss_of(logits_of(runner, golden), logits_of(reference, golden), static_cast<size_t>(exact.config.vocabulary),
                 "int8 activations, bfloat16 cache");
}

// Bounds: about 1.5 x what was measured.
TEST(CpuGolden, TinyModelLosesLittleToInt8Activations) {
  const Loss loss = int8_loss(GRISTMILL_TEST_DIR "/golden/tiny_llama.gguf", Golden("tiny_llama_golden"));
  EXPECT_LT(loss.mean, 1.4e-2);
  EXPECT_LT(loss.p99, 0.1);
  EXPECT_LT(loss.largest, 0.15);
  EXPECT_GT(loss.same_top, 0.91);
}

TEST(CpuGolden, DefaultModelLosesLittleToInt8Activations) {
  const std::string path = default_model();
  if (const std::string why = no_default_model(); !why.empty()) GTEST_SKIP() << why;
  const Loss loss = int8_loss(path, Golden("smollm2_golden"));
  EXPECT_LT(loss.mean, 6e-3);
  EXPECT_LT(loss.p99, 6e-2);
  EXPECT_LT(loss.largest, 6.5e-2);
  EXPECT_GT(loss.same_top, 0.96);
}

// The cache's share alone: everything else in float32.
TEST(CpuGolden, DefaultModelLosesLittleToItsCacheType) {
  const std::string path = default_model();
  if (const std::string why = no_default_model(); !why.empty()) GTEST_SKIP() << why;
  const Golden golden("smollm2_golden");
  const Model exact = load_model(path, {.exact = true, .tap_layers = false});
  const auto backend = device::make_cpu_backend(kThreads, device::ActivationMode::f32);
  Runner reference(*backend, exact);
  const std::vector<float> expected = logits_of(reference, golden);
  for (const auto& [type, mean, largest] : {std::tuple(DType::bf16, 7e-5, 5e-4), std::tuple(DType::i8, 2.1e-3, 2.8e-2),
                                            std::tuple(DType::fp8_e4m3, 2e-2, 0.46)}) {
    Runner runner(*backend, exact, type);
    const Loss loss = loss_of(logits_of(runner, golden), expected, static_cast<size_t>(exact.config.vocabulary),
                              cat(name_of(type), " cache"));
    EXPECT_LT(loss.mean, mean);
    EXPECT_LT(loss.largest, largest);
  }
}

}  // namespace
}  // namespace gristmill::model
