#pragma once
#include <memory>

#include "config/serve_config.h"
#include "server/served_model.h"

namespace gristmill::server {

/// Reads what the front needs of the model's file: tokenizer and chat template. The engine's figures (max_model_len,
/// vocabulary) are left at 0. Throws Error.
std::shared_ptr<ServedModel> load_served_model(const config::ServeConfig& config);

}  // namespace gristmill::server
