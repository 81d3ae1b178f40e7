#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "server/metrics/registry.h"
#include "server/metrics/serving_metrics.h"

namespace gristmill::server {
namespace {

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(PrometheusNumber, IsWrittenAsThePythonClientDoes) {
  EXPECT_EQ(prometheus_number(1), "1.0");
  EXPECT_EQ(prometheus_number(0.25), "0.25");
  EXPECT_EQ(prometheus_number(2560), "2560.0");
  EXPECT_EQ(prometheus_number(999999), "999999.0");
  EXPECT_EQ(prometheus_number(1000000), "1e+06");
  EXPECT_EQ(prometheus_number(1234567.5), "1.2345675e+06");
  EXPECT_EQ(prometheus_number(-2000000), "-2e+06");
}

TEST(Buckets, FollowOneTwoFiveUpToTheWindow) {
  EXPECT_EQ(buckets_1_2_5(100), (std::vector<double>{1, 2, 5, 10, 20, 50, 100}));
  EXPECT_EQ(buckets_1_2_5(99), (std::vector<double>{1, 2, 5, 10, 20, 50}));
}

TEST(Registry, PrintsCountersGaugesAndHistograms) {
  Registry registry;
  registry.counter("a:count", "Counts.", {{"x", "q\"\\\n"}}).add(2);
  registry.gauge("g", "Gauges.").set(0.5);
  Histogram& histogram = registry.histogram("h", "Buckets.", {{"k", "v"}}, {1, 2});
  histogram.observe(1);
  histogram.observe(1.5);
  histogram.observe(9);
  const std::string text = registry.text();
  EXPECT_TRUE(has_line(text, "# TYPE a:count_total counter"));
  EXPECT_TRUE(has_line(text, R"(a:count_total{x="q\"\\\n"} 2.0)"));
  EXPECT_NE(text.find("a:count_created{"), std::string::npos);
  EXPECT_TRUE(has_line(text, "g 0.5"));
  EXPECT_TRUE(has_line(text, R"(h_bucket{k="v",le="1.0"} 1.0)"));
  EXPECT_TRUE(has_line(text, R"(h_bucket{k="v",le="2.0"} 2.0)"));
  EXPECT_TRUE(has_line(text, R"(h_bucket{k="v",le="+Inf"} 3.0)"));
  EXPECT_TRUE(has_line(text, R"(h_count{k="v"} 3.0)"));
  EXPECT_TRUE(has_line(text, R"(h_sum{k="v"} 11.5)"));
}

class ServingMetricsTest : public testing::Test {
 protected:
  static engine::EngineInfo info() {
    engine::EngineInfo info;
    info.max_model_len = 8192;
    info.block_size = 16;
    info.num_blocks = 77;
    return info;
  }
  Registry registry_;
  ServingMetrics metrics_{registry_, "m", info(), {}};
  const std::string labels_ = R"({model_name="m",engine="0"})";
};

TEST_F(ServingMetricsTest, SeriesThatDashboardsReadAreThereFromTheStart) {
  const std::string text = registry_.text();
  for (const char* name :
       {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
        "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total",
        "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:prompt_tokens_cached_total",
        "vllm:external_prefix_cache_queries_total", "vllm:mm_cache_hits_total"}) {
    EXPECT_TRUE(has_line(text, name + labels_ + " 0.0")) << name;
  }
  for (const char* name :
       {"vllm:request_prompt_tokens", "vllm:request_generation_tokens", "vllm:request_params_max_tokens",
        "vllm:request_max_num_generation_tokens", "vllm:request_prefill_kv_computed_tokens", "vllm:request_params_n",
        "vllm:iteration_tokens_total", "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds",
        "vllm:request_time_per_output_token_seconds", "vllm:e2e_request_latency_seconds",
        "vllm:request_decode_time_seconds", "vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds",
        "vllm:request_inference_time_seconds"}) {
    EXPECT_TRUE(has_line(text, name + std::string("_count") + labels_ + " 0.0")) << name;
  }
  for (const char* reason : {"stop", "length", "abort", "error", "repetition"}) {
    EXPECT_TRUE(has_line(
        text,
        std::string(R"(vllm:request_success_total{model_name="m",engine="0",finished_reason=")") + reason + "\"} 0.0"));
  }
  EXPECT_TRUE(has_line(text, R"(vllm:engine_sleep_state{model_name="m",engine="0",sleep_state="awake"} 1.0)"));
  EXPECT_TRUE(has_line(text, R"(vllm:time_to_first_token_seconds_bucket{model_name="m",engine="0",le="2560.0"} 0.0)"));
  EXPECT_TRUE(has_line(text, R"(vllm:request_prompt_tokens_bucket{model_name="m",engine="0",le="5000.0"} 0.0)"));
  EXPECT_NE(text.find(R"(vllm:cache_config_info{block_size="16",cache_dtype="bfloat16")"), std::string::npos);
}

TEST_F(ServingMetricsTest, FinishedChoicesAreCounted) {
  engine::EngineStats stats;
  stats.prompt_tokens = 40;
  stats.cached_prompt_tokens = 60;
  metrics_.take(stats);
  metrics_.first_output(100, 60, 0.03);
  metrics_.generated(1);
  metrics_.more_output(0.02);
  metrics_.generated(1);
  FinishedChoice done;
  done.reason = "stop";
  done.arrival = 10;
  done.queued = 10.005;
  done.scheduled = 10.01;
  done.first_token = 10.03;
  done.last_token = 10.05;
  done.end = 10.05;
  done.prompt_tokens = 100;
  done.cached_tokens = 60;
  done.generated_tokens = 2;
  done.max_tokens = 16;
  metrics_.finished(done);
  metrics_.request_over(1, 2);
  const std::string text = registry_.text();
  EXPECT_TRUE(has_line(text, "vllm:prompt_tokens_total" + labels_ + " 100.0"));
  EXPECT_TRUE(has_line(text, "vllm:generation_tokens_total" + labels_ + " 2.0"));
  EXPECT_TRUE(
      has_line(text, R"(vllm:prompt_tokens_by_source_total{model_name="m",engine="0",source="local_compute"} 40.0)"));
  EXPECT_TRUE(has_line(text, "vllm:prompt_tokens_cached_total" + labels_ + " 60.0"));
  for (const auto& [name, seconds] :
       {std::pair("queue", 0.005), {"prefill", 0.02}, {"decode", 0.02}, {"inference", 0.04}}) {
    const std::string series = "vllm:request_" + std::string(name) + "_time_seconds";
    EXPECT_TRUE(has_line(text, series + "_count" + labels_ + " 1.0")) << name;
    const size_t at = text.find(series + "_sum" + labels_);
    EXPECT_NEAR(std::stod(text.substr(text.find("} ", at) + 2)), seconds, 1e-9) << name;
  }
  EXPECT_TRUE(has_line(text, R"(vllm:request_success_total{model_name="m",engine="0",finished_reason="stop"} 1.0)"));
  EXPECT_TRUE(has_line(text, R"(vllm:time_to_first_token_seconds_bucket{model_name="m",engine="0",le="0.04"} 1.0)"));
  EXPECT_TRUE(has_line(text, "vllm:request_prefill_kv_computed_tokens_sum" + labels_ + " 40.0"));
  EXPECT_DOUBLE_EQ(metrics_.recent_hit_rate(), 0.6);
}

TEST_F(ServingMetricsTest, TotalsGoOnWhenTheEngineIsRestarted) {
  engine::EngineStats stats;
  stats.preemptions = 5;
  stats.prefix_queries = 100;
  stats.prefix_hits = 40;
  stats.total_blocks = 10;
  stats.free_blocks = 8;
  stats.running = 3;
  metrics_.take(stats);
  metrics_.take(stats);
  stats.preemptions = 2;  // a new process
  metrics_.take(stats);
  stats.preemptions = 3;
  metrics_.take(stats);
  const std::string text = registry_.text();
  EXPECT_TRUE(has_line(text, "vllm:num_preemptions_total" + labels_ + " 8.0"));
  EXPECT_TRUE(has_line(text, "vllm:prefix_cache_hits_total" + labels_ + " 40.0"));
  EXPECT_TRUE(has_line(text, "vllm:num_requests_running" + labels_ + " 3.0"));
  EXPECT_TRUE(has_line(text, "vllm:kv_cache_usage_perc" + labels_ + " 0.2"));
}

TEST_F(ServingMetricsTest, StepsAreCountedByTheirTokens) {
  engine::EngineStats stats;
  stats.step_tokens = 120;
  stats.step_seconds = 0.5;
  stats.forward_seconds = 0.25;
  stats.steps_by_tokens[0] = 3;  // of at most one token
  stats.steps_by_tokens[5] = 1;  // of 65 to 128
  metrics_.take(stats);
  metrics_.take(stats);
  const std::string text = registry_.text();
  EXPECT_TRUE(has_line(text, "gristmill:engine_step_seconds_total" + labels_ + " 0.5"));
  EXPECT_TRUE(has_line(text, "gristmill:engine_forward_seconds_total" + labels_ + " 0.25"));
  EXPECT_TRUE(has_line(text, "vllm:iteration_tokens_total_count" + labels_ + " 4.0"));
  EXPECT_TRUE(has_line(text, "vllm:iteration_tokens_total_sum" + labels_ + " 120.0"));
  EXPECT_TRUE(has_line(text, R"(vllm:iteration_tokens_total_bucket{model_name="m",engine="0",le="64.0"} 3.0)"));
  EXPECT_TRUE(has_line(text, R"(vllm:iteration_tokens_total_bucket{model_name="m",engine="0",le="128.0"} 4.0)"));
}

TEST(HttpMetrics, CountsByRouteMethodAndStatusClass) {
  Registry registry;
  HttpMetrics metrics(registry);
  metrics.answered("/v1/models", "GET", 200, 0, 120, 0.004);
  metrics.answered("/v1/models", "GET", 204, 0, 80, 0.004);
  metrics.refresh_process();
  const std::string text = registry.text();
  EXPECT_TRUE(has_line(text, R"(http_requests_total{handler="/v1/models",method="GET",status="2xx"} 2.0)"));
  EXPECT_TRUE(has_line(text, R"(http_response_size_bytes_sum{handler="/v1/models"} 200.0)"));
  EXPECT_TRUE(has_line(text, R"(http_request_duration_highr_seconds_bucket{le="0.01"} 2.0)"));
  EXPECT_FALSE(has_line(text, "process_resident_memory_bytes 0.0"));
}

}  // namespace
}  // namespace gristmill::server
