#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace gristmill::engine {
namespace {

constexpr uint64_t mib = 1 << 20;

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

TEST(MemoryPlan, WritesSizesForPeople) {
  EXPECT_EQ(bytes_text(12), "12 B");
  EXPECT_EQ(bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(bytes_text(uint64_t{5} << 30), "5.00 GiB");
}

}  // namespace
}  // namespace gristmill::engine
