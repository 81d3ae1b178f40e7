#pragma once
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_config.h"
#include "engine/messages.h"
#include "server/metrics/registry.h"

namespace gristmill::server {

/// What is known of a choice when it ends. Times are seconds on CLOCK_MONOTONIC; 0: it never got so far.
struct FinishedChoice {
  std::string reason;  ///< stop, length, abort, error
  double arrival = 0;
  double queued = 0;     ///< the engine took it
  double scheduled = 0;  ///< first part of a step
  double first_token = 0;
  double last_token = 0;
  double end = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t max_tokens = 0;
};

/// The series vLLM exports for a text generator, by its names, labels and buckets, so that its dashboards and
/// autoscalers read them. One thread.
class ServingMetrics {
 public:
  ServingMetrics(Registry& registry, const std::string& model_name, const engine::EngineInfo& info,
                 const engine::EngineConfig& config);

  void first_output(int64_t prompt_tokens, int64_t cached_tokens, double seconds_since_arrival);
  void more_output(double seconds_since_last);
  void generated(int64_t tokens) { generation_tokens_->add(static_cast<double>(tokens)); }
  void finished(const FinishedChoice& choice);
  /// A request's choices have all ended.
  void request_over(int32_t n, int64_t most_generated);
  /// Takes over the engine's own figures. Its totals start again from zero when it is restarted; ours go on.
  void take(const engine::EngineStats& stats);

  double prompt_tokens() const { return prompt_tokens_->value(); }
  double cached_tokens() const { return prompt_tokens_cached_->value(); }
  double generation_tokens() const { return generation_tokens_->value(); }
  /// Share of prompt tokens found in the prefix cache, over the last 1000 requests.
  double recent_hit_rate() const { return recent_prompt_ > 0 ? recent_cached_ / recent_prompt_ : 0; }

 private:
  /// A total of the engine's, carried over restarts.
  struct Carried {
    Counter* counter = nullptr;
    double last = 0;
    /// Adds to the counter, if there is one, and returns what was added.
    double take(double total);
  };

  Gauge *running_, *waiting_, *cache_usage_, *state_snapshots_;
  Counter *prompt_tokens_, *prompt_tokens_cached_, *generation_tokens_;
  Counter *computed_source_, *cached_source_;
  Carried preemptions_, prefix_queries_, prefix_hits_, prefix_block_hits_, computed_tokens_, cached_tokens_,
      step_tokens_;
  Carried step_seconds_, forward_seconds_;
  std::vector<Carried> steps_by_tokens_;
  std::map<std::string, Counter*> success_;
  Histogram *request_prompt_, *request_generation_, *request_max_generation_, *request_max_tokens_, *request_n_;
  Histogram *prefill_computed_, *iteration_tokens_;
  Histogram *first_token_, *inter_token_, *per_token_, *per_token_alias_;
  Histogram *e2e_, *queue_, *inference_, *prefill_, *decode_;
  std::deque<std::pair<double, double>> recent_;  // prompt and cached tokens of a request
  double recent_prompt_ = 0, recent_cached_ = 0;
};

/// HTTP series as the usual FastAPI instrumentation names them, and the process' own.
class HttpMetrics {
 public:
  explicit HttpMetrics(Registry& registry);
  /// `handler`: the route, or "none".
  void answered(const std::string& handler, const std::string& method, int status, uint64_t request_bytes,
                uint64_t response_bytes, double seconds);
  /// Reads /proc; called before printing.
  void refresh_process();

 private:
  Registry& registry_;
  Histogram* fine_duration_;
  Gauge *virtual_bytes_, *resident_bytes_, *start_time_, *open_files_, *max_files_;
  Counter* cpu_seconds_;
};

}  // namespace gristmill::server
