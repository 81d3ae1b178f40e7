#include "server/app.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/log.h"
#include "server/api_error.h"

namespace gristmill::server {
namespace {

/// A path as it may stand in a log: one line, no terminal controls.
std::string loggable(std::string_view path) {
  std::string out = shorten(path);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return out;
}

}  // namespace

App::App(EventLoop& loop, const config::ServeConfig& config, EngineClient& client)
    : loop_(loop),
      config_(config),
      client_(client),
      auth_(config.http.api_keys, config.http.api_key_guards_v1_only),
      cors_(config.http),
      inbox_(std::make_shared<OutputInbox>(loop)),
      http_metrics_(registry_) {}

App::~App() {
  inbox_->close();
}

void App::model_ready(std::shared_ptr<const ServedModel> model, const engine::EngineInfo& info) {
  model_ = std::move(model);
  serving_metrics_ = std::make_unique<ServingMetrics>(config_.log.stats ? registry_ : silent_registry_,
                                                      model_->names.front(), info, config_.engine);
  last_health_ = EngineHealth::ready;
}

void App::abort_all() {
  const auto all = generations_;
  for (const auto& each : all) each.second->abort();
}

void App::admitted(Generation& generation) {
  --waiting_requests_;
  waiting_bytes_ -= generation.prompt_bytes();
}

void App::ended(Generation& generation) {
  if (generation.waiting()) admitted(generation);
  generations_.erase(&generation);
}

std::string App::route_path(const Request& request) const {
  const std::string& root = config_.http.root_path;
  if (!root.empty() && request.path.starts_with(root) &&
      (request.path.size() == root.size() || root.back() == '/' || request.path[root.size()] == '/')) {
    const std::string rest = request.path.substr(root.back() == '/' ? root.size() - 1 : root.size());
    return rest.empty() ? "/" : rest;
  }
  return request.path;
}

const App::Route* App::find(const Request& request, const std::string& path, std::string& allowed) const {
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  for (const Route& route : routes()) {
    if (path != route.path || (route.developer && !config_.http.developer_mode)) continue;
    if (method == route.method) return &route;
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  }
  return nullptr;
}

std::optional<Response> App::refuse(const Request& request) {
  const std::string path = route_path(request);
  std::optional<Response> refusal = auth_.refuse(request, path);
  if (!refusal && request.method != "OPTIONS") {
    std::string allowed;
    const Route* route = find(request, path, allowed);
    if (!route && allowed.empty()) {
      refusal = plain_error(404);
    } else if (!route) {
      refusal = plain_error(405);
      refusal->set("Allow", allowed);
    } else if (route->json) {
      const std::string_view type = request.header("content-type");
      std::string media(type.substr(0, type.find(';')));
      std::transform(media.begin(), media.end(), media.begin(),
                     [](char c) { return static_cast<char>(std::tolower(c)); });
      while (!media.empty() && media.back() == ' ') media.pop_back();
      if (media != "application/json") {
        refusal = error_response(schema_error("Unsupported Media Type: Only 'application/json' is allowed"));
      } else if (draining_) {
        refusal = error_response(unavailable("the server is shutting down"));
        refusal->close = true;
      }
    }
  }
  if (refusal) {
    for (auto& header : cors_.headers(request)) refusal->headers.push_back(std::move(header));
  }
  return refusal;
}

void App::handle(std::shared_ptr<Exchange> exchange) {
  Request& request = exchange->request();
  if (std::optional<Response> preflight = cors_.preflight(request)) {
    exchange->respond(std::move(*preflight));
    return;
  }
  for (auto& [name, value] : cors_.headers(request)) exchange->add_header(std::move(name), std::move(value));
  std::string allowed;
  const Route* route = find(request, route_path(request), allowed);
  if (!route) {  // only OPTIONS comes here: the rest was refused
    Response response;
    response.status = 204;
    response.set("Allow", allowed.empty() ? "GET, HEAD, POST, OPTIONS" : allowed + ", OPTIONS");
    exchange->respond(std::move(response));
    return;
  }
  if (config_.http.request_id_headers) exchange->add_header("X-Request-Id", request_id(request, {}));
  try {
    (this->*route->handler)(exchange);
  } catch (const ApiError& error) {
    exchange->respond(error_response(error));
  } catch (const std::exception& error) {
    LOG_ERROR(request.method, " ", loggable(request.path), ": ", error.what());
    exchange->respond(error_response(ApiError(500, "InternalServerError", error.what())));
  }
}

void App::answered(const Request& request, int status, uint64_t body_bytes, uint64_t answer_bytes, double seconds) {
  const std::string path = route_path(request);
  std::string allowed;
  const bool known = find(request, path, allowed) != nullptr || !allowed.empty();
  static const std::set<std::string> uncounted = {"/metrics", "/health", "/load", "/ping", "/version", "/server_info"};
  if (!uncounted.contains(path) && !request.method.empty()) {
    static const std::set<std::string> methods = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
    http_metrics_.answered(known ? path : "none", methods.contains(request.method) ? request.method : "OTHER", status,
                           body_bytes, answer_bytes, seconds);
  }
  if (!config_.http.access_log) return;
  const auto& skips = config_.http.access_log_skips;
  if (std::find(skips.begin(), skips.end(), path) != skips.end()) return;
  LOG_INFO(request.peer.empty() ? "-" : request.peer, " - \"", request.method.empty() ? "-" : request.method, " ",
           loggable(request.path), " HTTP/", request.version / 10, ".", request.version % 10, "\" ", status, " ",
           status == 499 ? std::string_view("Client Closed Request") : reason_phrase(status));
}

Response App::broken(int status, const std::string& why) {
  return plain_error(status, why);
}

void App::tick() {
  if (serving_metrics_) serving_metrics_->take(client_.stats());
  const EngineHealth now = client_.health();
  if (now == last_health_) return;
  if (now == EngineHealth::ready) {
    if (model_) LOG_INFO("the engine is ready again");
  } else if (model_) {
    LOG_WARNING("the engine is not ready: ", client_.health_detail());
  }
  last_health_ = now;
}

void App::log_stats(double seconds) {
  if (!serving_metrics_ || !config_.log.stats) return;
  const engine::EngineStats stats = client_.stats();
  serving_metrics_->take(stats);
  const double prompt = serving_metrics_->prompt_tokens() - serving_metrics_->cached_tokens();
  const double generated = serving_metrics_->generation_tokens();
  const double prompt_rate = (prompt - logged_.prompt) / seconds;
  const double generated_rate = (generated - logged_.generated) / seconds;
  const double used =
      stats.total_blocks > 0 ? 100.0 * (stats.total_blocks - stats.free_blocks) / stats.total_blocks : 0;
  char line[512];
  char preemptions[48] = "";
  if (stats.preemptions > 0) {
    std::snprintf(preemptions, sizeof preemptions, "Preemptions: %llu, ",
                  static_cast<unsigned long long>(stats.preemptions));
  }
  std::snprintf(
      line, sizeof line,
      "Engine 000: Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s, Running: %d reqs, "
      "Waiting: %d reqs, %sGPU KV cache usage: %.1f%%, Prefix cache hit rate: %.1f%%",
      prompt_rate, generated_rate, stats.running, stats.waiting, preemptions, used,
      100 * serving_metrics_->recent_hit_rate());
  const bool idle = prompt_rate == 0 && generated_rate == 0 && stats.running == 0 && stats.waiting == 0;
  // The first idle line still tells that work has ended.
  if (idle && logged_.idle) {
    LOG_DEBUG(line);
  } else {
    LOG_INFO(line);
  }
  logged_ = {prompt, generated, idle};
}

}  // namespace gristmill::server
