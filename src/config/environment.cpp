#include "config/environment.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/topology.h"
#include "config/host_topology.h"
#include "config/human_number.h"

namespace gristmill::config {
namespace {

constexpr const char* read_variables[] = {"VLLM_LOGGING_LEVEL",
                                          "VLLM_API_KEY",
                                          "VLLM_CPU_KVCACHE_SPACE",
                                          "VLLM_SERVER_DEV_MODE",
                                          "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH",
                                          "VLLM_CPU_OMP_THREADS_BIND",
                                          "VLLM_CPU_NUM_OF_RESERVED_CPU"};

bool is_on(const std::optional<std::string>& value) {
  return value && (*value == "1" || *value == "true" || *value == "True");
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return text;
}

}  // namespace

LogLevel log_level_named(const std::string& source, const std::string& level) {
  const std::string name = lower(level);
  if (name == "debug" || name == "trace") return LogLevel::debug;
  if (name == "info") return LogLevel::info;
  if (name == "warning" || name == "warn") return LogLevel::warning;
  if (name == "error" || name == "critical") return LogLevel::error;
  throw Error(cat(source, " must be debug, info, warning or error, got \"", level, "\""));
}

std::optional<LogLevel> environment_log_level(const Lookup& lookup) {
  const std::optional<std::string> value = lookup("VLLM_LOGGING_LEVEL");
  if (!value || value->empty()) return {};
  return log_level_named("VLLM_LOGGING_LEVEL", *value);
}

std::string cache_folder(const Lookup& lookup) {
  const auto cache = lookup("XDG_CACHE_HOME"), home = lookup("HOME");
  // The specification tells to ignore relative paths.
  if (cache && cache->starts_with('/')) return *cache + "/gristmill";
  return home && !home->empty() ? *home + "/.cache/gristmill" : "";
}

std::string weight_cache_folder(const Lookup& lookup) {
  if (const auto folder = lookup("GRISTMILL_WEIGHT_CACHE_DIR"); folder && !folder->empty()) return *folder;
  const std::string cache = cache_folder(lookup);
  return cache.empty() ? "" : cache + "/weights";
}

void apply_environment(ServeConfig& config, const Lookup& lookup) {
  if (config.http.api_keys.empty()) {
    if (const auto key = lookup("VLLM_API_KEY"); key && !key->empty()) config.http.api_keys.push_back(*key);
  }
  if (config.engine.cache_bytes == 0) {
    // Whole GiB, as vLLM's CPU back end takes it; 0 means its own choice.
    if (const auto space = lookup("VLLM_CPU_KVCACHE_SPACE"); space && !space->empty()) {
      const int64_t gib = human_number("VLLM_CPU_KVCACHE_SPACE", *space);
      if (gib < 0 || gib > 1 << 20)
        throw Error(cat("VLLM_CPU_KVCACHE_SPACE must be a number of GiB, got \"", *space, "\""));
      config.engine.cache_bytes = gib << 30;
    }
  }
  config.engine.topology = host_topology(lookup);
  if (config.engine.threads == 0) {
    const auto own = lookup("GRISTMILL_THREADS");
    const auto omp = lookup("OMP_NUM_THREADS");
    if (own && !own->empty()) {
      const int64_t threads = human_number("GRISTMILL_THREADS", *own);
      if (threads < 1 || threads > 4096) throw Error(cat("GRISTMILL_THREADS must be between 1 and 4096, got ", *own));
      config.engine.threads = static_cast<int32_t>(threads);
    } else if (omp && omp->size() < 5 && std::atoi(omp->c_str()) > 1) {
      // Guides set it to 1 for engines whose work is elsewhere; here that would idle the machine, so it only caps.
      config.engine.threads =
          std::min<int32_t>(default_threads(config.engine.topology, lookup), std::atoi(omp->c_str()));
      LOG_INFO("OMP_NUM_THREADS=", *omp, ": taken as a cap, ", config.engine.threads, " threads compute");
    } else if (omp && *omp == "1") {
      LOG_INFO("OMP_NUM_THREADS=1: not taken as the number of compute threads; that is --threads");
    }
  }
  if (config.engine.threads == 0) config.engine.threads = default_threads(config.engine.topology, lookup);
  if (!config.weight_cache) {
    config.engine.weight_cache_dir.clear();
  } else if (config.engine.weight_cache_dir.empty()) {
    config.engine.weight_cache_dir = weight_cache_folder(lookup);
  }
  config.http.developer_mode = is_on(lookup("VLLM_SERVER_DEV_MODE"));
  config.survive_engine_death = is_on(lookup("VLLM_KEEP_ALIVE_ON_ENGINE_DEATH"));
}

Lookup process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (!value) return {};
    return std::string(value);
  };
}

std::vector<std::string> unread_variables(const char* const* environ) {
  std::vector<std::string> out;
  for (; environ && *environ; ++environ) {
    const std::string_view entry(*environ);
    const std::string name(entry.substr(0, entry.find('=')));
    if (!name.starts_with("VLLM_")) continue;
    if (std::none_of(std::begin(read_variables), std::end(read_variables),
                     [&](const char* each) { return name == each; })) {
      out.push_back(name);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace gristmill::config
