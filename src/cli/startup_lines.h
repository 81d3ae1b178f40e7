#pragma once
#include <string>

#include "config/serve_config.h"
#include "engine/messages.h"
#include "server/http/listener.h"
#include "server/served_model.h"

namespace gristmill::cli {

/// The lines that scripts look for in the log once the engine is ready, and the plan, address and first request that
/// people look for.
void log_engine_ready(const config::ServeConfig& config, const server::ServedModel& model,
                      const engine::EngineInfo& info, double init_seconds);
void log_address(const config::ServeConfig& config, const server::ServedModel& model, const engine::EngineInfo& info,
                 const server::Listener& listener);

/// "1.25 GiB", "94.3 MiB".
std::string bytes_text(uint64_t bytes);
/// "613,024"
std::string grouped(uint64_t number);

}  // namespace gristmill::cli
