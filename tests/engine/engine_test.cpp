#include "engine/engine.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/log.h"
#include "engine/fake_backend.h"

namespace gristmill::engine {
namespace {

struct Collected {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<OutputToken> prompt;
  FinishReason finish = FinishReason::none;
  int32_t stop_token = -1;
  int32_t cached = 0;
  std::string error;
  bool bad_request = false;
  double queued = 0, scheduled = 0, made = 0;
  bool operator==(const Collected& other) const {
    return tokens == other.tokens && logprobs == other.logprobs && finish == other.finish &&
           stop_token == other.stop_token;
  }
};

class EngineTest : public testing::Test {
 protected:
  EngineTest() {
    set_log_level(LogLevel::error);
    config.block_size = 8;
    config.num_blocks_override = 64;
    config.max_num_seqs = 8;
    config.max_num_batched_tokens = 64;
    config.max_model_len = 128;
  }

  void start() { engine = std::make_unique<Engine>(config, device::FakeBackend::program(), 128, backend, progress); }

  static EngineRequest request(RequestId id, std::vector<int32_t> prompt, int32_t max_tokens) {
    EngineRequest made;
    made.id = id;
    made.prompt = std::move(prompt);
    made.sampling.temperature = 0;
    made.sampling.max_tokens = max_tokens;
    return made;
  }

  static std::vector<int32_t> prompt(int32_t length, int32_t seed) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < length; ++i) tokens.push_back((seed * 31 + i * 7) % device::FakeBackend::vocabulary);
    return tokens;
  }

  void step() {
    std::vector<EngineOutput> outputs;
    engine->step(outputs);
    for (EngineOutput& output : outputs) {
      Collected& to = results[{output.id, output.index}];
      EXPECT_EQ(to.finish, FinishReason::none) << "an output after the end";
      for (const OutputToken& token : output.tokens) {
        to.tokens.push_back(token.token);
        to.logprobs.push_back(token.sampled.logprob);
      }
      for (OutputToken& token : output.prompt_logprobs) to.prompt.push_back(std::move(token));
      to.finish = output.finish;
      to.stop_token = output.stop_token;
      to.cached = output.cached_tokens;
      to.error = output.error;
      to.bad_request = output.bad_request;
      EXPECT_GE(output.made, to.made);
      to.queued = output.queued;
      to.scheduled = output.scheduled;
      to.made = output.made;
    }
  }

  void run() {
    for (int i = 0; !engine->idle(); ++i) {
      ASSERT_LT(i, 100000) << "the engine does not come to an end";
      step();
    }
  }

  Collected solo(const EngineRequest& wanted) {
    device::FakeBackend other;
    other.recurrent = backend.recurrent;
    EngineConfig calm = config;
    calm.async_scheduling = false;
    calm.prefix_caching = false;
    calm.num_blocks_override = 64;
    Engine alone(calm, device::FakeBackend::program(), 128, other, progress);
    EngineRequest copy = wanted;
    copy.n = 1;
    alone.add(copy);
    Collected all;
    while (!alone.idle()) {
      std::vector<EngineOutput> outputs;
      alone.step(outputs);
      for (EngineOutput& output : outputs) {
        for (const OutputToken& token : output.tokens) {
          all.tokens.push_back(token.token);
          all.logprobs.push_back(token.sampled.logprob);
        }
        for (OutputToken& token : output.prompt_logprobs) all.prompt.push_back(std::move(token));
        all.finish = output.finish;
        all.stop_token = output.stop_token;
      }
    }
    return all;
  }

  EngineConfig config;
  device::FakeBackend backend;
  SilentProgress progress;
  std::unique_ptr<Engine> engine;
  std::map<std::pair<RequestId, int32_t>, Collected> results;
};

TEST_F(EngineTest, EndsAtMaxTokens) {
  start();
  engine->add(request(1, prompt(5, 1), 7));
  run();
  EXPECT_EQ((results[{1, 0}].tokens.size()), 7u);
  EXPECT_EQ((results[{1, 0}].finish), FinishReason::length);
  EXPECT_EQ(engine->stats().generated_tokens, 7u);
  EXPECT_EQ(engine->stats().prompt_tokens, 5u);
  EXPECT_EQ(engine->stats().free_blocks, 64);
}

TEST_F(EngineTest, EndsAtTheContextLimit) {
  start();
  engine->add(request(1, prompt(120, 1), 100));
  run();
  EXPECT_EQ((results[{1, 0}].tokens.size()), 8u);
  EXPECT_EQ((results[{1, 0}].finish), FinishReason::length);
}

TEST_F(EngineTest, EndsAtEosAndStopIds) {
  start();
  EngineRequest free_run = request(1, prompt(5, 1), 20);
  engine->add(free_run);
  run();
  const std::vector<int32_t> tokens = results[{1, 0}].tokens;
  const int32_t third = tokens[2];
  const auto first_at = static_cast<size_t>(std::find(tokens.begin(), tokens.end(), third) - tokens.begin());

  EngineRequest with_eos = request(2, prompt(5, 1), 20);
  with_eos.eos_ids = {third};
  engine->add(with_eos);
  EngineRequest with_stop = request(3, prompt(5, 1), 20);
  with_stop.sampling.stop_token_ids = {third};
  engine->add(with_stop);
  EngineRequest ignoring = request(4, prompt(5, 1), 20);
  ignoring.eos_ids = {third};
  ignoring.sampling.ignore_eos = true;
  engine->add(ignoring);
  run();
  EXPECT_EQ((results[{2, 0}].tokens.size()), first_at + 1);
  EXPECT_EQ((results[{2, 0}].finish), FinishReason::stop);
  EXPECT_EQ((results[{2, 0}].stop_token), -1);
  EXPECT_EQ((results[{3, 0}].finish), FinishReason::stop);
  EXPECT_EQ((results[{3, 0}].stop_token), third);
  EXPECT_EQ((results[{4, 0}].tokens), tokens);
  EXPECT_EQ(engine->stats().free_blocks, 64);
}

TEST_F(EngineTest, RefusesWhatCannotRunAndGoesOn) {
  start();
  engine->add(request(1, {}, 5));
  engine->add(request(2, prompt(128, 1), 5));
  engine->add(request(3, {1, 99}, 5));
  EngineRequest hot = request(4, {1}, 5);
  hot.sampling.top_p = 0;
  engine->add(hot);
  engine->add(request(5, prompt(5, 1), 2));
  run();
  for (RequestId id = 1; id <= 4; ++id) {
    EXPECT_EQ((results[{id, 0}].finish), FinishReason::error) << id;
    EXPECT_FALSE((results[{id, 0}].error.empty())) << id;
    EXPECT_TRUE((results[{id, 0}].bad_request)) << id;
  }
  EXPECT_EQ((results[{5, 0}].finish), FinishReason::length);
}

TEST_F(EngineTest, ASharedPrefixIsComputedOnce) {
  start();
  const std::vector<int32_t> shared = prompt(40, 3);
  engine->add(request(1, shared, 3));
  run();
  const int64_t before = backend.rows;
  engine->add(request(2, shared, 3));
  run();
  EXPECT_EQ((results[{2, 0}].cached), 32);  // at most size - 1 tokens, in whole blocks of 8
  EXPECT_EQ(backend.rows - before, 40 - 32 + 2);
  EXPECT_EQ((results[{1, 0}]), (results[{2, 0}]));
  EngineRequest salted = request(3, shared, 3);
  salted.cache_salt = "tenant";
  engine->add(salted);
  run();
  EXPECT_EQ((results[{3, 0}].cached), 0);
  EXPECT_TRUE(engine->reset_prefix_cache());
  engine->add(request(4, shared, 3));
  run();
  EXPECT_EQ((results[{4, 0}].cached), 0);
}

TEST_F(EngineTest, ChoicesShareThePromptWithinOneStep) {
  start();
  EngineRequest several = request(1, prompt(40, 3), 4);
  several.n = 4;
  several.sampling.temperature = 1;
  several.sampling.seed = 11;
  engine->add(several);
  run();
  EXPECT_EQ(backend.rows, 40 + 3 * 8 + 4 * 3);
  EXPECT_NE((results[{1, 0}].tokens), (results[{1, 1}].tokens));
}

TEST_F(EngineTest, PromptLogprobsCoverThePromptWhateverTheChunks) {
  config.max_num_batched_tokens = 16;
  start();
  EngineRequest asking = request(1, prompt(50, 2), 3);
  asking.sampling.prompt_logprobs = 2;
  asking.sampling.logprobs = 1;
  const Collected alone = solo(asking);
  engine->add(request(7, prompt(50, 2), 3));
  engine->add(asking);
  run();
  const Collected& got = results[{1, 0}];
  ASSERT_EQ(got.prompt.size(), 50u);
  EXPECT_TRUE(got.prompt[0].top.empty());
  for (size_t i = 1; i < 50; ++i) {
    EXPECT_EQ(got.prompt[i].token, asking.prompt[i]);
    EXPECT_EQ(got.prompt[i].sampled.logprob, alone.prompt[i].sampled.logprob);
    EXPECT_EQ(got.prompt[i].top.size(), 2u);
  }
  EXPECT_EQ(got, alone);
}

TEST_F(EngineTest, APromptWithoutOutputReportsTheSameColdWarmAndInChunks) {
  EngineRequest scored = request(1, prompt(40, 2), 0);
  scored.sampling.prompt_logprobs = 1;
  std::vector<float> first;
  for (const int32_t budget : {64, 16, 8}) {
    config.max_num_batched_tokens = budget;
    results.clear();
    start();
    for (scored.id = 1; scored.id <= 2; ++scored.id) {
      engine->add(scored);
      run();
      const Collected& got = results[{scored.id, 0}];
      EXPECT_EQ(got.finish, FinishReason::length);
      EXPECT_TRUE(got.tokens.empty());
      ASSERT_EQ(got.prompt.size(), 40u);
      std::vector<float> values;
      for (const OutputToken& token : got.prompt) values.push_back(token.sampled.logprob);
      if (first.empty()) first = values;
      EXPECT_EQ(values, first) << budget;
    }
    EXPECT_EQ(engine->stats().generated_tokens, 0u);
    EXPECT_EQ(engine->stats().free_blocks, 64);
  }
}

TEST_F(EngineTest, ChunkBordersDoNotShow) {
  for (const int32_t length : {15, 16, 17, 32, 33}) {
    EngineRequest asking = request(1, prompt(length, 2), 4);
    asking.sampling.prompt_logprobs = asking.sampling.logprobs = 1;
    config.max_num_batched_tokens = 64;
    const Collected alone = solo(asking);
    config.max_num_batched_tokens = 18;  // two streams and chunks of 16
    results.clear();
    start();
    for (RequestId id = 2; id <= 3; ++id) engine->add(request(id, prompt(3, static_cast<int32_t>(id)), 30));
    step();
    step();
    engine->add(asking);
    run();
    const Collected& got = results[{1, 0}];
    EXPECT_EQ(got, alone) << length;
    ASSERT_EQ(got.prompt.size(), static_cast<size_t>(length));
    for (size_t i = 1; i < got.prompt.size(); ++i) {
      EXPECT_EQ(got.prompt[i].sampled.logprob, alone.prompt[i].sampled.logprob) << length << " " << i;
    }
  }
}

TEST_F(EngineTest, PaddedRowsOfTheHeadAreNeverDrawnOrReported) {
  start();
  EngineRequest padded = request(1, prompt(10, 1), 30);
  padded.known_tokens = 12;
  padded.prompt.push_back(50);  // the embedding has a row for it
  padded.eos_ids = {3, 40};
  padded.sampling.ignore_eos = true;
  engine->add(padded);
  padded.id = 2;
  padded.sampling.temperature = 1;
  padded.sampling.logprobs = padded.sampling.prompt_logprobs = 12;
  engine->add(padded);
  padded.id = 3;
  padded.sampling.allowed_token_ids = {12};
  engine->add(padded);
  run();
  for (RequestId id = 1; id <= 2; ++id) {
    ASSERT_EQ((results[{id, 0}].tokens.size()), 30u);
    for (const int32_t token : results[{id, 0}].tokens) EXPECT_LT(token, 12) << id;
  }
  const auto& reported = results[{2, 0}].prompt;
  ASSERT_EQ(reported.size(), 11u);
  for (size_t i = 1; i < reported.size(); ++i) {
    EXPECT_EQ(reported[i].top.size(), 12u);
    for (const TokenLogprob& one : reported[i].top) EXPECT_LT(one.token, 12);
  }
  EXPECT_TRUE((results[{3, 0}].bad_request));
}

TEST_F(EngineTest, MinTokensHoldBackEveryEndId) {
  start();
  EngineRequest r = request(1, prompt(20, 1), 9);
  r.eos_ids = {7, 8};
  r.sampling.stop_token_ids = {9};
  r.sampling.logit_bias = {{7, 100.0f}, {8, 99.0f}, {9, 98.0f}};  // the model wants nothing else
  r.sampling.min_tokens = 5;
  engine->add(r);
  r.id = 2;
  r.sampling.ignore_eos = true;
  r.sampling.stop_token_ids.clear();
  engine->add(r);
  run();
  const std::vector<int32_t>& tokens = results[{1, 0}].tokens;
  ASSERT_EQ(tokens.size(), 6u);
  for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(tokens[i] < 7 || tokens[i] > 9) << i;
  EXPECT_EQ(tokens[5], 7);
  EXPECT_EQ((results[{1, 0}].finish), FinishReason::stop);
  EXPECT_EQ((results[{2, 0}].tokens.size()), 9u);
  EXPECT_EQ((results[{2, 0}].tokens.back()), 7);
  EXPECT_EQ((results[{2, 0}].finish), FinishReason::length);
}

TEST_F(EngineTest, RecomputationAfterPreemptionIsInvisible) {
  config.num_blocks_override = 16;
  config.max_model_len = 128;
  start();
  std::map<RequestId, EngineRequest> sent;
  for (RequestId id = 1; id <= 4; ++id) {
    EngineRequest r = request(id, prompt(8, static_cast<int32_t>(id)), 50);
    r.sampling.repetition_penalty = 1.2f;
    r.sampling.presence_penalty = 0.3f;
    r.sampling.temperature = id % 2 == 0 ? 0 : 1;
    r.sampling.seed = 5;
    r.sampling.logprobs = 1;
    sent[id] = r;
    engine->add(r);
  }
  run();
  EXPECT_GT(engine->stats().preemptions, 0u);
  EXPECT_EQ(engine->stats().prompt_tokens, 32u);  // recomputed ones are not counted again
  EXPECT_EQ(engine->stats().generated_tokens, 200u);
  EXPECT_EQ(engine->stats().free_blocks, 16);
  for (const auto& [id, r] : sent) {
    EXPECT_EQ((results[{id, 0}]), solo(r)) << id;
    EXPECT_EQ((results[{id, 0}].cached), 0) << id;  // its own blocks, found again, are no cached prompt
  }
}

TEST_F(EngineTest, ALookupIsCountedOnceHoweverLongTheRequestWaits) {
  config.max_num_seqs = 1;
  start();
  const std::vector<int32_t> shared = prompt(40, 3);
  for (RequestId id = 1; id <= 3; ++id) engine->add(request(id, shared, 5));
  run();
  EXPECT_EQ(engine->stats().prefix_queries, 120u);
  EXPECT_EQ(engine->stats().prefix_hits, 64u);
  EXPECT_EQ(engine->stats().cached_prompt_tokens, 64u);
  EXPECT_EQ(engine->stats().prompt_tokens, 56u);
}

TEST_F(EngineTest, StepsAreCountedByTheirTokens) {
  config.async_scheduling = false;
  start();
  engine->add(request(1, prompt(40, 1), 4));
  run();
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.steps, 4u);
  EXPECT_EQ(stats.step_tokens, 43u);
  EXPECT_EQ(stats.steps_by_tokens[0], 3u);  // of one token
  EXPECT_EQ(stats.steps_by_tokens[4], 1u);  // of 33 to 64
}

TEST_F(EngineTest, OutputsTellHowLongTheRequestWaited) {
  config.max_num_seqs = 1;
  start();
  engine->add(request(1, prompt(4, 1), 20));
  engine->add(request(2, prompt(4, 2), 3));
  run();
  const Collected& first = results[{1, 0}];
  const Collected& second = results[{2, 0}];
  EXPECT_GT(first.queued, 0);
  EXPECT_GE(first.scheduled, first.queued);
  EXPECT_GT(first.made, first.scheduled);
  EXPECT_GT(second.scheduled, first.made - 1e-9);  // it could start only when the first had ended
  EXPECT_GE(second.made, second.scheduled);
}

TEST_F(EngineTest, ALongPromptDoesNotHoldUpARunningStream) {
  config.max_num_batched_tokens = 64;
  config.mixed_prefill_tokens = 16;
  start();
  engine->add(request(1, prompt(4, 1), 60));
  step();
  step();
  engine->add(request(2, prompt(100, 2), 2));
  backend.most_rows = 0;
  size_t had = results[{1, 0}].tokens.size();
  while (results[{2, 0}].tokens.empty()) {
    step();
    EXPECT_EQ((results[{1, 0}].tokens.size()), ++had) << "the stream waited for the prompt";
  }
  EXPECT_LE(backend.most_rows, 17);
  run();
}

TEST_F(EngineTest, AFailedStepFailsItsRequestsOnly) {
  start();
  engine->add(request(1, prompt(30, 1), 30));
  for (int i = 0; i < 4; ++i) step();
  EngineRequest expected_other = request(3, prompt(9, 5), 6);
  const Collected alone = solo(expected_other);
  engine->add(expected_other);
  const size_t before = results[{1, 0}].tokens.size();
  ASSERT_GT(before, 0u);
  backend.poison.insert(60);
  engine->add(request(2, {60, 60}, 5));
  run();
  EXPECT_EQ((results[{2, 0}].finish), FinishReason::error);
  EXPECT_FALSE((results[{2, 0}].bad_request));
  EXPECT_EQ(engine->stats().free_blocks, 64);
  engine->add(request(4, prompt(9, 5), 6));
  run();
  EXPECT_EQ((results[{4, 0}]), alone);
}

TEST_F(EngineTest, LogitsThatAreNotFiniteFailTheRequestWithoutBlamingIt) {
  start();
  backend.not_a_number = 60;
  const EngineRequest other = request(9, {1, 2, 3, 4}, 6);
  EngineRequest greedy = request(1, {1, 2, 60}, 5), drawn = request(2, {1, 2, 60}, 5);
  EngineRequest scored = request(3, {1, 60, 2, 3}, 0), bounded = request(4, {1, 2, 60}, 5);
  drawn.sampling.temperature = 1;
  drawn.sampling.logprobs = 1;
  scored.sampling.prompt_logprobs = 1;
  bounded.sampling.allowed_token_ids = {3};
  for (const EngineRequest& each : {greedy, drawn, other, scored, bounded}) engine->add(each);
  run();
  for (const RequestId id : {1, 2, 3, 4}) {
    const Collected& got = results[{id, 0}];
    EXPECT_EQ(got.finish, FinishReason::error) << id;
    EXPECT_FALSE(got.bad_request) << id;
    EXPECT_EQ(got.error.rfind("the model's logits are not finite (NaN)", 0), 0u) << got.error;
    EXPECT_TRUE(got.tokens.empty());
  }
  EXPECT_EQ((results[{9, 0}].finish), FinishReason::length);
  EXPECT_EQ(engine->stats().free_blocks, 64);
}

TEST_F(EngineTest, AnAbortFreesBlocksWithinAStep) {
  start();
  EngineRequest several = request(1, prompt(20, 1), 100);
  several.n = 3;
  engine->add(several);
  for (int i = 0; i < 5; ++i) step();
  engine->add(request(2, prompt(20, 9), 5));
  engine->abort(2);  // still queued
  engine->abort(1);
  step();
  step();
  EXPECT_EQ(engine->stats().free_blocks, 64);
  for (int32_t choice = 0; choice < 3; ++choice) EXPECT_EQ((results[{1, choice}].finish), FinishReason::abort);
  EXPECT_EQ((results[{2, 0}].finish), FinishReason::abort);
  EXPECT_TRUE(engine->idle());
}

TEST_F(EngineTest, OneChoiceCanBeAborted) {
  start();
  EngineRequest several = request(1, prompt(20, 1), 30);
  several.n = 3;
  several.sampling.temperature = 1;
  several.sampling.seed = 3;
  engine->add(several);
  for (int i = 0; i < 5; ++i) step();
  engine->abort(1, 1);
  engine->abort(1, 7);  // there is none
  step();
  step();
  EXPECT_EQ((results[{1, 1}].finish), FinishReason::abort);
  EXPECT_EQ(engine->stats().running, 2);
  run();
  for (const int32_t choice : {0, 2}) {
    EXPECT_EQ((results[{1, choice}].finish), FinishReason::length);
    EXPECT_EQ((results[{1, choice}].tokens.size()), 30u);
  }
  EXPECT_EQ(engine->stats().free_blocks, 64);
}

TEST_F(EngineTest, PriorityDecidesWhoRunsFirst) {
  config.policy = SchedulingPolicy::priority;
  config.max_num_seqs = 1;
  start();
  for (RequestId id = 1; id <= 3; ++id) {
    EngineRequest r = request(id, prompt(4, 1), 2);
    r.priority = id == 3 ? -1 : 5;
    engine->add(r);
  }
  std::vector<RequestId> order;
  while (!engine->idle()) {
    std::vector<EngineOutput> outputs;
    engine->step(outputs);
    for (const EngineOutput& output : outputs) {
      if (output.finish != FinishReason::none) order.push_back(output.id);
    }
  }
  EXPECT_EQ(order, (std::vector<RequestId>{3, 1, 2}));
}

TEST_F(EngineTest, ARecurrentModelReusesHalfAPrefixFirstAndThenAllOfIt) {
  backend.recurrent = true;
  config.max_model_len = 400;
  config.num_blocks_override = 200;
  config.block_size = 16;
  engine = std::make_unique<Engine>(config, device::FakeBackend::program(), 400, backend, progress);
  const auto with_tail = [&](int32_t tail) {
    std::vector<int32_t> tokens = prompt(300, 3);
    for (int32_t i = 0; i < 20; ++i) tokens.push_back((tail * 11 + i) % 50);
    return tokens;
  };
  for (RequestId id = 1; id <= 3; ++id) {
    engine->add(request(id, with_tail(static_cast<int32_t>(id)), 3));
    run();
  }
  EXPECT_EQ((results[{1, 0}].cached), 0);
  EXPECT_GE((results[{2, 0}].cached), 150);
  EXPECT_EQ((results[{3, 0}].cached), 288);  // the last whole block of the 300 shared tokens
  EXPECT_GT(engine->stats().state_snapshots, 0);
}

TEST_F(EngineTest, AShiftedPrefixLeavesTheHitsOfOtherClientsAlone) {
  backend.recurrent = true;
  config.max_model_len = 400;
  config.num_blocks_override = 400;
  config.block_size = 16;
  engine = std::make_unique<Engine>(config, device::FakeBackend::program(), 400, backend, progress);
  RequestId id = 0;
  const auto cached = [&](int32_t client, int32_t shift) {
    std::vector<int32_t> tokens = prompt(300, 10 + client);
    tokens.insert(tokens.begin(), static_cast<size_t>(shift), 49);
    for (int32_t i = 0; i < 20; ++i) tokens.push_back(static_cast<int32_t>(id * 7 + static_cast<RequestId>(i)) % 50);
    engine->add(request(++id, tokens, 3));
    run();
    return results[{id, 0}].cached;
  };
  for (int32_t again = 0; again < 3; ++again)
    for (int32_t client = 0; client < 3; ++client) cached(client, 0);
  for (int32_t shift = 1; shift <= 3; ++shift) {
    EXPECT_EQ(cached(0, shift), 0) << "shifted by " << shift;
    EXPECT_EQ(cached(1, 0), 288) << "shifted by " << shift;
    EXPECT_EQ(cached(2, 0), 288) << "shifted by " << shift;
    EXPECT_GE(cached(0, shift), 150) << "shifted by " << shift;
  }
}

TEST_F(EngineTest, AConversationGoesOnFromTheEndOfItsLastPrompt) {
  backend.recurrent = true;
  config.block_size = 16;
  start();
  const std::vector<int32_t> first = prompt(70, 3);
  engine->add(request(1, first, 5));
  run();
  std::vector<int32_t> second = first;
  second.insert(second.end(), results[{1, 0}].tokens.begin(), results[{1, 0}].tokens.end());
  for (int32_t i = 0; i < 10; ++i) second.push_back(i);
  engine->add(request(2, second, 5));
  run();
  EXPECT_EQ((results[{2, 0}].cached), 64);
}

TEST_F(EngineTest, ARecurrentModelAnswersPromptsOfEveryLengthWithoutChunkedPrefill) {
  backend.recurrent = true;
  config.block_size = 16;
  config.chunked_prefill = false;
  config.max_num_batched_tokens = 128;
  start();
  for (int32_t length = 1; length <= 120; ++length) {
    const EngineRequest wanted = request(length, prompt(length, length), 3);
    engine->add(wanted);
    for (int i = 0; i < 50 && !engine->idle(); ++i) step();
    ASSERT_EQ((results[{wanted.id, 0}].tokens), solo(wanted).tokens) << length;
  }
  EXPECT_GT(engine->stats().state_snapshots, 0);
  // In company too, where the step has no room for every prompt at once.
  for (int32_t id = 200; id < 210; ++id) engine->add(request(id, prompt(101, id), 3));
  for (int i = 0; i < 200 && !engine->idle(); ++i) step();
  for (int32_t id = 200; id < 210; ++id) {
    EXPECT_EQ((results[{id, 0}].tokens), solo(request(id, prompt(101, id), 3)).tokens) << id;
  }
}

// Promise 1 of the product: the same bits alone and in any company. Random arrivals, aborts, budgets and cache pressure
// against solo runs; fails when a run did not exercise what it claims to.
class RandomSchedule : public EngineTest, public testing::WithParamInterface<bool> {};

TEST_P(RandomSchedule, OutputsDoNotDependOnIt) {
  backend.recurrent = GetParam();
  uint64_t preemptions = 0, hits = 0, aborts = 0, compared = 0;
  for (uint32_t round = 0; round < 60; ++round) {
    std::mt19937 random(round);
    const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    results.clear();
    config.async_scheduling = round % 2 == 0;
    config.num_blocks_override = pick(17, 40);
    config.max_num_batched_tokens = pick(8, 64);
    config.mixed_prefill_tokens = pick(0, 1) * pick(4, 32);
    config.long_prefill_token_threshold = pick(0, 2) * 10;
    config.policy = round % 3 == 0 ? SchedulingPolicy::priority : SchedulingPolicy::fcfs;
    start();
    std::map<RequestId, EngineRequest> sent;
    std::set<RequestId> aborted;
    const int total = 25;
    RequestId next = 1;
    while (next <= total || !engine->idle()) {
      for (int arrivals = pick(0, 2); arrivals > 0 && next <= total; --arrivals, ++next) {
        EngineRequest r = request(next, prompt(pick(1, 60), pick(0, 4)), pick(1, 40));
        r.sampling.temperature = pick(0, 1) == 0 ? 0 : 0.8f;
        r.sampling.seed = pick(0, 1000);
        r.sampling.top_k = pick(0, 1) * 7;
        r.sampling.logprobs = pick(-1, 2);
        r.sampling.repetition_penalty = pick(0, 1) == 0 ? 1.0f : 1.2f;
        r.sampling.min_tokens = pick(0, 1);
        r.eos_ids = {pick(0, 60)};
        r.priority = pick(0, 3);
        sent[next] = r;
        engine->add(r);
      }
      if (pick(0, 9) == 0 && next > 1) {
        const RequestId victim = static_cast<RequestId>(pick(1, static_cast<int>(next) - 1));
        if (results[{victim, 0}].finish == FinishReason::none) aborted.insert(victim);
        engine->abort(victim);
      }
      step();
    }
    preemptions += engine->stats().preemptions;
    hits += engine->stats().prefix_hits;
    EXPECT_EQ(engine->stats().free_blocks, config.num_blocks_override);
    for (const auto& [id, r] : sent) {
      const Collected& got = results[{id, 0}];
      if (aborted.contains(id)) {
        aborts += got.finish == FinishReason::abort ? 1 : 0;
        continue;
      }
      ASSERT_EQ(got.finish == FinishReason::error, false) << got.error;
      ASSERT_EQ(got, solo(r)) << "round " << round << " request " << id;
      ++compared;
    }
  }
  std::printf("compared %llu requests; %llu preemptions, %llu cached tokens, %llu aborts\n",
              static_cast<unsigned long long>(compared), static_cast<unsigned long long>(preemptions),
              static_cast<unsigned long long>(hits), static_cast<unsigned long long>(aborts));
  EXPECT_GT(preemptions, 0u);
  EXPECT_GT(hits, 0u);
  EXPECT_GT(aborts, 0u);
  EXPECT_EQ(backend.state_copies > 0, backend.recurrent);
}

INSTANTIATE_TEST_SUITE_P(Models, RandomSchedule, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "Recurrent" : "AttentionOnly"; });

}  // namespace
}  // namespace gristmill::engine
