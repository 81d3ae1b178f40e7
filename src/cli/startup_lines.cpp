#include "cli/startup_lines.h"

#include <unistd.h>

#include <cstdio>

#include "base/log.h"
#include "server/app.h"

namespace gristmill::cli {
namespace {

constexpr double gib = 1024.0 * 1024 * 1024;
constexpr int32_t default_batched_tokens = 2048;

std::string decimals(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// For a shell's double quotes inside single ones.
std::string curl_line(const config::ServeConfig& config, const server::ServedModel& model,
                      const server::Listener& listener) {
  std::string url = listener.url();
  std::string line = "curl -N ";
  if (!config.http.uds.empty()) {
    line += cat("--unix-socket ", config.http.uds, " ");
    url = "http://localhost";
  }
  // What is bound to all interfaces is reached here by the loopback one.
  const size_t any = url.find("//0.0.0.0:");
  if (any != std::string::npos) url.replace(any + 2, 7, "127.0.0.1");
  line += cat(url, "/v1/chat/completions -H 'Content-Type: application/json'");
  if (!config.http.api_keys.empty()) line += " -H \"Authorization: Bearer $API_KEY\"";
  std::string name;
  for (const char c : model.names.front()) name += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return line + cat(R"( -d '{"model":")", name,
                    R"(","messages":[{"role":"user","content":"What is the capital of France?"}],"stream":true}')");
}

}  // namespace

std::string bytes_text(uint64_t bytes) {
  const double value = static_cast<double>(bytes);
  return value >= gib ? decimals(value / gib, 2) + " GiB" : decimals(value / gib * 1024, 1) + " MiB";
}

std::string grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, ",");
  }
  return text;
}

void log_engine_ready(const config::ServeConfig& config, const server::ServedModel& model,
                      const engine::EngineInfo& info, double init_seconds) {
  const uint64_t tokens = static_cast<uint64_t>(info.num_blocks) * static_cast<uint64_t>(info.block_size);
  LOG_INFO("Using max model len ", model.max_model_len);
  if (config.engine.chunked_prefill) {
    const int32_t batched = config.engine.max_num_batched_tokens;
    LOG_INFO("Chunked prefill is enabled with max_num_batched_tokens=", batched > 0 ? batched : default_batched_tokens,
             ".");
  }
  LOG_INFO("Asynchronous scheduling is ", config.engine.async_scheduling ? "enabled." : "disabled.");
  LOG_INFO("Loading weights took ", decimals(info.load_seconds, 2), " seconds");
  LOG_INFO("Model loading took ", decimals(static_cast<double>(info.weight_bytes) / gib, 4), " GiB memory and ",
           decimals(info.load_seconds, 2), " seconds");
  LOG_INFO("Available KV cache memory: ", decimals(static_cast<double>(info.cache_bytes) / gib, 2), " GiB");
  LOG_INFO("GPU KV cache size: ", grouped(tokens), " tokens (KV cache size: ", grouped(tokens), " tokens)");
  LOG_INFO("Maximum concurrency for ", grouped(static_cast<uint64_t>(model.max_model_len)), " tokens per request: ",
           decimals(model.max_model_len > 0 ? static_cast<double>(tokens) / model.max_model_len : 0, 2), "x");
  LOG_INFO("init engine (profile, create kv cache, warmup model) took ", decimals(init_seconds, 2), " seconds");
  LOG_INFO("Supported tasks: ['generate']");
}

void log_address(const config::ServeConfig& config, const server::ServedModel& model, const engine::EngineInfo& info,
                 const server::Listener& listener) {
  LOG_INFO("Starting vLLM server on ", listener.url());
  LOG_INFO("Available routes are:");
  for (const std::string& route : server::App::route_list()) {
    const size_t space = route.find(' ');
    LOG_INFO("Route: ", route.substr(space + 1), ", Methods: ", route.substr(0, space));
  }
  if (config.http.host.empty() && config.http.uds.empty() && config.http.api_keys.empty()) {
    LOG_WARNING("anyone who reaches this machine can use this server: give --host 127.0.0.1 or --api-key");
  }
  const uint64_t tokens = static_cast<uint64_t>(info.num_blocks) * static_cast<uint64_t>(info.block_size);
  const std::string text =
      cat("\n  model    ", model.names.front(), " (", model.root, ")\n  compute  ", info.device,
          "\n  memory   weights ", bytes_text(info.weight_bytes), ", KV cache up to ", bytes_text(info.cache_bytes),
          " for ", grouped(tokens), " tokens, scratch ", bytes_text(info.scratch_bytes), "\n  address  ",
          listener.url(), "\n  try it   ", curl_line(config, model, listener), "\n\n");
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // nobody reads it
}

}  // namespace gristmill::cli
