#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "config/environment.h"
#include "config/host_topology.h"
#include "config/human_number.h"
#include "config/known_flags.h"
#include "config/serve_config.h"
#include "config/suggest.h"

namespace gristmill::config {
namespace {

template <class Call>
std::string failure(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(HumanNumber, ReadsPlainDecimalAndBinary) {
  EXPECT_EQ(human_number("--x", "4096"), 4096);
  EXPECT_EQ(human_number("--x", "-1"), -1);
  EXPECT_EQ(human_number("--x", "25.6k"), 25600);
  EXPECT_EQ(human_number("--x", "1.5m"), 1500000);
  EXPECT_EQ(human_number("--x", "2.50k"), 2500);
  EXPECT_EQ(human_number("--x", "4K"), 4096);
  EXPECT_EQ(human_number("--x", "2G"), int64_t{2} << 30);
  EXPECT_EQ(human_number("--x", "1t"), 1000000000000);
}

TEST(HumanNumber, NamesFlagAndTextOfWhatIsNone) {
  for (const char* text :
       {"", "k", "abc", "1x", "1.2.3k", "1.5", "0.0001k", "--5", "5 ", "1e3", ".5k", "1.k", "-1.5k"}) {
    const std::string message = failure([&] { human_number("--max-model-len", text); });
    EXPECT_EQ(message, std::string("argument --max-model-len: invalid integer value: '") + text + "'");
  }
  EXPECT_NE(failure([] { human_number("--x", "1.5K"); }).find("decimals are not allowed"), std::string::npos);
  EXPECT_NE(failure([] { human_number("--x", "99999999999999999999"); }).find("too large"), std::string::npos);
  EXPECT_NE(failure([] { human_number("--x", "9999999999T"); }).find("too large"), std::string::npos);
}

TEST(Suggest, FindsMisspellingsOnly) {
  const std::vector<std::string> names = {"--port", "--host", "--max-model-len", "--max-num-seqs"};
  EXPECT_EQ(closest("--prot", names), "--port");
  EXPECT_EQ(closest("--max-model-length", names), "--max-model-len");
  EXPECT_EQ(closest("--max-num-seq", names), "--max-num-seqs");
  EXPECT_EQ(closest("--something-else", names), "");
}

TEST(KnownFlags, AreSortedUniqueAndSaid) {
  std::string last;
  for (const KnownFlag& flag : known_flags()) {
    EXPECT_LT(last, flag.name);
    EXPECT_NE(flag.why, nullptr);
    last = flag.name;
  }
  EXPECT_NE(find_known_flag("--speculative-config"), nullptr);
  EXPECT_EQ(long_name("-tp"), "--tensor-parallel-size");
  EXPECT_EQ(long_name("-zz"), "");
}

class EnvironmentTest : public testing::Test {
 protected:
  Lookup lookup() {
    return [this](const std::string& name) -> std::optional<std::string> {
      const auto found = variables_.find(name);
      if (found == variables_.end()) return {};
      return found->second;
    };
  }
  std::map<std::string, std::string> variables_;
  ServeConfig config_;
};

TEST_F(EnvironmentTest, FillsWhatFlagsLeftOpen) {
  variables_ = {{"VLLM_API_KEY", "k"},
                {"VLLM_CPU_KVCACHE_SPACE", "2"},
                {"VLLM_SERVER_DEV_MODE", "1"},
                {"GRISTMILL_THREADS", "3"}};
  apply_environment(config_, lookup());
  EXPECT_EQ(config_.http.api_keys, (std::vector<std::string>{"k"}));
  EXPECT_EQ(config_.engine.cache_bytes, int64_t{2} << 30);
  EXPECT_TRUE(config_.http.developer_mode);
  EXPECT_EQ(config_.engine.threads, 3);
}

TEST_F(EnvironmentTest, FlagsWin) {
  variables_ = {{"VLLM_API_KEY", "k"}, {"VLLM_CPU_KVCACHE_SPACE", "2"}, {"GRISTMILL_THREADS", "3"}};
  config_.http.api_keys = {"flag"};
  config_.engine.cache_bytes = 5;
  config_.engine.threads = 1;
  apply_environment(config_, lookup());
  EXPECT_EQ(config_.http.api_keys, (std::vector<std::string>{"flag"}));
  EXPECT_EQ(config_.engine.cache_bytes, 5);
  EXPECT_EQ(config_.engine.threads, 1);
}

TEST_F(EnvironmentTest, PackedWeightsAreKeptInTheCacheFolderUnlessToldOtherwise) {
  const auto folder = [&] {
    ServeConfig config = config_;
    apply_environment(config, lookup());
    return config.engine.weight_cache_dir;
  };
  EXPECT_EQ(folder(), "") << "without a home folder";
  variables_ = {{"HOME", "/home/miller"}};
  EXPECT_EQ(folder(), "/home/miller/.cache/gristmill/weights");
  variables_["XDG_CACHE_HOME"] = "/var/cache";
  EXPECT_EQ(folder(), "/var/cache/gristmill/weights");
  variables_["GRISTMILL_WEIGHT_CACHE_DIR"] = "/srv/weights";
  EXPECT_EQ(folder(), "/srv/weights");
  config_.engine.weight_cache_dir = "/flag";
  EXPECT_EQ(folder(), "/flag");
  config_.weight_cache = false;
  EXPECT_EQ(folder(), "");
}

TEST_F(EnvironmentTest, OmpNumThreadsOnlyCaps) {
  variables_ = {{"OMP_NUM_THREADS", "1"}};
  apply_environment(config_, lookup());
  const int all = default_threads(config_.engine.topology, lookup());
  EXPECT_EQ(config_.engine.threads, all);
  variables_ = {{"OMP_NUM_THREADS", "2"}};
  config_ = {};
  apply_environment(config_, lookup());
  EXPECT_EQ(config_.engine.threads, std::min(2, all));
}

TEST_F(EnvironmentTest, WrongValuesNameTheVariable) {
  variables_ = {{"VLLM_CPU_KVCACHE_SPACE", "lots"}};
  EXPECT_NE(failure([&] { apply_environment(config_, lookup()); }).find("VLLM_CPU_KVCACHE_SPACE"), std::string::npos);
  variables_ = {{"VLLM_LOGGING_LEVEL", "LOUD"}};
  EXPECT_NE(failure([&] { environment_log_level(lookup()); }).find("VLLM_LOGGING_LEVEL"), std::string::npos);
  variables_ = {{"VLLM_LOGGING_LEVEL", "DEBUG"}};
  EXPECT_EQ(environment_log_level(lookup()), LogLevel::debug);
}

TEST(UnreadVariables, ListsVllmNamesNobodyReads) {
  const char* const variables[] = {"VLLM_ZZZ=1", "PATH=/bin", "VLLM_API_KEY=k", "VLLM_AAA=", nullptr};
  EXPECT_EQ(unread_variables(variables), (std::vector<std::string>{"VLLM_AAA", "VLLM_ZZZ"}));
}

TEST(Validate, AcceptsTheDefaults) {
  EXPECT_EQ(failure([] { validate(ServeConfig()); }), "none");
}

TEST(Validate, MappedWeightsNeedTheCache) {
  ServeConfig config;
  config.engine.weight_residence = device::Residence::mapped;
  EXPECT_EQ(failure([&] { validate(config); }), "none");
  config.weight_cache = false;
  EXPECT_NE(failure([&] { validate(config); }).find("remove --no-weight-cache"), std::string::npos);
  config = {};
  config.engine.weight_cache_bytes = 0;
  EXPECT_NE(failure([&] { validate(config); }).find("--weight-cache-size"), std::string::npos);
}

TEST(Validate, NamesTheFlag) {
  const auto with = [](auto change) {
    ServeConfig config;
    change(config);
    return failure([&] { validate(config); });
  };
  EXPECT_EQ(with([](ServeConfig& c) {
              c.engine.max_num_batched_tokens = 16;
              c.engine.max_num_seqs = 32;
            }),
            "max_num_batched_tokens (16) must be greater than or equal to max_num_seqs (32).");
  EXPECT_NE(with([](ServeConfig& c) { c.engine.memory_utilization = 1.5; }).find("--gpu-memory-utilization"),
            std::string::npos);
  for (const int32_t size : {-8, 0, 1, 4, 12, 512, 1024}) {
    EXPECT_EQ(with([&](ServeConfig& c) { c.engine.block_size = size; }),
              cat("--block-size must be 8, 16, 32, 64, 128 or 256, got ", size));
  }
  for (const int32_t size : {8, 256}) EXPECT_EQ(with([&](ServeConfig& c) { c.engine.block_size = size; }), "none");
  EXPECT_EQ(with([](ServeConfig& c) { c.engine.threads = 100000; }), "--threads must be at most 4096, got 100000");
  EXPECT_NE(with([](ServeConfig& c) { c.engine.device = "tpu"; }).find("--device must be one of cpu, reference"),
            std::string::npos);
  EXPECT_NE(with([](ServeConfig& c) { c.api.stream_interval = 0; }).find("--stream-interval"), std::string::npos);
  EXPECT_NE(with([](ServeConfig& c) { c.model.content_format = "x"; }).find("--chat-template-content-format"),
            std::string::npos);
  EXPECT_NE(with([](ServeConfig& c) { c.http.root_path = "x"; }).find("--root-path"), std::string::npos);
}

}  // namespace
}  // namespace gristmill::config
