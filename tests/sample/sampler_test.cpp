#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "base/error.h"
#include "sample/random.h"
#include "sample/vector_math.h"

namespace gristmill {
namespace {

std::vector<float> random_logits(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

struct Fixture {
  SamplingParams params;
  std::vector<int32_t> output;
  std::vector<int32_t> stops;
  TokenCounts counts;
  uint64_t seed = 1;
  SampleContext context() const { return {&params, seed, 0, output, stops, &counts}; }
};

TEST(Philox, GivesThePublishedNumbers) {
  const auto zero = philox4x32({0, 0, 0, 0}, {0, 0});
  EXPECT_EQ(zero, (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const auto ones = philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u});
  EXPECT_EQ(ones, (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(VectorMath, ExpIsWithinItsStatedError) {
  std::vector<float> x, y(4000);
  for (int i = 0; i < 4000; ++i) x.push_back(-0.02f * static_cast<float>(i));
  exp_shifted(x, 0, 1, y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    EXPECT_NEAR(static_cast<double>(y[i]) / exact, 1, 2e-7) << x[i];
  }
  const float nothing = -INFINITY;
  float result = 1;
  exp_shifted({&nothing, 1}, 0, 1, &result);
  EXPECT_EQ(result, 0);
}

TEST(Sampler, LogitsThatAreNotFiniteAreTheModelsFaultAndMasksTheRequests) {
  Sampler sampler(40);
  Fixture f;
  TokenLogprob own;
  std::vector<TokenLogprob> top;
  std::vector<std::vector<float>> wrong(4, std::vector<float>(40, 1));
  wrong[0].assign(40, NAN);
  wrong[1][37] = NAN;
  wrong[2].assign(40, -INFINITY);
  wrong[3][5] = INFINITY;
  f.params.allowed_token_ids = {3};
  for (const auto& logits : wrong) {
    for (const float temperature : {0.0f, 1.0f}) {
      f.params.temperature = temperature;
      try {
        sampler.sample(logits, f.context());
        FAIL() << "drawn";
      } catch (const Error& error) {
        EXPECT_EQ(dynamic_cast<const RequestError*>(&error), nullptr);
        EXPECT_EQ(std::string(error.what()).rfind("the model's logits are not finite (NaN)", 0), 0u) << error.what();
      }
    }
    EXPECT_THROW(sampler.logprobs(logits, 1, 2, own, top), Error);
  }
  std::vector<float> masked(40, 1);
  masked[3] = -INFINITY;
  EXPECT_THROW(sampler.sample(masked, f.context()), RequestError);
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  Sampler sampler(5);
  Fixture f;
  f.params.temperature = 0;
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 7, 3, 7, 0}, f.context()).token, 1);
}

TEST(Sampler, TopKOfOneIsGreedyAtAnyTemperature) {
  Sampler sampler(1000);
  Fixture f;
  f.params.top_k = 1;
  f.params.temperature = 5;
  const auto logits = random_logits(1000, 3);
  const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  for (f.seed = 0; f.seed < 50; ++f.seed) EXPECT_EQ(sampler.sample(logits, f.context()).token, best);
}

// Draws follow the softmax of what the filters leave: total variation over many seeds stays near the sampling noise.
TEST(Sampler, DrawsFollowTheFilteredDistribution) {
  const std::vector<float> logits = {2, 1.5f, 1, 0.5f, 0, -1, -2, -8};
  struct Case {
    float top_p;
    int32_t top_k;
    float min_p;
    size_t kept;
  };
  for (const Case& c :
       {Case{1, 0, 0, 8}, Case{1, 3, 0, 3}, Case{0.7f, 0, 0, 3}, Case{1, 0, 0.2f, 4}, Case{0.6f, 5, 0, 2}}) {
    Sampler sampler(8);
    Fixture f;
    f.params.top_p = c.top_p;
    f.params.top_k = c.top_k;
    f.params.min_p = c.min_p;
    std::vector<double> expected(8), seen(8);
    double total = 0;
    for (size_t i = 0; i < c.kept; ++i) total += expected[i] = std::exp(static_cast<double>(logits[i]));
    const int draws = 20000;
    for (f.seed = 0; f.seed < draws; ++f.seed)
      seen[static_cast<size_t>(sampler.sample(logits, f.context()).token)] += 1.0 / draws;
    for (size_t i = 0; i < 8; ++i)
      EXPECT_NEAR(seen[i], expected[i] / total, 0.012) << i << " top_p " << c.top_p << " top_k " << c.top_k;
  }
}

TEST(Sampler, RankingAgreesWithASort) {
  const auto logits = random_logits(20000, 9);
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  Ranking ranking;
  for (const int32_t count : {1, 5, 40, 999, 20000, 30000}) {
    const auto best = ranking.best(logits, count);
    ASSERT_EQ(best.size(), std::min<size_t>(static_cast<size_t>(count), order.size()));
    EXPECT_TRUE(std::equal(best.begin(), best.end(), order.begin()));
  }
  std::vector<float> weights(logits.size());
  exp_shifted(logits, max_value(logits), 1, weights.data());
  const double total = lane_sum(weights);
  for (const double share : {0.01, 0.5, 0.95, 0.9999}) {
    double sum = 0;
    size_t kept = 0;
    while (kept == 0 || sum < share * total) sum += static_cast<double>(weights[static_cast<size_t>(order[kept++])]);
    const auto nucleus = ranking.nucleus(logits, weights, total, share);
    ASSERT_EQ(nucleus.size(), kept) << share;
    EXPECT_TRUE(std::equal(nucleus.begin(), nucleus.end(), order.begin()));
  }
}

TEST(Sampler, PenaltiesBiasesAndMasksMoveTheArgmax) {
  const std::vector<float> logits = {5, 4, 3, 2};
  Sampler sampler(4);
  const auto greedy = [&](auto change) {
    Fixture f;
    f.params.temperature = 0;
    change(f);
    return sampler.sample(logits, f.context()).token;
  };
  EXPECT_EQ(greedy([](Fixture&) {}), 0);
  EXPECT_EQ(greedy([](Fixture& f) { f.params.allowed_token_ids = {2, 3}; }), 2);
  EXPECT_EQ(greedy([](Fixture& f) { f.params.logit_bias = {{0, -100.0f}}; }), 1);
  EXPECT_EQ(greedy([](Fixture& f) { f.params.logit_bias = {{3, 1e9f}}; }), 3);
  EXPECT_EQ(greedy([](Fixture& f) { f.params.bad_words = {{0}}; }), 1);
  EXPECT_EQ(greedy([](Fixture& f) { f.params.bad_words = {{2, 0}}; }), 0);
  EXPECT_EQ(greedy([](Fixture& f) { f.params.bad_words = {{2, 0}}, f.output = {2}; }), 1);
  EXPECT_EQ(greedy([](Fixture& f) { f.params.min_tokens = 1, f.stops = {0}; }), 1);
  EXPECT_EQ(greedy([](Fixture& f) { f.params.min_tokens = 1, f.stops = {0}, f.output = {2}; }), 0);
  EXPECT_EQ(greedy([](Fixture& f) { f.params.presence_penalty = 1.5f, f.counts.add_output(0); }), 1);
  EXPECT_EQ(greedy([](Fixture& f) {
              f.params.frequency_penalty = 0.4f;
              for (int i = 0; i < 3; ++i) f.counts.add_output(0);
            }),
            1);
  const std::vector<int32_t> prompt = {0};
  EXPECT_EQ(greedy([&](Fixture& f) { f.params.repetition_penalty = 2, f.counts.add_prompt(prompt); }), 1);
  EXPECT_EQ(greedy([&](Fixture& f) { f.params.presence_penalty = 2, f.counts.add_prompt(prompt); }), 0);
}

TEST(Sampler, LogprobsAreThoseOfTheUnchangedLogits) {
  const auto logits = random_logits(500, 4);
  Sampler sampler(500);
  Fixture f;
  f.params.temperature = 0.3f;
  f.params.top_k = 3;
  f.params.logprobs = 5;
  f.params.logit_bias = {{77, 100.0f}};
  const Sampled result = sampler.sample(logits, f.context());
  EXPECT_EQ(result.token, 77);
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  EXPECT_NEAR(result.sampled.logprob, logits[77] - std::log(total), 1e-5);
  int32_t rank = 1;
  for (const float logit : logits) rank += logit > logits[77] ? 1 : 0;
  EXPECT_EQ(result.sampled.rank, rank);
  ASSERT_EQ(result.top.size(), 5u);
  for (size_t i = 1; i < 5; ++i) EXPECT_GE(result.top[i - 1].logprob, result.top[i].logprob);
}

TEST(Sampler, PenaltiesFollowTheirDefinition) {
  const std::vector<float> logits = {2, 1, -1};
  Sampler sampler(3, LogprobsMode::processed_logits);
  Fixture f;
  const std::vector<int32_t> prompt = {0};
  f.counts.add_prompt(prompt);
  f.counts.add_output(1);
  f.output = {1};
  f.params.temperature = 0;
  f.params.logprobs = 3;
  f.params.presence_penalty = 0.5f;
  f.params.frequency_penalty = 0.25f;
  f.params.repetition_penalty = 2;
  const Sampled result = sampler.sample(logits, f.context());
  ASSERT_EQ(result.top.size(), 3u);
  EXPECT_EQ(result.top[0].token, 0);
  EXPECT_FLOAT_EQ(result.top[0].logprob, 1.0f);  // 2 / 2: of the prompt, which presence and frequency do not count
  EXPECT_EQ(result.top[1].token, 1);
  EXPECT_FLOAT_EQ(result.top[1].logprob, 0.5f - 0.25f - 0.5f);
  EXPECT_EQ(result.top[2].token, 2);
  EXPECT_FLOAT_EQ(result.top[2].logprob, -1.0f);
}

TEST(Sampler, LogprobModesSayWhatIsReported) {
  const std::vector<float> logits = {2, 1, 0};
  Fixture f;
  f.params.temperature = 0.5f;
  f.params.top_k = 2;
  f.params.logprobs = 3;
  const auto best = [&](LogprobsMode mode) { return Sampler(3, mode).sample(logits, f.context()).top; };
  const double raw_total = std::exp(2.0) + std::exp(1.0) + 1, drawn_total = std::exp(4.0) + std::exp(2.0);
  EXPECT_EQ(best(LogprobsMode::raw_logits)[0].logprob, 2.0f);
  EXPECT_NEAR(best(LogprobsMode::raw_logprobs)[0].logprob, 2 - std::log(raw_total), 1e-6);
  EXPECT_EQ(best(LogprobsMode::processed_logits)[0].logprob, 4.0f);
  const auto processed = best(LogprobsMode::processed_logprobs);
  ASSERT_EQ(processed.size(), 2u);  // what top_k cut off has no probability
  EXPECT_NEAR(processed[1].logprob, 2 - std::log(drawn_total), 1e-6);
}

TEST(Sampler, ExtremeTemperaturesAndMasksStayFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {-80, 80, -infinity, 80, 79};
  Sampler sampler(5, LogprobsMode::processed_logprobs);
  for (const float temperature : {0.0f, 1e-30f, 1e-6f, 1e-5f, 1e-3f, 1.0f, 100.0f, 1e30f}) {
    Fixture f;
    f.params.temperature = temperature;
    f.params.logprobs = 5;
    for (f.seed = 0; f.seed < 20; ++f.seed) {
      const Sampled drawn = sampler.sample(logits, f.context());
      EXPECT_NE(drawn.token, 2) << temperature;
      EXPECT_TRUE(std::isfinite(drawn.sampled.logprob)) << temperature;
      const bool greedy = temperature < 1e-5f;
      EXPECT_TRUE(!greedy || drawn.token == 1) << temperature;  // of equals the lowest id
    }
    f.params.allowed_token_ids = {4};
    const Sampled only = sampler.sample(logits, f.context());
    EXPECT_EQ(only.token, 4);
    EXPECT_NEAR(only.sampled.logprob, 0, 1e-6);
    f.params.allowed_token_ids = {2};
    EXPECT_THROW(sampler.sample(logits, f.context()), RequestError);
  }
}

TEST(Sampler, TopKOfZeroAndMinusOneAreOff) {
  const std::vector<float> logits(50, 1.0f);
  Sampler sampler(50);
  for (const int32_t top_k : {0, -1}) {
    std::map<int32_t, int> drawn;
    Fixture f;
    f.params.top_k = top_k;
    for (f.seed = 0; f.seed < 300; ++f.seed) ++drawn[sampler.sample(logits, f.context()).token];
    EXPECT_GT(drawn.size(), 40u) << top_k;
  }
}

TEST(Sampler, AnAllowListHoldsWhenAllOfItIsBanned) {
  const std::vector<float> logits = {5, 4, 3, 2};
  Sampler sampler(4);
  for (const float temperature : {0.0f, 1.0f}) {
    Fixture f;
    f.params.temperature = temperature;
    f.params.allowed_token_ids = {1, 2};
    f.params.bad_words = {{1}, {3, 2}};
    EXPECT_EQ(sampler.sample(logits, f.context()).token, 2);
    f.output = {3};
    EXPECT_THROW(sampler.sample(logits, f.context()), RequestError);
  }
}

TEST(Sampler, IdsBeyondAShorterRowAreNeverDrawnOrReported) {
  std::vector<float> logits = random_logits(100, 9);
  for (size_t i = 90; i < 100; ++i) logits[i] = 1000;
  const std::span<const float> known = std::span(logits).first(90);
  Sampler sampler(100);
  for (const float temperature : {0.0f, 1.0f}) {
    Fixture f;
    f.params.temperature = temperature;
    f.params.logprobs = 100;
    for (f.seed = 0; f.seed < 20; ++f.seed) {
      const Sampled drawn = sampler.sample(known, f.context());
      EXPECT_LT(drawn.token, 90);
      ASSERT_EQ(drawn.top.size(), 90u);
      double total = 0;
      for (const TokenLogprob& one : drawn.top) total += std::exp(static_cast<double>(one.logprob));
      EXPECT_NEAR(total, 1, 1e-5);
    }
  }
  TokenLogprob padding;
  std::vector<TokenLogprob> best;
  sampler.logprobs(known, 95, 1, padding, best);
  EXPECT_EQ(padding.logprob, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(padding.rank, 91);
}

TEST(Sampler, ADrawDependsOnSeedChoiceAndPositionOnly) {
  const auto logits = random_logits(2000, 5);
  Sampler one(2000), other(2000);
  Fixture f;
  f.seed = 42;
  other.sample(random_logits(2000, 6), f.context());
  EXPECT_EQ(one.sample(logits, f.context()).token, other.sample(logits, f.context()).token);
  std::map<int32_t, int> by_seed;
  for (f.seed = 0; f.seed < 100; ++f.seed) ++by_seed[one.sample(logits, f.context()).token];
  EXPECT_GT(by_seed.size(), 5u);
}

TEST(SamplingParams, ErrorsNameTheField) {
  const auto field = [](auto change) -> std::string {
    SamplingParams params;
    change(params);
    try {
      validate(params, 100);
    } catch (const RequestError& error) {
      return error.field();
    }
    return "";
  };
  EXPECT_EQ(field([](SamplingParams&) {}), "");
  EXPECT_EQ(field([](SamplingParams& p) { p.temperature = -1; }), "temperature");
  EXPECT_EQ(field([](SamplingParams& p) { p.temperature = NAN; }), "temperature");
  EXPECT_EQ(field([](SamplingParams& p) { p.top_p = 0; }), "top_p");
  EXPECT_EQ(field([](SamplingParams& p) { p.top_k = -2; }), "top_k");
  EXPECT_EQ(field([](SamplingParams& p) { p.min_p = 1.1f; }), "min_p");
  EXPECT_EQ(field([](SamplingParams& p) { p.repetition_penalty = 0; }), "repetition_penalty");
  EXPECT_EQ(field([](SamplingParams& p) { p.max_tokens = -1; }), "max_tokens");
  EXPECT_EQ(field([](SamplingParams& p) { p.min_tokens = 17; }), "min_tokens");
  EXPECT_EQ(field([](SamplingParams& p) { p.logit_bias = {{100, 1.0f}}; }), "logit_bias");
  EXPECT_EQ(field([](SamplingParams& p) { p.bad_words = {{}}; }), "bad_words");
}

}  // namespace
}  // namespace gristmill
