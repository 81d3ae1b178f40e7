#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine_config.h"

namespace gristmill::config {

/// Where and how to listen, and what one client may do.
struct HttpConfig {
  std::string host;  ///< empty: all interfaces
  uint16_t port = 8000;
  std::string uds;  ///< path of a UNIX socket, in place of host and port
  std::vector<std::string> api_keys;
  bool api_key_guards_v1_only = false;
  std::string root_path;  ///< a prefix that a proxy leaves in front of every path
  std::vector<std::string> allowed_origins{"*"};
  std::vector<std::string> allowed_methods{"*"};
  std::vector<std::string> allowed_headers{"*"};
  bool allow_credentials = false;
  size_t max_header_bytes = 64 << 10;
  size_t max_header_count = 256;
  size_t max_body_bytes = 64 << 20;
  double shutdown_seconds = 30;  ///< how long SIGTERM lets running requests go on
  bool access_log = true;
  std::vector<std::string> access_log_skips;  ///< paths without a line
  bool request_id_headers = false;
  bool load_tracking = false;
  bool developer_mode = false;  ///< VLLM_SERVER_DEV_MODE=1
};

/// What the operator allows and wants of answers.
struct ApiPolicy {
  int64_t max_logprobs = 20;  ///< -1: no limit
  bool return_tokens_as_token_ids = false;
  std::string response_role = "assistant";
  bool trust_request_chat_template = false;
  bool parse_message_control_tokens = true;  ///< control tokens that messages spell are taken as such
  bool exclude_tools_when_tool_choice_none = false;
  bool prompt_tokens_details = false;
  bool force_include_usage = false;
  bool strict_vllm = false;  ///< vLLM's exact bodies, also where official clients choke on them
  int32_t stream_interval = 1;
  int64_t max_queued_requests = -1;  ///< -1: no limit on their number
};

/// How the model is presented.
struct ModelConfig {
  std::vector<std::string> served_names;  ///< empty: the model's path
  std::string chat_template;              ///< a path, or the text itself; empty: the model's own
  std::string content_format = "auto";    ///< auto, string, openai
  std::string default_template_kwargs;    ///< JSON object or empty
  std::string generation_defaults;        ///< JSON object or empty
  std::string recommended_sampling;       ///< JSON object or empty: stands in for a generation_config.json
  bool use_generation_config = true;      ///< --generation-config auto: the model folder's sampling values are defaults
};

struct LogConfig {
  bool requests = false;
  bool stats = true;
};

/// Everything `gristmill serve` was told.
struct ServeConfig {
  engine::EngineConfig engine;
  HttpConfig http;
  ApiPolicy api;
  ModelConfig model;
  LogConfig log;
  bool weight_cache = true;           ///< --no-weight-cache: engine.weight_cache_dir stays empty
  bool survive_engine_death = false;  ///< VLLM_KEEP_ALIVE_ON_ENGINE_DEATH
};

/// Throws Error with one line that names the flag, in the order vLLM checks.
void validate(const ServeConfig& config);

}  // namespace gristmill::config
