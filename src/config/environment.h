#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "config/serve_config.h"

namespace gristmill::config {

/// The value of an environment variable.
using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

/// Takes over what the environment says where no flag did, and the CPUs that may be used. Throws Error naming the
/// variable.
void apply_environment(ServeConfig& config, const Lookup& lookup);
/// VLLM_LOGGING_LEVEL. Throws Error.
std::optional<LogLevel> environment_log_level(const Lookup& lookup);
LogLevel log_level_named(const std::string& source, const std::string& level);

/// ${XDG_CACHE_HOME:-$HOME/.cache}/gristmill, or "" without a home folder.
std::string cache_folder(const Lookup& lookup);
/// Where packed weights are kept unless a flag says otherwise: GRISTMILL_WEIGHT_CACHE_DIR, or a part of cache_folder().
std::string weight_cache_folder(const Lookup& lookup);

/// The variables of this process.
Lookup process_environment();
/// Names in `environ` that begin with VLLM_ and that nothing here reads.
std::vector<std::string> unread_variables(const char* const* environ);

}  // namespace gristmill::config
