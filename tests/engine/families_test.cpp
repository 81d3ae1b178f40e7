// Every architecture of Hugging Face folders through the engine: transformers' continuation and log-probabilities, and
// the same bits cold, with a cached prefix, after preemption, in chunks of any size and in a batch.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/log.h"
#include "engine/engine.h"
#include "weights/safetensors.h"

namespace gristmill::engine {
namespace {

struct Family {
  std::string name, folder, golden;
};

std::vector<Family> families() {
  std::vector<Family> all;
  for (const char* name :
       {"llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "qwen3_5", "qwen3_5_moe", "minimax_m2", "minimax_m2_fp8"}) {
    const std::string folder = cat(GRISTMILL_TEST_DIR "/golden/hf/", name);
    all.push_back({cat("own_", name), folder, folder + "/golden.safetensors"});
  }
  const std::string shared = GRISTMILL_SHARED_DATA "/golden/";
  for (const char* name : {"tiny-llama", "tiny-qwen3-moe", "tiny-qwen3_5-dense", "tiny-qwen3_5-moe", "tiny-minimax-m2",
                           "tiny-minimax-m2-fp8"})
    all.push_back({name, shared + name, cat(shared, "golden/", name, "/text.safetensors")});
  return all;
}

std::string test_name(const ::testing::TestParamInfo<Family>& param) {
  std::string name = param.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs, prompt_logprobs;
  bool operator==(const Answer&) const = default;
};
using Answers = std::map<RequestId, Answer>;

class EngineFamilyTest : public ::testing::TestWithParam<Family> {
 protected:
  static void SetUpTestSuite() { set_log_level(LogLevel::error); }
  void SetUp() override {
    if (!std::filesystem::exists(GetParam().golden)) GTEST_SKIP() << GetParam().golden << " is absent";
    golden_ = weights::SafetensorsFile::open(GetParam().golden);
    constexpr std::string_view kEnding = ".input_ids";
    for (const std::string& name : golden_->names())
      if (name.ends_with(kEnding)) prompts_.push_back(name.substr(0, name.size() - kEnding.size()));
  }

  template <class T>
  std::vector<T> read(const std::string& name) const {
    const TensorView tensor = golden_->tensor(name);
    std::vector<T> values(tensor.bytes.size() / sizeof(T));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }

  EngineConfig config() const {
    EngineConfig made;
    made.model = GetParam().folder;
    made.threads = 2;
    made.float32 = true;
    made.cache_dtype = DType::f32;
    made.max_model_len = 448;
    made.max_num_seqs = 8;
    made.num_blocks_override = 200;
    made.prefix_caching = false;
    return made;
  }
  /// A request for each prompt, with the golden continuation's length.
  std::vector<EngineRequest> requests(bool prompt_logprobs) const {
    std::vector<EngineRequest> all;
    for (const std::string& prompt : prompts_) {
      EngineRequest request;
      request.id = all.size() + 1;
      request.prompt = read<int32_t>(prompt + ".input_ids");
      request.sampling.temperature = 0;
      request.sampling.ignore_eos = true;
      request.sampling.max_tokens = static_cast<int32_t>(read<int32_t>(prompt + ".greedy_ids").size());
      request.sampling.logprobs = 0;
      if (prompt_logprobs) request.sampling.prompt_logprobs = 0;
      all.push_back(request);
    }
    return all;
  }
  /// Runs them one after the other or all at once.
  static Answers run(Engine& engine, const std::vector<EngineRequest>& requests, bool together) {
    Answers answers;
    size_t next = 0;
    while (next < requests.size() || !engine.idle()) {
      while (next < requests.size() && (together || engine.idle())) engine.add(requests[next++]);
      std::vector<EngineOutput> outputs;
      engine.step(outputs);
      for (const EngineOutput& output : outputs) {
        EXPECT_NE(output.finish, FinishReason::error) << output.error;
        Answer& answer = answers[output.id];
        for (const OutputToken& token : output.tokens) {
          answer.tokens.push_back(token.token);
          answer.logprobs.push_back(token.sampled.logprob);
        }
        for (const OutputToken& token : output.prompt_logprobs) answer.prompt_logprobs.push_back(token.sampled.logprob);
      }
    }
    return answers;
  }
  static Answers run(const EngineConfig& config, const std::vector<EngineRequest>& requests, bool together) {
    SilentProgress progress;
    Engine engine(config, progress);
    return run(engine, requests, together);
  }

  std::shared_ptr<const weights::SafetensorsFile> golden_;
  std::vector<std::string> prompts_;
};

TEST_P(EngineFamilyTest, AnswersAndPromptLogprobsAreTransformers) {
  const Answers answers = run(config(), requests(true), true);
  for (size_t i = 0; i < prompts_.size(); ++i) {
    SCOPED_TRACE(prompts_[i]);
    const Answer& answer = answers.at(i + 1);
    EXPECT_EQ(answer.tokens, read<int32_t>(prompts_[i] + ".greedy_ids"));
    const std::vector<int32_t> ids = read<int32_t>(prompts_[i] + ".input_ids");
    const std::vector<float> logits = read<float>(prompts_[i] + ".logits");
    const size_t vocabulary = logits.size() / ids.size();
    ASSERT_EQ(answer.prompt_logprobs.size(), ids.size());
    for (size_t t = 0; t + 1 < ids.size(); ++t) {
      const float* const row = &logits[t * vocabulary];
      double sum = 0;
      for (size_t v = 0; v < vocabulary; ++v) sum += std::exp(static_cast<double>(row[v]));
      EXPECT_NEAR(answer.prompt_logprobs[t + 1], row[ids[t + 1]] - std::log(sum), 2e-3) << t;
    }
  }
}

TEST_P(EngineFamilyTest, ChunksOfAnyBudgetGiveTheSameBits) {
  const Answers cold = run(config(), requests(true), false);
  for (const int32_t budget : {1, 7, 16, 64}) {
    EngineConfig chunked = config();
    chunked.max_num_batched_tokens = budget;
    chunked.max_num_seqs = std::min(budget, 8);
    EXPECT_TRUE(run(chunked, requests(true), false) == cold) << "budget " << budget;
  }
}

TEST_P(EngineFamilyTest, BatchesGiveTheSameBits) {
  const Answers cold = run(config(), requests(true), false);
  EngineConfig crowded = config();
  crowded.max_num_batched_tokens = 33;
  crowded.mixed_prefill_tokens = 9;
  EXPECT_TRUE(run(crowded, requests(true), true) == cold);
}

TEST_P(EngineFamilyTest, CachedPrefixesGiveTheSameBits) {
  const Answers cold = run(config(), requests(false), false);
  EngineConfig caching = config();
  caching.prefix_caching = true;
  SilentProgress progress;
  Engine engine(caching, progress);
  EXPECT_TRUE(run(engine, requests(false), false) == cold);
  const uint64_t before = engine.stats().prefix_hits;
  for (int again = 0; again < 2; ++again) EXPECT_TRUE(run(engine, requests(false), again == 1) == cold);
  EXPECT_GT(engine.stats().prefix_hits, before);
}

TEST_P(EngineFamilyTest, PreemptionGivesTheSameBits) {
  std::vector<EngineRequest> all = requests(false);
  std::erase_if(all, [](const EngineRequest& request) { return request.prompt.size() > 100; });
  for (size_t i = 0, count = all.size(); i < 2 * count; ++i) {
    all.push_back(all[i % count]);
    all.back().id = 100 + i;
  }
  const Answers cold = run(config(), all, false);
  for (const bool caching : {false, true}) {
    EngineConfig tight = config();
    tight.prefix_caching = caching;
    tight.max_model_len = 128;
    tight.num_blocks_override = 9;
    SilentProgress progress;
    Engine engine(tight, progress);
    EXPECT_TRUE(run(engine, all, true) == cold) << (caching ? "with" : "without") << " prefix caching";
    EXPECT_GT(engine.stats().preemptions, 0u);
  }
}

TEST(HybridPrefixReuse, GoesOnlyAsFarAsCacheAndStateBothDo) {
  set_log_level(LogLevel::error);
  EngineConfig config;
  config.model = GRISTMILL_TEST_DIR "/golden/hf/qwen3_5_moe";  // three Gated DeltaNet layers and one of attention
  config.threads = 2;
  config.max_model_len = 200;
  config.max_num_seqs = 2;
  config.num_blocks_override = 2000;
  constexpr int32_t kVocabulary = 96, kBlock = 16;
  const auto prompt = [](int32_t seed, int32_t length) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < length; ++i) ids.push_back((i * i * 5 + i * 3 + seed * 31) % kVocabulary);
    return ids;
  };
  struct Result {
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;
    int32_t cached = 0;
  };
  RequestId id = 0;
  const auto ask = [&](Engine& engine, const std::vector<int32_t>& ids) {
    EngineRequest request;
    request.id = ++id;
    request.prompt = ids;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.sampling.max_tokens = 12;
    request.sampling.logprobs = 0;
    engine.add(request);
    Result result;
    while (!engine.idle()) {
      std::vector<EngineOutput> outputs;
      engine.step(outputs);
      for (const EngineOutput& output : outputs) {
        result.cached = output.cached_tokens;
        for (const OutputToken& token : output.tokens) {
          result.tokens.push_back(token.token);
          result.logprobs.push_back(token.sampled.logprob);
        }
      }
    }
    return result;
  };
  SilentProgress progress;
  Engine engine(config, progress);
  const auto expect_cold = [&](const std::vector<int32_t>& ids, const Result& got) {
    EngineConfig plain = config;
    plain.prefix_caching = false;
    Engine cold(plain, progress);
    const Result expected = ask(cold, ids);
    EXPECT_EQ(got.tokens, expected.tokens);
    EXPECT_EQ(got.logprobs, expected.logprobs);
    EXPECT_EQ(expected.cached, 0);
  };
  const std::vector<int32_t> first = prompt(1, 5 * kBlock + 3);
  EXPECT_EQ(ask(engine, first).cached, 0);
  const Result again = ask(engine, first);
  EXPECT_EQ(again.cached, 5 * kBlock);
  expect_cold(first, again);

  // The same first three blocks, another tail: as much as there is a state for.
  std::vector<int32_t> other(first.begin(), first.begin() + 3 * kBlock);
  const std::vector<int32_t> tail = prompt(2, 2 * kBlock + 3);
  other.insert(other.end(), tail.begin(), tail.end());
  const Result branched = ask(engine, other);
  EXPECT_LE(branched.cached, 3 * kBlock);
  expect_cold(other, branched);
  const Result branched_again = ask(engine, other);
  EXPECT_EQ(branched_again.cached, 5 * kBlock);
  expect_cold(other, branched_again);

  // So many other prompts that every snapshot is gone, while the blocks of the first are still there.
  const int32_t snapshots_before = engine.stats().state_snapshots;
  EXPECT_GT(snapshots_before, 0);
  for (int32_t seed = 0; seed < 40; ++seed) ask(engine, prompt(100 + seed, 5 * kBlock + 3));
  const Result later = ask(engine, first);
  EXPECT_EQ(later.cached, 0);
  expect_cold(first, later);
  // What the tiers tell: the blocks of the last prompt were found, but no state to go on from.
  const EngineStats stats = engine.stats();
  EXPECT_GT(stats.prefix_hits, 0u);
  EXPECT_GE(stats.prefix_block_hits, stats.prefix_hits + 5 * kBlock);
}

INSTANTIATE_TEST_SUITE_P(Families, EngineFamilyTest, ::testing::ValuesIn(families()), test_name);

}  // namespace
}  // namespace gristmill::engine
