#pragma once
#include <string>

#include "config/serve_config.h"
#include "engine/messages.h"
#include "server/http/listener.h"
#include "server/served_model.h"

namespace gristmill::cli {

/// Tells that the server answers: the lines that scripts look for in the log (those about the model come from the
/// engine), and for people where it is, what it takes, and a first request.
void log_address(const config::ServeConfig& config, const server::ServedModel& model, const engine::EngineInfo& info,
                 const server::Listener& listener, double init_seconds);

/// "1.25 GiB", "94.3 MiB".
std::string bytes_text(uint64_t bytes);
/// "613,024"
std::string grouped(uint64_t number);

}  // namespace gristmill::cli
