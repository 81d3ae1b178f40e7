#include <sys/random.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "server/api_error.h"
#include "server/app.h"
#include "server/json_request.h"
#include "server/json_writer.h"
#include "server/openai/tokenize.h"
#include "server/version.h"

namespace gristmill::server {
namespace {

/// Requests up to this size are prepared on the loop: that takes less time than a change of threads is worth.
constexpr size_t short_request = 8 << 10;
/// Prompts that wait for the engine may take so much memory together.
constexpr size_t max_waiting_bytes = size_t{1} << 30;

std::string random_hex() {
  unsigned char bytes[16];
  size_t got = 0;
  while (got < sizeof bytes) {
    const ssize_t n = ::getrandom(bytes + got, sizeof bytes - got, 0);
    if (n > 0) got += static_cast<size_t>(n);
  }
  static const char* const digits = "0123456789abcdef";
  std::string out;
  for (const unsigned char byte : bytes) {
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  return out;
}

/// Ids that clients choose come back in bodies and headers: visible ASCII, of a bounded length.
bool is_usable_id(std::string_view id) {
  if (id.empty() || id.size() > 256) return false;
  for (const char c : id) {
    if (c <= 0x20 || c >= 0x7f) return false;
  }
  return true;
}

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string header_text(const std::vector<std::string>& warnings) {
  std::string text;
  for (const std::string& warning : warnings) {
    // RFC 7234 section 5.5: code, agent, quoted text.
    text += text.empty() ? "199 gristmill \"" : ", 199 gristmill \"";
    for (const char c : warning) {
      if (c == '"' || c == '\\') text += '\\';
      text += c >= 0x20 && c < 0x7f ? c : '?';
    }
    text += '"';
  }
  return text;
}

}  // namespace

const std::vector<App::Route>& App::routes() {
  static const std::vector<Route> table = {
      {"GET", "/v1/models", &App::models},
      {"POST", "/v1/chat/completions", &App::chat_completions, true},
      {"POST", "/v1/completions", &App::completions, true},
      {"POST", "/tokenize", &App::tokenize, true},
      {"POST", "/detokenize", &App::detokenize, true},
      {"GET", "/health", &App::health},
      {"GET", "/ping", &App::health},
      {"POST", "/ping", &App::health},
      {"GET", "/version", &App::version},
      {"GET", "/metrics", &App::metrics_text},
      {"GET", "/load", &App::load},
      {"POST", "/reset_prefix_cache", &App::reset_prefix_cache, false, true},
  };
  return table;
}

std::vector<std::pair<std::string, std::string>> App::route_list() {
  std::vector<std::pair<std::string, std::string>> out;
  for (const Route& route : routes()) {
    if (route.developer) continue;
    if (!out.empty() && out.back().first == route.path) {
      out.back().second += std::string(", ") + route.method;
    } else {
      out.emplace_back(route.path, route.method);
    }
  }
  return out;
}

void App::require_ready() const {
  if (draining_) throw unavailable("the server is shutting down");
  if (!model_) throw unavailable("the model is still loading");
  if (client_.health() != EngineHealth::ready) {
    throw unavailable(cat("the engine is not ready: ", client_.health_detail()));
  }
}

void App::health(const std::shared_ptr<Exchange>& exchange) {
  Response response;
  response.content_type.clear();
  if (draining_ || !model_ || client_.health() != EngineHealth::ready) response.status = 503;
  exchange->respond(std::move(response));
}

void App::version(const std::shared_ptr<Exchange>& exchange) {
  Response response;
  JsonWriter(response.body)
      .begin_object()
      .key("version")
      .string(api_version)
      .key("engine")
      .string(cat("gristmill ", program_version))
      .end_object();
  exchange->respond(std::move(response));
}

void App::metrics_text(const std::shared_ptr<Exchange>& exchange) {
  http_metrics_.refresh_process();
  if (serving_metrics_) serving_metrics_->take(client_.stats());
  Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = registry_.text();
  exchange->respond(std::move(response));
}

void App::load(const std::shared_ptr<Exchange>& exchange) {
  Response response;
  const auto count = config_.http.load_tracking ? static_cast<int64_t>(generations_.size()) : 0;
  JsonWriter(response.body).begin_object().key("server_load").integer(count).end_object();
  exchange->respond(std::move(response));
}

void App::models(const std::shared_ptr<Exchange>& exchange) {
  if (!model_) throw unavailable("the model is still loading");
  Response response;
  JsonWriter json(response.body);
  json.begin_object().key("object").string("list").key("data").begin_array();
  for (const std::string& name : model_->names) {
    json.begin_object().key("id").string(name).key("object").string("model").key("created").integer(unix_seconds());
    json.key("owned_by").string("vllm").key("root").string(model_->root).key("parent").null();
    json.key("max_model_len").integer(model_->max_model_len).key("permission").begin_array().begin_object();
    json.key("id").string("modelperm-" + random_hex()).key("object").string("model_permission");
    json.key("created").integer(unix_seconds()).key("allow_create_engine").boolean(false);
    json.key("allow_sampling").boolean(true).key("allow_logprobs").boolean(true);
    json.key("allow_search_indices")
        .boolean(false)
        .key("allow_view")
        .boolean(true)
        .key("allow_fine_tuning")
        .boolean(false);
    json.key("organization").string("*").key("group").null().key("is_blocking").boolean(false);
    json.end_object().end_array().end_object();
  }
  json.end_array().end_object();
  exchange->respond(std::move(response));
}

void App::reset_prefix_cache(const std::shared_ptr<Exchange>& exchange) {
  require_ready();
  Response response;
  JsonWriter(response.body).begin_object().key("success").boolean(client_.reset_prefix_cache()).end_object();
  exchange->respond(std::move(response));
}

std::string App::request_id(const Request& request, const std::string& field) const {
  const std::string_view header = request.header("x-request-id");
  if (is_usable_id(header)) return std::string(header);
  return is_usable_id(field) ? field : random_hex();
}

template <class Result>
void App::offload(const std::shared_ptr<Exchange>& exchange, std::function<Result()> work,
                  std::function<void(Result)> then) {
  if (exchange->request().body.size() <= short_request) {
    then(work());
    return;
  }
  // The exchange must not be destroyed over there: it comes back with the result.
  worker_.run(
      [this, exchange = std::shared_ptr<Exchange>(exchange), work = std::move(work), then = std::move(then)]() mutable {
        std::shared_ptr<Result> result;
        std::optional<ApiError> failure;
        try {
          result = std::make_shared<Result>(work());
        } catch (const ApiError& error) {
          failure = error;
        } catch (const std::exception& error) {
          failure = ApiError(500, "InternalServerError", error.what());
        }
        // The exchange belongs to the loop: it goes back there whatever happens.
        loop_.post([exchange = std::move(exchange), result, failure, then = std::move(then)] {
          if (exchange->gone()) return;
          try {
            if (failure) throw ApiError(*failure);
            then(std::move(*result));
          } catch (const ApiError& error) {
            exchange->respond(error_response(error));
          } catch (const std::exception& error) {
            exchange->respond(error_response(ApiError(500, "InternalServerError", error.what())));
          }
        });
      });
}

void App::generate(const std::shared_ptr<Exchange>& exchange, bool chat) {
  require_ready();
  const double arrival = monotonic_seconds();
  const auto model = model_;
  // The body is read by the worker while the loop leaves the exchange alone.
  const std::string& body = exchange->request().body;
  offload<openai::Job>(
      exchange,
      [this, chat, model, &body] {
        const boost::json::object parsed = parse_json_object(body);
        return chat ? openai::prepare_chat(openai::parse_chat_request(parsed), *model, config_.api)
                    : openai::prepare_completion(openai::parse_completion_request(parsed), *model, config_.api);
      },
      [this, exchange, arrival](openai::Job job) { start_job(exchange, std::move(job), arrival); });
}

void App::start_job(const std::shared_ptr<Exchange>& exchange, openai::Job job, double arrival) {
  require_ready();
  const int64_t most = config_.api.max_queued_requests;
  // A request counts as waiting until its first token, so that one must be let through.
  if (most >= 0 && waiting_requests_ >= std::max<int64_t>(most, 1)) {
    throw unavailable(
        cat("the queue is full: ", waiting_requests_, " requests wait (--max-queued-requests ", most, ")"));
  }
  const std::string base = request_id(exchange->request(), job.request_id);
  if (!job.warnings.empty()) exchange->add_header("Warning", header_text(job.warnings));
  // The text is not needed any more, and may be long.
  std::string().swap(exchange->request().body);
  const std::string id = (job.chat ? "chatcmpl-" : "cmpl-") + base;
  auto generation = std::make_shared<Generation>(*this, exchange, std::move(job), model_, id, arrival);
  if (waiting_bytes_ + generation->prompt_bytes() > max_waiting_bytes) {
    throw unavailable("the queue is full: too many prompt tokens wait");
  }
  if (config_.log.requests) LOG_INFO("Received request ", id, ": ", generation->describe());
  ++waiting_requests_;
  waiting_bytes_ += generation->prompt_bytes();
  generations_.emplace(generation.get(), generation);
  generation->start();
}

void App::chat_completions(const std::shared_ptr<Exchange>& exchange) {
  generate(exchange, true);
}
void App::completions(const std::shared_ptr<Exchange>& exchange) {
  generate(exchange, false);
}

void App::tokenize(const std::shared_ptr<Exchange>& exchange) {
  require_ready();
  const auto model = model_;
  const std::string& body = exchange->request().body;
  offload<std::string>(
      exchange, [this, model, &body] { return openai::tokenize(parse_json_object(body), *model, config_.api); },
      [exchange](std::string answer) {
        Response response;
        response.body = std::move(answer);
        exchange->respond(std::move(response));
      });
}

void App::detokenize(const std::shared_ptr<Exchange>& exchange) {
  require_ready();
  const auto model = model_;
  const std::string& body = exchange->request().body;
  offload<std::string>(
      exchange, [model, &body] { return openai::detokenize(parse_json_object(body), *model); },
      [exchange](std::string answer) {
        Response response;
        response.body = std::move(answer);
        exchange->respond(std::move(response));
      });
}

}  // namespace gristmill::server
