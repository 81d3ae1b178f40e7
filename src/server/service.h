#pragma once
#include <functional>
#include <memory>
#include <string>

#include "client/engine_client.h"
#include "config/serve_config.h"
#include "server/http/listener.h"
#include "server/served_model.h"

namespace gristmill::server {

/// The running server: the loop, HTTP, routes, signals and an orderly end.
///
/// SIGINT or SIGTERM drains: /health says 503, no request is taken any more, running ones go on for up to
/// http.shutdown_seconds and are then ended with finish_reason "abort". A second signal, or one before the model is
/// loaded, ends the process at once.
class Service {
 public:
  /// `config` and `client` must outlive it.
  Service(const config::ServeConfig& config, Listener listener, EngineClient& client);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Serves on this thread until the end; returns the process' exit status.
  int run();
  /// From now on requests are taken; `then` runs once that is so. Thread safe.
  void model_ready(
      std::shared_ptr<const ServedModel> model, const engine::EngineInfo& info, std::function<void()> then = [] {});
  /// Ends run() with this status. Thread safe.
  void stop(int status);
  /// Begins to drain, as SIGTERM does. Thread safe.
  void shut_down();
  const Listener& listener() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill::server
