#include "server/service.h"

#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "server/app.h"
#include "server/http/event_loop.h"
#include "server/http/server.h"

namespace gristmill::server {
namespace {

constexpr double stats_interval = 10;
constexpr double drain_poll = 0.02;
constexpr double flush_seconds = 2;  // for aborted answers to reach their clients

HttpLimits limits_of(const config::HttpConfig& config) {
  HttpLimits limits;
  limits.header_bytes = config.max_header_bytes;
  limits.header_count = config.max_header_count;
  limits.body_bytes = config.max_body_bytes;
  return limits;
}

/// Every connection is a descriptor; the usual soft limit of 1024 is for programs that use select().
void raise_file_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == files.rlim_max) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

struct Service::Impl {
  Impl(const config::ServeConfig& chosen, Listener listener, EngineClient& engine)
      : config(chosen),
        client(engine),
        app(loop, chosen, engine),
        http(loop, std::move(listener), limits_of(chosen.http), app) {}

  void on_signal(int signal) {
    if (!ready || app.draining()) std::_Exit(128 + signal);
    shut_down();
  }

  void shut_down() {
    if (app.draining()) return;
    LOG_INFO("Shutting down: ", app.running(), " requests run; waiting up to ", config.http.shutdown_seconds,
             " s for them (a second signal ends at once)");
    app.drain();
    http.drain();
    drain_until = monotonic_seconds() + config.http.shutdown_seconds;
    poll_drain();
  }

  void poll_drain() {
    if (app.running() == 0 && http.quiet()) {
      LOG_INFO("Shutdown complete.");
      loop.stop();
      return;
    }
    const double now = monotonic_seconds();
    if (now >= drain_until && !aborted) {
      aborted = true;
      LOG_INFO("Aborting ", app.running(), " requests that still run");
      app.abort_all();
    }
    if (now >= drain_until + flush_seconds) {
      loop.stop();
      return;
    }
    loop.after(drain_poll, [this] { poll_drain(); });
  }

  void tick() {
    app.tick();
    if (ready && !app.draining() && !config.survive_engine_death && client.health() == EngineHealth::dead) {
      LOG_ERROR("the engine is gone for good: ", client.health_detail());
      status = 1;
      end_after_death();
      return;
    }
    loop.after(1, [this] { tick(); });
  }

  /// Answers that tell of the failure are still delivered.
  void end_after_death() {
    app.drain();
    http.drain();
    drain_until = monotonic_seconds();
    poll_drain();
  }

  void log_stats() {
    app.log_stats(stats_interval);
    loop.after(stats_interval, [this] { log_stats(); });
  }

  const config::ServeConfig& config;
  EngineClient& client;
  EventLoop loop;
  App app;
  HttpServer http;
  bool ready = false;
  bool aborted = false;
  double drain_until = 0;
  int status = 0;
};

Service::Service(const config::ServeConfig& config, Listener listener, EngineClient& client)
    : impl_(std::make_unique<Impl>(config, std::move(listener), client)) {
  raise_file_limit();
  std::signal(SIGPIPE, SIG_IGN);
  impl_->loop.on_signals({SIGINT, SIGTERM}, [impl = impl_.get()](int signal) { impl->on_signal(signal); });
  impl_->http.start();
}

Service::~Service() = default;

int Service::run() {
  impl_->tick();
  impl_->loop.after(stats_interval, [impl = impl_.get()] { impl->log_stats(); });
  impl_->loop.run();
  return impl_->status;
}

void Service::model_ready(std::shared_ptr<const ServedModel> model, const engine::EngineInfo& info,
                          std::function<void()> then) {
  impl_->loop.post([impl = impl_.get(), model = std::move(model), info, then = std::move(then)] {
    impl->app.model_ready(model, info);
    impl->ready = true;
    then();
  });
}

void Service::stop(int status) {
  impl_->loop.post([impl = impl_.get(), status] {
    impl->status = status;
    impl->loop.stop();
  });
}

void Service::shut_down() {
  impl_->loop.post([impl = impl_.get()] { impl->shut_down(); });
}

const Listener& Service::listener() const {
  return impl_->http.listener();
}

}  // namespace gristmill::server
