#include "cli/startup_lines.h"

#include <unistd.h>

#include <cstdio>

#include "base/log.h"
#include "server/app.h"

namespace gristmill::cli {
namespace {

constexpr double gib = 1024.0 * 1024 * 1024;

std::string decimals(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// A first request, to paste into a shell.
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
                    R"(","messages":[{"role":"user","content":"What is gravity?"}],"stream":true}')");
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

void log_address(const config::ServeConfig& config, const server::ServedModel& model, const engine::EngineInfo& info,
                 const server::Listener& listener, double init_seconds) {
  LOG_INFO("init engine (profile, create kv cache, warmup model) took ", decimals(init_seconds, 2), " seconds");
  LOG_INFO("Supported tasks: ['generate']");
  LOG_INFO("Starting vLLM server on ", listener.url());
  LOG_INFO("Available routes are:");
  for (const auto& [path, methods] : server::App::route_list()) LOG_INFO("Route: ", path, ", Methods: ", methods);
  if (config.http.host.empty() && config.http.uds.empty() && config.http.api_keys.empty()) {
    LOG_WARNING("anyone who reaches this machine can use this server: give --host 127.0.0.1 or --api-key");
  }
  const uint64_t tokens = static_cast<uint64_t>(info.num_blocks) * static_cast<uint64_t>(info.block_size);
  const std::string text =
      cat("\n  model    ", model.names.front(), " (", model.root, ")\n  compute  ", info.device,
          "\n  memory   weights ", bytes_text(info.weight_bytes), ", ", name_of(info.cache_dtype), " KV cache up to ",
          bytes_text(info.cache_bytes), " for ", grouped(tokens), " tokens, scratch ", bytes_text(info.scratch_bytes),
          "\n  address  ", listener.url(), "\n  try it   ", curl_line(config, model, listener), "\n\n");
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // nobody reads it
}

}  // namespace gristmill::cli
