#include "server/metrics/serving_metrics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace gristmill::server {
namespace {

const std::vector<double> first_token_buckets = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                                 1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const std::vector<double> inter_token_buckets = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                                 .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const std::vector<double> latency_buckets = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                             30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};

}  // namespace

double ServingMetrics::Carried::take(double total) {
  const double added = total < last ? total : total - last;
  last = total;
  if (counter) counter->add(added);
  return added;
}

ServingMetrics::ServingMetrics(Registry& registry, const std::string& model_name, const engine::EngineInfo& info,
                               const engine::EngineConfig& config) {
  const Labels labels = {{"model_name", model_name}, {"engine", "0"}};
  const auto with = [&](const char* name, const char* value) {
    Labels more = labels;
    more.emplace_back(name, value);
    return more;
  };
  const auto histogram = [&](const char* name, const char* help, const std::vector<double>& bounds) {
    return &registry.histogram(name, help, labels, bounds);
  };
  running_ = &registry.gauge("vllm:num_requests_running", "Requests in model execution batches.", labels);
  waiting_ = &registry.gauge("vllm:num_requests_waiting", "Requests waiting to be processed.", labels);
  for (const char* state : {"awake", "weights_offloaded", "discard_all"}) {
    registry.gauge("vllm:engine_sleep_state", "Engine sleep state: 1 for the one it is in.", with("sleep_state", state))
        .set(std::string_view(state) == "awake" ? 1 : 0);
  }
  cache_usage_ = &registry.gauge("vllm:kv_cache_usage_perc", "KV-cache usage; 1 means full.", labels);
  prefix_queries_.counter = &registry.counter("vllm:prefix_cache_queries", "Prefix cache lookups, in tokens.", labels);
  prefix_hits_.counter = &registry.counter("vllm:prefix_cache_hits", "Prefix cache hits, in tokens.", labels);
  prefix_block_hits_.counter = &registry.counter(
      "gristmill:prefix_cache_block_hits",
      "Tokens found in cache blocks; of recurrent models, hits are those with a state behind them.", labels);
  state_snapshots_ =
      &registry.gauge("gristmill:state_snapshots", "Snapshots of recurrent state that are kept.", labels);
  registry.counter("vllm:external_prefix_cache_queries", "External prefix cache lookups, in tokens.", labels);
  registry.counter("vllm:external_prefix_cache_hits", "External prefix cache hits, in tokens.", labels);
  registry.counter("vllm:mm_cache_queries", "Multi-modal cache lookups, in items.", labels);
  registry.counter("vllm:mm_cache_hits", "Multi-modal cache hits, in items.", labels);
  preemptions_.counter = &registry.counter("vllm:num_preemptions", "Preemptions.", labels);
  prompt_tokens_ = &registry.counter("vllm:prompt_tokens", "Prefill tokens processed.", labels);
  const char* const by_source = "vllm:prompt_tokens_by_source";
  const char* const by_source_help = "Prompt tokens by where their keys and values came from.";
  computed_source_ = &registry.counter(by_source, by_source_help, with("source", "local_compute"));
  cached_source_ = &registry.counter(by_source, by_source_help, with("source", "local_cache_hit"));
  registry.counter(by_source, by_source_help, with("source", "external_kv_transfer"));
  prompt_tokens_cached_ = &registry.counter("vllm:prompt_tokens_cached", "Prompt tokens found in a cache.", labels);
  registry.counter("vllm:prompt_tokens_recomputed", "Cached prompt tokens that were computed again.", labels);
  generation_tokens_ = &registry.counter("vllm:generation_tokens", "Generation tokens processed.", labels);
  for (const char* reason : {"stop", "length", "abort", "error", "repetition"}) {
    success_[reason] =
        &registry.counter("vllm:request_success", "Requests that ended, by reason.", with("finished_reason", reason));
  }
  const std::vector<double> lengths = buckets_1_2_5(info.max_model_len);
  request_prompt_ = histogram("vllm:request_prompt_tokens", "Prefill tokens of a request.", lengths);
  request_generation_ = histogram("vllm:request_generation_tokens", "Generation tokens of a request.", lengths);
  request_max_generation_ =
      histogram("vllm:request_max_num_generation_tokens", "Most generation tokens of a request's choices.", lengths);
  request_max_tokens_ = histogram("vllm:request_params_max_tokens", "max_tokens of a request.", lengths);
  prefill_computed_ =
      histogram("vllm:request_prefill_kv_computed_tokens", "Prompt tokens computed, without cached ones.", lengths);
  request_n_ = histogram("vllm:request_params_n", "n of a request.", {1, 2, 5, 10, 20});
  iteration_tokens_ = histogram("vllm:iteration_tokens_total", "Tokens per engine step.",
                                {engine::step_token_bounds.begin(), engine::step_token_bounds.end()});
  steps_by_tokens_.resize(engine::step_token_bounds.size() + 1);
  first_token_ = histogram("vllm:time_to_first_token_seconds", "Time to first token.", first_token_buckets);
  inter_token_ = histogram("vllm:inter_token_latency_seconds", "Time between tokens.", inter_token_buckets);
  per_token_ = histogram("vllm:request_time_per_output_token_seconds", "A request's mean time per output token.",
                         inter_token_buckets);
  per_token_alias_ = histogram("vllm:time_per_output_token_seconds", "Former name of inter_token_latency_seconds.",
                               inter_token_buckets);
  e2e_ = histogram("vllm:e2e_request_latency_seconds", "Time from arrival to the last token.", latency_buckets);
  queue_ = histogram("vllm:request_queue_time_seconds", "Time in the engine's queue.", latency_buckets);
  inference_ =
      histogram("vllm:request_inference_time_seconds", "Time from the first step to the last token.", latency_buckets);
  prefill_ =
      histogram("vllm:request_prefill_time_seconds", "Time from the first step to the first token.", latency_buckets);
  decode_ = histogram("vllm:request_decode_time_seconds", "Time from the first token to the last.", latency_buckets);
  step_seconds_.counter = &registry.counter("gristmill:engine_step_seconds", "Time in engine steps.", labels);
  forward_seconds_.counter =
      &registry.counter("gristmill:engine_forward_seconds",
                        "Of the time in engine steps, that of the forward pass; the rest is the host's.", labels);
  registry
      .gauge("vllm:cache_config_info", "The cache's configuration.",
             {{"block_size", cat(info.block_size)},
              {"cache_dtype", name_of(info.cache_dtype)},
              {"enable_prefix_caching", config.prefix_caching ? "True" : "False"},
              {"engine", "0"},
              {"gpu_memory_utilization", cat(config.memory_utilization)},
              {"kv_cache_memory_bytes", config.cache_bytes > 0 ? cat(config.cache_bytes) : "None"},
              {"num_gpu_blocks", cat(info.num_blocks)},
              {"num_gpu_blocks_override", config.num_blocks_override > 0 ? cat(config.num_blocks_override) : "None"}})
      .set(1);
}

void ServingMetrics::first_output(int64_t prompt_tokens, int64_t cached_tokens, double seconds_since_arrival) {
  first_token_->observe(seconds_since_arrival);
  recent_.emplace_back(static_cast<double>(prompt_tokens), static_cast<double>(cached_tokens));
  recent_prompt_ += recent_.back().first;
  recent_cached_ += recent_.back().second;
  if (recent_.size() > 1000) {
    recent_prompt_ -= recent_.front().first;
    recent_cached_ -= recent_.front().second;
    recent_.pop_front();
  }
}

void ServingMetrics::more_output(double seconds_since_last) {
  inter_token_->observe(seconds_since_last);
  per_token_alias_->observe(seconds_since_last);
}

void ServingMetrics::finished(const FinishedChoice& choice) {
  const auto found = success_.find(choice.reason);
  if (found != success_.end()) found->second->add();
  e2e_->observe(choice.end - choice.arrival);
  request_prompt_->observe(static_cast<double>(choice.prompt_tokens));
  request_generation_->observe(static_cast<double>(choice.generated_tokens));
  request_max_tokens_->observe(static_cast<double>(choice.max_tokens));
  if (choice.scheduled > 0) queue_->observe(choice.scheduled - choice.queued);
  if (choice.first_token <= 0) return;
  prefill_->observe(choice.first_token - choice.scheduled);
  inference_->observe(choice.last_token - choice.scheduled);
  prefill_computed_->observe(static_cast<double>(choice.prompt_tokens - choice.cached_tokens));
  const double decoding = choice.last_token - choice.first_token;
  decode_->observe(decoding);
  if (choice.generated_tokens > 1) per_token_->observe(decoding / static_cast<double>(choice.generated_tokens - 1));
}

void ServingMetrics::request_over(int32_t n, int64_t most_generated) {
  request_n_->observe(n);
  request_max_generation_->observe(static_cast<double>(most_generated));
}

void ServingMetrics::take(const engine::EngineStats& stats) {
  running_->set(stats.running);
  waiting_->set(stats.waiting);
  cache_usage_->set(stats.total_blocks > 0 ? static_cast<double>(stats.total_blocks - stats.free_blocks) /
                                                 static_cast<double>(stats.total_blocks)
                                           : 0);
  preemptions_.take(static_cast<double>(stats.preemptions));
  prefix_queries_.take(static_cast<double>(stats.prefix_queries));
  prefix_hits_.take(static_cast<double>(stats.prefix_hits));
  prefix_block_hits_.take(static_cast<double>(stats.prefix_block_hits));
  state_snapshots_->set(stats.state_snapshots);
  const double computed = computed_tokens_.take(static_cast<double>(stats.prompt_tokens));
  const double cached = cached_tokens_.take(static_cast<double>(stats.cached_prompt_tokens));
  prompt_tokens_->add(computed + cached);
  prompt_tokens_cached_->add(cached);
  computed_source_->add(computed);
  cached_source_->add(cached);
  std::vector<uint64_t> steps;
  for (size_t i = 0; i < steps_by_tokens_.size(); ++i) {
    steps.push_back(static_cast<uint64_t>(steps_by_tokens_[i].take(static_cast<double>(stats.steps_by_tokens[i]))));
  }
  step_seconds_.take(stats.step_seconds);
  forward_seconds_.take(stats.forward_seconds);
  iteration_tokens_->add(steps, step_tokens_.take(static_cast<double>(stats.step_tokens)));
}

}  // namespace gristmill::server
