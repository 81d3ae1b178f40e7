// Promise 1 on a real model and the real kernels: token ids and log-probability bits of a request are the same alone
// and in any batch, with any chunks, after preemption, with a prefix hit, on one thread or two, for every cache type.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/log.h"
#include "engine/engine.h"

namespace gristmill::engine {
namespace {

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<float> prompt_logprobs;
  bool operator==(const Answer&) const = default;
};

struct Exercised {
  uint64_t preemptions = 0;
  uint64_t hits = 0;
  uint64_t aborts = 0;
  uint64_t compared = 0;
};

EngineConfig tiny_config() {
  EngineConfig config;
  config.model = GRISTMILL_TEST_DIR "/golden/tiny_llama.gguf";
  config.threads = 1;
  config.max_model_len = 160;
  config.max_num_seqs = 6;
  config.num_blocks_override = 64;
  return config;
}

std::vector<EngineRequest> make_requests() {
  std::vector<EngineRequest> requests;
  std::mt19937 random(5);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (RequestId id = 1; id <= 18; ++id) {
    EngineRequest r;
    r.id = id;
    const int shared = pick(0, 1) * 40;
    for (int i = 0; i < shared; ++i) r.prompt.push_back(20 + i);
    for (int i = pick(1, 50); i > 0; --i) r.prompt.push_back(pick(10, 400));
    r.sampling.max_tokens = pick(1, 24);
    r.sampling.ignore_eos = true;
    r.sampling.temperature = id % 2 == 0 ? 0.0f : 0.9f;
    r.sampling.seed = static_cast<int64_t>(id) * 17;
    r.sampling.top_p = id % 3 == 0 ? 0.8f : 1.0f;
    r.sampling.logprobs = id % 4 == 1 ? -1 : 0;
    if (id % 5 == 0) r.sampling.prompt_logprobs = 0;
    requests.push_back(r);
  }
  return requests;
}

/// Runs all requests through one engine; with `random`, under arrivals and aborts that it draws.
std::map<RequestId, Answer> run(const EngineConfig& config, const std::vector<EngineRequest>& requests,
                                std::mt19937* random, Exercised& exercised) {
  SilentProgress progress;
  Engine engine(config, progress);
  std::map<RequestId, Answer> answers;
  std::vector<RequestId> aborted;
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(*random); };
  size_t next = 0;
  while (next < requests.size() || !engine.idle()) {
    if (random == nullptr) {
      if (engine.idle()) engine.add(requests[next++]);
    } else {
      for (int arrivals = pick(0, 2); arrivals > 0 && next < requests.size(); --arrivals) engine.add(requests[next++]);
      if (next > 0 && pick(0, 14) == 0) {
        aborted.push_back(requests[static_cast<size_t>(pick(0, static_cast<int>(next) - 1))].id);
        engine.abort(aborted.back());
      }
    }
    std::vector<EngineOutput> outputs;
    engine.step(outputs);
    for (const EngineOutput& output : outputs) {
      Answer& answer = answers[output.id];
      EXPECT_NE(output.finish, FinishReason::error) << output.error;
      for (const OutputToken& token : output.tokens) {
        answer.tokens.push_back(token.token);
        answer.logprobs.push_back(token.sampled.logprob);
      }
      for (const OutputToken& token : output.prompt_logprobs) answer.prompt_logprobs.push_back(token.sampled.logprob);
      if (output.finish == FinishReason::abort) {
        ++exercised.aborts;
        answers.erase(output.id);
      }
    }
  }
  exercised.preemptions += engine.stats().preemptions;
  exercised.hits += engine.stats().prefix_hits;
  return answers;
}

class Invariance : public testing::TestWithParam<std::tuple<DType, bool>> {};

TEST_P(Invariance, AnswersAreTheSameBitsUnderEverySchedule) {
  set_log_level(LogLevel::error);
  EngineConfig config = tiny_config();
  std::tie(config.cache_dtype, config.float32) = GetParam();
  const std::vector<EngineRequest> requests = make_requests();
  Exercised solo_run, exercised;
  EngineConfig calm = config;
  calm.prefix_caching = false;
  calm.async_scheduling = false;
  const auto alone = run(calm, requests, nullptr, solo_run);
  ASSERT_EQ(alone.size(), requests.size());
  for (uint32_t round = 0; round < 6; ++round) {
    std::mt19937 random(round);
    config.threads = 1 + static_cast<int32_t>(round % 2);
    config.async_scheduling = round % 3 != 0;
    config.num_blocks_override = round < 3 ? 11 + static_cast<int32_t>(round) : 40;
    config.max_num_batched_tokens = round % 2 == 0 ? 33 : 7 + static_cast<int32_t>(round);
    config.mixed_prefill_tokens = round % 2 == 0 ? 0 : 5;
    const auto mixed = run(config, requests, &random, exercised);
    for (const auto& [id, answer] : mixed) {
      ASSERT_EQ(answer, alone.at(id)) << "round " << round << " request " << id;
      ++exercised.compared;
    }
  }
  std::printf("compared %llu answers; %llu preemptions, %llu cached tokens, %llu aborts\n",
              static_cast<unsigned long long>(exercised.compared),
              static_cast<unsigned long long>(exercised.preemptions), static_cast<unsigned long long>(exercised.hits),
              static_cast<unsigned long long>(exercised.aborts));
  EXPECT_GT(exercised.preemptions, 0u);
  EXPECT_GT(exercised.hits, 0u);
  EXPECT_GT(exercised.aborts, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    CacheTypes, Invariance,
    testing::Combine(testing::Values(DType::f32, DType::bf16, DType::f16, DType::i8, DType::fp8_e4m3), testing::Bool()),
    [](const auto& tested) {
      return std::string(name_of(std::get<0>(tested.param))) + (std::get<1>(tested.param) ? "Float32" : "Int8");
    });

}  // namespace
}  // namespace gristmill::engine
