#include "cli/serve_flags.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/error.h"
#include "cli/arguments.h"

namespace gristmill::cli {
namespace {

class ServeFlagsTest : public testing::Test {
 protected:
  /// Reads a command line; the message of a refusal is kept.
  config::ServeConfig read(const std::vector<std::string>& words) {
    command_ = std::make_unique<CLI::App>("test");
    flags_ = std::make_unique<ServeFlags>(*command_);
    failure_.clear();
    try {
      Arguments arguments = normalize(words, flags_->specs());
      notes_ = arguments.notes;
      std::reverse(arguments.words.begin(), arguments.words.end());
      command_->parse(arguments.words);
    } catch (const CLI::ParseError& error) {
      failure_ = error.what();
    } catch (const Error& error) {
      failure_ = error.what();
    }
    return flags_->config();
  }
  std::string failure_of(const std::vector<std::string>& words) {
    read(words);
    return failure_;
  }

  std::unique_ptr<CLI::App> command_;
  std::unique_ptr<ServeFlags> flags_;
  std::vector<std::string> notes_;
  std::string failure_;
};

TEST_F(ServeFlagsTest, NothingGivenLeavesTheDefaults) {
  const config::ServeConfig config = read({});
  EXPECT_EQ(failure_, "");
  EXPECT_EQ(config.http.port, 8000);
  EXPECT_TRUE(config.engine.model.empty());
  EXPECT_TRUE(config.engine.prefix_caching);
  EXPECT_EQ(flags_->given(), "{}");
}

TEST_F(ServeFlagsTest, ModelAndFlagsInAnyOrderAndSpelling) {
  const config::ServeConfig config =
      read({"--host", "127.0.0.1", "model.gguf", "--port=8001", "--max_model_len", "25.6k", "--max-num_seqs=4K",
            "--kv_cache_memory_bytes", "2G", "--served-model-name", "a", "b", "--api-key", "k1", "k2", "--seed", "-5"});
  EXPECT_EQ(failure_, "");
  EXPECT_EQ(config.engine.model, "model.gguf");
  EXPECT_EQ(config.http.host, "127.0.0.1");
  EXPECT_EQ(config.http.port, 8001);
  EXPECT_EQ(config.engine.max_model_len, 25600);
  EXPECT_EQ(config.engine.max_num_seqs, 4096);
  EXPECT_EQ(config.engine.cache_bytes, int64_t{2} << 30);
  EXPECT_EQ(config.engine.seed, -5);
  EXPECT_EQ(config.model.served_names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(config.http.api_keys, (std::vector<std::string>{"k1", "k2"}));
  EXPECT_EQ(flags_->given().find("k1"), std::string::npos);
}

TEST_F(ServeFlagsTest, BooleansHaveTwoFormsAndValues) {
  EXPECT_FALSE(read({"--no-enable-prefix-caching"}).engine.prefix_caching);
  EXPECT_TRUE(read({"--enable-prefix-caching"}).engine.prefix_caching);
  EXPECT_FALSE(read({"--enable-prefix-caching=false"}).engine.prefix_caching);
  EXPECT_TRUE(read({"--no-async-scheduling=False"}).engine.async_scheduling);
  EXPECT_FALSE(read({"--disable-log-stats"}).log.stats);
  EXPECT_TRUE(read({}).api.parse_message_control_tokens);
  EXPECT_FALSE(read({"--no-parse-message-control-tokens"}).api.parse_message_control_tokens);
  EXPECT_TRUE(read({"--no-disable-log-stats"}).log.stats);
  EXPECT_FALSE(read({"--disable-uvicorn-access-log"}).http.access_log);
  EXPECT_EQ(failure_of({"--enable-prefix-caching=maybe"}),
            "argument --enable-prefix-caching: must be true or false, got 'maybe'");
}

TEST_F(ServeFlagsTest, RepeatedFlagsKeepTheLast) {
  EXPECT_EQ(read({"--port", "1", "--port", "2"}).http.port, 2);
  EXPECT_EQ(notes_, (std::vector<std::string>{"found duplicate keys --port: the last one counts"}));
  EXPECT_FALSE(read({"--no-enable-prefix-caching", "--no-enable-prefix-caching"}).engine.prefix_caching);
  EXPECT_EQ(read({"--api-key", "a", "b", "--api-key", "c"}).http.api_keys, (std::vector<std::string>{"c"}));
}

TEST_F(ServeFlagsTest, UnsetValuesAndShortForms) {
  EXPECT_EQ(read({"--max-model-len", "None"}).engine.max_model_len, 0);
  EXPECT_EQ(read({"--max-model-len", "auto"}).engine.max_model_len, 0);
  EXPECT_EQ(read({"--max-model-len=-1"}).engine.max_model_len, 0);
  EXPECT_EQ(failure_, "");
  EXPECT_EQ(read({"--kv-cache-memory", "1G"}).engine.cache_bytes, int64_t{1} << 30);
  EXPECT_EQ(notes_, (std::vector<std::string>{"argument --kv-cache-memory: taken as --kv-cache-memory-bytes"}));
  EXPECT_NE(failure_of({"--max-num", "3"}).find("ambiguous option"), std::string::npos);
}

TEST_F(ServeFlagsTest, UnknownFlagsGetAHint) {
  EXPECT_EQ(failure_of({"--prot", "1"}), "unrecognized arguments: --prot (did you mean --port?)");
  EXPECT_EQ(failure_of({"--zebra-crossing"}), "unrecognized arguments: --zebra-crossing");
  EXPECT_NE(failure_of({"model.gguf", "another.gguf"}), "");
  EXPECT_EQ(failure_of({"--port"}), "argument --port: expected one argument");
}

TEST_F(ServeFlagsTest, TheWeightCacheIsChosenByFlags) {
  EXPECT_TRUE(read({}).weight_cache);
  EXPECT_FALSE(read({"--no-weight-cache"}).weight_cache);
  const config::ServeConfig config =
      read({"--weight-cache-dir", "/srv/w", "--weight-cache-size", "20G", "--weight-residence", "owned"});
  EXPECT_EQ(failure_, "");
  EXPECT_EQ(config.engine.weight_cache_dir, "/srv/w");
  EXPECT_EQ(config.engine.weight_cache_bytes, int64_t{20} << 30);
  EXPECT_EQ(config.engine.weight_residence, device::Residence::owned);
  EXPECT_NE(failure_of({"--weight-residence", "somewhere"}).find("--weight-residence"), std::string::npos);
}

TEST_F(ServeFlagsTest, WeightsAndConfigOfAFolderCanBeReplaced) {
  EXPECT_EQ(failure_of({"--load-format", "dummy", "--hf-overrides", R"({"num_hidden_layers": 2})"}), "");
  EXPECT_EQ(failure_of({"--load-format", "safetensors"}), "");
  EXPECT_NE(failure_of({"--load-format", "pt"}).find("--load-format"), std::string::npos);
}

TEST_F(ServeFlagsTest, KnownFlagsAreNotedOrRefusedByName) {
  EXPECT_EQ(failure_of({"--trust-remote-code", "--enforce-eager", "--swap-space", "4", "--disable-log-requests"}), "");
  EXPECT_EQ(notes_.size(), 4u);
  EXPECT_EQ(failure_of({"-tp", "1", "--pipeline-parallel-size=1", "-dp=1", "--load-format", "gguf", "-O2"}), "");
  EXPECT_EQ(failure_of({"-tp", "4"}),
            "argument --tensor-parallel-size 4: not supported yet (one engine process on one machine is what is built "
            "so far)");
  EXPECT_NE(failure_of({"--speculative_config", R"({"method":"mtp"})"}).find("--speculative-config"),
            std::string::npos);
  EXPECT_NE(failure_of({"--speculative-config.method", "mtp"}).find("not supported yet"), std::string::npos);
  EXPECT_NE(failure_of({"--enable-lora"}).find("not supported yet"), std::string::npos);
  EXPECT_EQ(failure_of({"--no-enable-lora"}), "");
}

TEST_F(ServeFlagsTest, WrongValuesNameTheFlag) {
  EXPECT_EQ(failure_of({"--port", "http"}), "argument --port: invalid integer value: 'http'");
  EXPECT_EQ(failure_of({"--port", "70000"}), "argument --port: must be between 0 and 65535, got 70000");
  EXPECT_EQ(failure_of({"--gpu-memory-utilization", "most"}),
            "argument --gpu-memory-utilization: invalid float value: 'most'");
  EXPECT_EQ(failure_of({"--scheduling-policy", "lifo"}),
            "argument --scheduling-policy: invalid choice: 'lifo' (choose from fcfs, priority)");
  EXPECT_NE(failure_of({"--kv-cache-dtype", "fp4"}).find("argument --kv-cache-dtype: invalid choice"),
            std::string::npos);
  EXPECT_NE(failure_of({"--allowed-origins", "[1]"}).find("argument --allowed-origins: must be a JSON list of strings"),
            std::string::npos);
  EXPECT_NE(failure_of({"--max-num-seqs", "99999999999"}).find("too large"), std::string::npos);
}

TEST_F(ServeFlagsTest, QuantizationIsPassedOnAndChecked) {
  EXPECT_EQ(read({"-q", "ascend"}).engine.quantization, "ascend");
  EXPECT_EQ(read({"--quantization", "w4a8", "--float-linears", "bf16"}).engine.quantization, "w4a8");
  EXPECT_EQ(read({"--float-linears", "int8"}).engine.float_linears, "int8");
  EXPECT_NE(failure_of({"--quantization", "awq"}).find("choose from ascend"), std::string::npos);
}

TEST_F(ServeFlagsTest, CacheFollowsTheModelUnlessChosen) {
  EXPECT_EQ(read({}).engine.cache_dtype, std::nullopt);
  const config::ServeConfig exact = read({"--dtype", "float32"});
  EXPECT_TRUE(exact.engine.float32);
  EXPECT_EQ(exact.engine.cache_dtype, std::nullopt);
  EXPECT_EQ(read({"--dtype", "float32", "--kv-cache-dtype", "fp8"}).engine.cache_dtype, DType::fp8_e4m3);
  EXPECT_EQ(read({"--kv-cache-dtype", "auto"}).engine.cache_dtype, std::nullopt);
  EXPECT_FALSE(read({"--dtype", "bfloat16"}).engine.float32);
  EXPECT_EQ(flags_->notes().size(), 1u);
}

TEST_F(ServeFlagsTest, ListsInJson) {
  EXPECT_EQ(read({"--allowed-origins", R"(["https://a", "https://b"])"}).http.allowed_origins,
            (std::vector<std::string>{"https://a", "https://b"}));
  EXPECT_EQ(read({"--disable-access-log-for-endpoints", "/health, /metrics"}).http.access_log_skips,
            (std::vector<std::string>{"/health", "/metrics"}));
}

TEST_F(ServeFlagsTest, HelpListsEveryFlagInGroups) {
  read({});
  const std::string help = command_->help();
  for (const FlagSpec& spec : flags_->specs())
    EXPECT_NE(help.find(spec.name.substr(2)), std::string::npos) << spec.name;
  for (const char* group : {"Model:", "Scheduling:", "Memory and compute:", "HTTP:", "Log:", "API:"}) {
    EXPECT_NE(help.find(group), std::string::npos) << group;
  }
}

}  // namespace
}  // namespace gristmill::cli
