#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "client/engine_client.h"
#include "config/serve_config.h"
#include "server/auth.h"
#include "server/cors.h"
#include "server/generation.h"
#include "server/http/server.h"
#include "server/metrics/serving_metrics.h"
#include "server/served_model.h"
#include "server/worker.h"

namespace gristmill::server {

/// The server's routes and the state they share. Everything on the loop, but for what says otherwise.
class App final : public HttpHandler, public GenerationHost {
 public:
  /// `config` and `client` must outlive it. Until model_ready() requests are told to come back (503).
  App(EventLoop& loop, const config::ServeConfig& config, EngineClient& client);
  ~App() override;

  void model_ready(std::shared_ptr<const ServedModel> model, const engine::EngineInfo& info);
  /// No request is taken any more; those that run go on.
  void drain() { draining_ = true; }
  bool draining() const { return draining_; }
  /// Ends all requests with finish_reason "abort".
  void abort_all();
  size_t running() const { return generations_.size(); }
  /// Takes the engine's latest figures into the metrics, and watches its health. Called every second.
  void tick();
  /// The line that dashboards read; every `seconds`.
  void log_stats(double seconds);
  /// Paths and their methods ("GET, POST"), for the start-up lines.
  static std::vector<std::pair<std::string, std::string>> route_list();

  // HttpHandler
  std::optional<Response> refuse(const Request& request) override;
  void handle(std::shared_ptr<Exchange> exchange) override;
  void answered(const Request& request, int status, uint64_t body_bytes, uint64_t answer_bytes,
                double seconds) override;
  Response broken(int status, const std::string& why) override;

 private:
  using Handler = void (App::*)(const std::shared_ptr<Exchange>&);
  struct Route {
    const char* method;
    const char* path;
    Handler handler;
    bool json = false;       ///< takes a JSON body
    bool developer = false;  ///< only with VLLM_SERVER_DEV_MODE=1
  };
  static const std::vector<Route>& routes();
  const Route* find(const Request& request, const std::string& path, std::string& allowed) const;
  std::string route_path(const Request& request) const;

  void models(const std::shared_ptr<Exchange>& exchange);
  void health(const std::shared_ptr<Exchange>& exchange);
  void version(const std::shared_ptr<Exchange>& exchange);
  void metrics_text(const std::shared_ptr<Exchange>& exchange);
  void load(const std::shared_ptr<Exchange>& exchange);
  void chat_completions(const std::shared_ptr<Exchange>& exchange);
  void completions(const std::shared_ptr<Exchange>& exchange);
  void tokenize(const std::shared_ptr<Exchange>& exchange);
  void detokenize(const std::shared_ptr<Exchange>& exchange);
  void reset_prefix_cache(const std::shared_ptr<Exchange>& exchange);

  /// Why no work is taken now; throws ApiError (503).
  void require_ready() const;
  void generate(const std::shared_ptr<Exchange>& exchange, bool chat);
  void start_job(const std::shared_ptr<Exchange>& exchange, openai::Job job, double arrival);
  /// Runs `work` here, or on the worker when the request is long, then `then` here with its result; ApiErrors answer
  /// the exchange.
  template <class Result>
  void offload(const std::shared_ptr<Exchange>& exchange, std::function<Result()> work,
               std::function<void(Result)> then);
  std::string request_id(const Request& request, const std::string& field) const;

  // GenerationHost
  EngineClient& client() override { return client_; }
  const std::shared_ptr<OutputInbox>& inbox() override { return inbox_; }
  ServingMetrics& metrics() override { return *serving_metrics_; }
  void admitted(Generation& generation) override;
  void ended(Generation& generation) override;

  EventLoop& loop_;
  const config::ServeConfig& config_;
  EngineClient& client_;
  Auth auth_;
  Cors cors_;
  std::shared_ptr<OutputInbox> inbox_;
  Registry registry_;         // what /metrics prints
  Registry silent_registry_;  // engine metrics under --disable-log-stats
  HttpMetrics http_metrics_;
  std::unique_ptr<ServingMetrics> serving_metrics_;
  std::shared_ptr<const ServedModel> model_;
  std::map<Generation*, std::shared_ptr<Generation>> generations_;
  int64_t waiting_requests_ = 0;
  size_t waiting_bytes_ = 0;
  bool draining_ = false;
  EngineHealth last_health_ = EngineHealth::starting;
  struct {
    double prompt = 0, generated = 0;
    bool idle = true;
  } logged_;
  Worker worker_;  // last: its tasks use the rest
};

}  // namespace gristmill::server
