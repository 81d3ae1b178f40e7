#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace gristmill::engine {
namespace {

constexpr uint64_t mib = 1 << 20;

TEST(MemoryPlan, MappedWeightsCountLikeOthersAndAreSaid) {
  device::MemoryPlan parts{100 << 20, 28 << 20, 1 << 20};
  const EngineMemoryPlan owned = plan_memory(EngineConfig(), parts, uint64_t{1} << 30, 0, 4096, 8);
  parts.weights_mapped = true;
  const EngineMemoryPlan mapped = plan_memory(EngineConfig(), parts, uint64_t{1} << 30, 0, 4096, 8);
  EXPECT_EQ(mapped.weights, owned.weights);
  EXPECT_EQ(mapped.num_blocks, owned.num_blocks);
  EXPECT_EQ(describe(owned, 16).find("mapped"), std::string::npos);
  EXPECT_NE(describe(mapped, 16).find("weights 100.00 MiB (mapped"), std::string::npos) << describe(mapped, 16);
}

TEST(MemoryPlan, GivesTheCacheWhatWeightsAndScratchLeave) {
  EngineConfig config;
  config.memory_utilization = 0.5;
  const EngineMemoryPlan plan = plan_memory(config, {100 * mib, 28 * mib, mib}, 1024 * mib, 0, 4096, 128);
  EXPECT_EQ(plan.limit, 512 * mib);
  EXPECT_EQ(plan.num_blocks, 384);
  EXPECT_EQ(plan.cache, 384 * mib);
  EXPECT_EQ(plan.max_model_len, 4096);
}

TEST(MemoryPlan, ReservesNoMoreThanAllSequencesCanUse) {
  const EngineMemoryPlan plan = plan_memory({}, {mib, mib, mib}, 100000 * mib, 160, 4096, 3);
  EXPECT_EQ(plan.num_blocks, 30);
}

TEST(MemoryPlan, LowersTheModelsLengthWhenTheUserGaveNone) {
  EngineConfig config;
  config.num_blocks_override = 10;
  EXPECT_EQ(plan_memory(config, {mib, mib, mib}, 1024 * mib, 0, 4096, 8).max_model_len, 160);
}

TEST(MemoryPlan, RefusalsNameTheFlagsAndValuesThatFit) {
  EngineConfig config;
  config.cache_bytes = 10 * mib;
  try {
    plan_memory(config, {mib, mib, mib}, 1024 * mib, 1000, 4096, 8);
    FAIL() << "accepted";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("--max-model-len to 160"), std::string::npos) << text;
    EXPECT_NE(text.find("--kv-cache-memory-bytes to 66060288"), std::string::npos) << text;  // 63 blocks
  }
  EXPECT_THROW(plan_memory({}, {2000 * mib, mib, mib}, 1024 * mib, 0, 4096, 8), Error);
}

TEST(MemoryPlan, ValuesThatRefusalsNameAreAccepted) {
  const auto refusal = [](const EngineConfig& config, int32_t length) -> std::string {
    try {
      plan_memory(config, {300 * mib, 100 * mib, mib}, 1024 * mib, length, 4096, 8);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EngineConfig config;
  config.memory_utilization = 0.3;
  EXPECT_NE(refusal(config, 0).find("Raise --gpu-memory-utilization (now 0.3) to 0.4."), std::string::npos);
  config.memory_utilization = 0.4;
  EXPECT_EQ(refusal(config, 0), "");
  EXPECT_NE(refusal(config, 1600).find("Raise --gpu-memory-utilization (now 0.4) to 0.49."), std::string::npos);
  config.memory_utilization = 0.49;
  EXPECT_EQ(refusal(config, 1600), "");
  config.num_blocks_override = 5;
  EXPECT_NE(refusal(config, 1600).find("Raise --num-gpu-blocks-override to 100."), std::string::npos);
  config.num_blocks_override = 100;
  EXPECT_EQ(refusal(config, 1600), "");
  config.num_blocks_override = 0;
  config.cache_bytes = 1000;
  EXPECT_NE(refusal(config, 0).find("(now 1000 B) to 1048576 bytes"), std::string::npos);
}

TEST(MemoryPlan, SnapshotsOfRecurrentStateCountInTheValueThatFits) {
  const auto refusal = [](const EngineConfig& config, uint64_t state, int32_t length) -> std::string {
    try {
      device::MemoryPlan parts{mib, mib, mib};
      parts.bytes_per_state = state;
      plan_memory(config, parts, 64 * 1024 * mib, length, 4096, 8);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EngineConfig config;
  config.cache_bytes = 1 << 20;
  const std::string text = refusal(config, 2 * mib, 0);
  EXPECT_NE(text.find("beside 8 snapshots of recurrent state of 2.00 MiB each"), std::string::npos) << text;
  EXPECT_NE(text.find("(now 1.00 MiB) to 17825792 bytes"), std::string::npos) << text;  // a block and 8 snapshots
  for (const uint64_t state : {uint64_t{1000}, mib / 16, mib, 100 * mib}) {
    for (const int32_t length : {0, 16, 800, 4096}) {
      config.cache_bytes = 1;
      const std::string refused = refusal(config, state, length);
      size_t at = refused.find("(now 1 B) to ");
      ASSERT_NE(at, std::string::npos) << refused;
      config.cache_bytes = std::stoll(refused.substr(at + 13));
      EXPECT_EQ(refusal(config, state, length), "") << config.cache_bytes;
      if (length == 0) continue;
      config.cache_bytes = static_cast<int64_t>(length / 16 * mib - 1 + 8 * state);
      const std::string short_of = refusal(config, state, length);
      at = short_of.find("Set --kv-cache-memory-bytes to ");
      if (at == std::string::npos) continue;
      config.cache_bytes = std::stoll(short_of.substr(at + 31));
      EXPECT_EQ(refusal(config, state, length), "") << config.cache_bytes;
    }
  }
}

TEST(MemoryPlan, ACacheBeyondTheMachinesMemoryIsRefusedByItsFlag) {
  const auto refusal = [](const EngineConfig& config) -> std::string {
    try {
      plan_memory(config, {100 * mib, mib, mib}, 1024 * mib, 0, 4096, 8);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EngineConfig config;
  config.memory_utilization = 0.5;
  config.cache_bytes = int64_t{100} << 40;
  EXPECT_EQ(refusal(config),
            "--kv-cache-memory-bytes or VLLM_CPU_KVCACHE_SPACE asks for a KV cache of 100.00 TiB, and this machine has "
            "1.00 GiB of memory. Lower it to 430964736 bytes or less.");
  config.cache_bytes = 430964736;
  EXPECT_EQ(refusal(config), "");
  config.num_blocks_override = 2147483647;
  EXPECT_EQ(refusal(config),
            "--num-gpu-blocks-override 2147483647: that many blocks of 1.00 MiB take 2048.00 TiB, and this machine has "
            "1.00 GiB of memory. Lower it to 411 or less.");
  config.num_blocks_override = 411;
  EXPECT_EQ(refusal(config), "");
}

TEST(MemoryPlan, WritesSizesForPeople) {
  EXPECT_EQ(bytes_text(12), "12 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(uint64_t{5} << 30), "5.00 GiB");
}

}  // namespace
}  // namespace gristmill::engine
