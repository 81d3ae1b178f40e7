#include "cli/serve_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <charconv>
#include <functional>
#include <limits>

#include "base/error.h"
#include "config/cache_dtype.h"
#include "config/human_number.h"
#include "server/api_error.h"
#include "server/json_request.h"

namespace gristmill::cli {
namespace {

using config::human_number;

int32_t int32_value(const std::string& flag, const std::string& text) {
  const int64_t value = human_number(flag, text);
  if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max()) {
    throw Error(cat("argument ", flag, ": the number is too large: '", text, "'"));
  }
  return static_cast<int32_t>(value);
}

double real_value(const std::string& flag, const std::string& text) {
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) {
    throw Error(cat("argument ", flag, ": invalid float value: '", text, "'"));
  }
  return value;
}

std::string one_of(const std::string& flag, const std::string& text, std::initializer_list<const char*> choices) {
  std::string list;
  for (const char* choice : choices) {
    if (text == choice) return text;
    list += cat(list.empty() ? "" : ", ", choice);
  }
  throw Error(cat("argument ", flag, ": invalid choice: '", text, "' (choose from ", list, ")"));
}

/// A JSON list of strings, or a plain word.
std::vector<std::string> json_list(const std::string& flag, const std::string& text) {
  if (text.empty() || text.front() != '[') return {text};
  try {
    // The reader takes objects: wrap the list in one.
    const boost::json::object wrapped = server::parse_json_object(cat("{\"list\":", text, "}"));
    return server::FieldReader(wrapped).strings("list", 1024, false);
  } catch (const server::ApiError&) {
    throw Error(cat("argument ", flag, ": must be a JSON list of strings, got: ", text));
  }
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    std::string item = text.substr(at, comma - at);
    item.erase(0, item.find_first_not_of(' '));
    item.erase(item.find_last_not_of(' ') + 1);
    if (!item.empty()) out.push_back(item);
    at = comma + 1;
  }
  return out;
}

}  // namespace

struct ServeFlags::Impl {
  explicit Impl(CLI::App& owner) : command(owner) {}

  /// `take` gets the text of the flag's value.
  void value(const char* group, const std::string& name, const char* type, const char* help,
             std::function<void(const std::string&)> take) {
    specs.push_back({name, false, false});
    command
        .add_option_function<std::string>(
            name,
            [this, name, take = std::move(take)](const std::string& text) {
              given.emplace_back(name.substr(2), text);
              take(text);
            },
            help)
        ->type_name(type)
        ->group(group);
  }

  void list(const char* group, const std::string& name, const char* type, const char* help,
            std::vector<std::string>& out) {
    specs.push_back({name, false, true});
    command
        .add_option_function<std::vector<std::string>>(
            name,
            [this, name, &out](const std::vector<std::string>& texts) {
              given.emplace_back(name.substr(2), name == "--api-key" ? "..." : texts.front());
              out = texts;
            },
            help)
        ->type_name(type)
        ->group(group);
  }

  void boolean(const char* group, const std::string& name, const char* help, std::function<void(bool)> take) {
    specs.push_back({name, true, false});
    const std::string stem = name.substr(2);
    command
        .add_flag_function(
            cat(name, "{1},!--no-", stem),
            [this, stem, take = std::move(take)](int64_t count) {
              take(count > 0);
              given.emplace_back(stem, count > 0 ? "True" : "False");
            },
            help)
        ->option_text("--[no-]" + stem)
        ->group(group);
  }

  void boolean(const char* group, const std::string& name, const char* help, bool& out) {
    boolean(group, name, help, [&out](bool given_value) { out = given_value; });
  }

  void integer(const char* group, const std::string& name, const char* help, int32_t& out) {
    value(group, name, "N", help, [name, &out](const std::string& text) { out = int32_value(name, text); });
  }

  void text(const char* group, const std::string& name, const char* type, const char* help, std::string& out) {
    value(group, name, type, help, [&out](const std::string& given_text) { out = given_text; });
  }

  void model_flags();
  void engine_flags();
  void http_flags();
  void api_flags();

  CLI::App& command;
  config::ServeConfig config;
  std::vector<FlagSpec> specs;
  std::vector<std::pair<std::string, std::string>> given;
  std::vector<std::string> notes;
  std::string log_level;
};

void ServeFlags::Impl::model_flags() {
  const char* const group = "Model";
  command
      .add_option_function<std::string>(
          "MODEL",
          [this](const std::string& path) {
            config.engine.model = path;
            given.emplace_back("model", path);
          },
          "A GGUF file or a model folder; without one the default model is fetched and served")
      ->type_name("");
  value(group, "--model", "PATH", "Same as MODEL", [this](const std::string& path) { config.engine.model = path; });
  list(group, "--served-model-name", "NAME", "Names that requests may use; the first stands in answers",
       config.model.served_names);
  value(group, "--dtype", "TYPE", "auto: the file's own precision; float32: exact weights and float32 activations",
        [this](const std::string& given_text) {
          const std::string type =
              one_of("--dtype", given_text, {"auto", "half", "float16", "bfloat16", "float", "float32"});
          config.engine.float32 = type == "float" || type == "float32";
          if (type != "auto" && !config.engine.float32) {
            notes.push_back(cat("flag --dtype ", type, ": mapped to auto, weights keep the file's own precision"));
          }
        });
  value(group, "--quantization", "METHOD",
        "How weights are read: ascend, fp8, compressed-tensors, gguf (what the checkpoint is; found out by itself), or "
        "quantized at load: w8a8, w4a8",
        [this](const std::string& given_text) {
          config.engine.quantization =
              one_of("--quantization", given_text, {"ascend", "fp8", "compressed-tensors", "gguf", "w8a8", "w4a8"});
        });
  value(group, "--float-linears", "TYPE",
        "What the FLOAT linears of an ascend checkpoint become at load: bf16 (as they are), int8, int4",
        [this](const std::string& given_text) {
          config.engine.float_linears = one_of("--float-linears", given_text, {"bf16", "int8", "int4"});
        });
  value(group, "--load-format", "FORMAT",
        "auto; safetensors or gguf: refuse anything else; dummy: weights made up for a folder's config.json",
        [&format = config.engine.load_format](const std::string& given_text) {
          const std::string name = one_of("--load-format", given_text, {"auto", "safetensors", "gguf", "dummy"});
          format = name == "safetensors" ? model::LoadFormat::safetensors
                   : name == "gguf"      ? model::LoadFormat::gguf
                   : name == "dummy"     ? model::LoadFormat::dummy
                                         : model::LoadFormat::automatic;
        });
  text(group, "--hf-overrides", "JSON", "Merged into a folder's config.json, e.g. {\"num_hidden_layers\": 2}",
       config.engine.hf_overrides);
  value(group, "--max-model-len", "N", "Most tokens of prompt and output together (25.6k, 4K, auto)",
        [this](const std::string& given_text) {
          config.engine.max_model_len =
              given_text == "auto" || given_text == "-1" ? 0 : int32_value("--max-model-len", given_text);
          if (given_text == "0") throw Error("argument --max-model-len: must be at least 1, or auto");
        });
  text(group, "--chat-template", "PATH|TEXT", "A chat template in place of the model's", config.model.chat_template);
  text(group, "--chat-template-content-format", "FORMAT", "How content reaches the template: auto, string, openai",
       config.model.content_format);
  text(group, "--default-chat-template-kwargs", "JSON", "Template variables for requests that do not set them",
       config.model.default_template_kwargs);
  value(group, "--generation-config", "auto|vllm",
        "auto: sampling values of the model folder are defaults; vllm: ignore them",
        [&model = config.model](const std::string& given_text) {
          model.use_generation_config = one_of("--generation-config", given_text, {"auto", "vllm"}) == "auto";
        });
  text(group, "--override-generation-config", "JSON", "Sampling values for requests that do not set them",
       config.model.generation_defaults);
}

void ServeFlags::Impl::engine_flags() {
  engine::EngineConfig& engine = config.engine;
  const char* group = "Scheduling";
  integer(group, "--max-num-seqs", "Most sequences that run at a time", engine.max_num_seqs);
  integer(group, "--max-num-batched-tokens", "Most tokens in one step", engine.max_num_batched_tokens);
  integer(group, "--long-prefill-token-threshold", "Most tokens of one prompt in a step; 0: no limit",
          engine.long_prefill_token_threshold);
  integer(group, "--mixed-prefill-tokens", "Most prompt tokens in a step while streams run; 0: no limit (256)",
          engine.mixed_prefill_tokens);
  integer(group, "--max-num-partial-prefills", "Prompts that may be half computed at a time",
          engine.max_num_partial_prefills);
  integer(group, "--max-long-partial-prefills", "Of those, prompts above the long-prefill threshold",
          engine.max_long_partial_prefills);
  boolean(group, "--enable-chunked-prefill", "Split long prompts over several steps", engine.chunked_prefill);
  boolean(group, "--async-scheduling", "Plan a step while the last one runs", engine.async_scheduling);
  value(group, "--scheduling-policy", "POLICY", "fcfs or priority", [&engine](const std::string& given_text) {
    engine.policy = one_of("--scheduling-policy", given_text, {"fcfs", "priority"}) == "priority"
                        ? engine::SchedulingPolicy::priority
                        : engine::SchedulingPolicy::fcfs;
  });
  value(group, "--watchdog-seconds", "N", "Restart the engine when one step takes longer (10)",
        [&engine](const std::string& given_text) {
          engine.watchdog_seconds = static_cast<double>(human_number("--watchdog-seconds", given_text));
        });
  text(group, "--step-trace", "FILE", "Write a Chrome trace of the engine's steps", engine.trace_path);
  value(group, "--seed", "N", "Seed of requests that bring none",
        [&engine](const std::string& given_text) { engine.seed = human_number("--seed", given_text); });

  group = "Memory and compute";
  value(group, "--gpu-memory-utilization", "SHARE", "Share of this machine's memory that may be used, 0 to 1",
        [&engine](const std::string& given_text) {
          engine.memory_utilization = real_value("--gpu-memory-utilization", given_text);
        });
  value(group, "--kv-cache-memory-bytes", "N", "Size of the KV cache (2G, 512M)",
        [&engine](const std::string& given_text) {
          engine.cache_bytes = human_number("--kv-cache-memory-bytes", given_text);
        });
  value(group, "--prefix-caching-hash-algo", "NAME", "sha256, or xxhash (faster, for clients that trust each other)",
        [&engine](const std::string& given_text) {
          const std::string name = one_of("--prefix-caching-hash-algo", given_text, {"sha256", "xxhash"});
          engine.prefix_hash =
              name == "xxhash" ? gristmill::engine::HashAlgorithm::xxhash : gristmill::engine::HashAlgorithm::sha256;
        });
  value(group, "--kv-cache-dtype", "TYPE", "auto, bfloat16, float16, float32, int8, fp8",
        [&engine](const std::string& given_text) {
          engine.cache_dtype.reset();
          if (given_text != "auto") engine.cache_dtype = config::cache_dtype("--kv-cache-dtype", given_text);
        });
  integer(group, "--block-size", "Tokens in a block of the KV cache", engine.block_size);
  integer(group, "--num-gpu-blocks-override", "Number of KV cache blocks", engine.num_blocks_override);
  boolean(group, "--enable-prefix-caching", "Keep the KV cache of shared beginnings", engine.prefix_caching);
  boolean(group, "--weight-cache", "Keep packed weights on disk, so that the next start is fast", config.weight_cache);
  text(group, "--weight-cache-dir", "FOLDER",
       "Where packed weights are kept (also GRISTMILL_WEIGHT_CACHE_DIR; ~/.cache/gristmill/weights)",
       engine.weight_cache_dir);
  value(group, "--weight-cache-size", "BYTES", "Most bytes in that folder; the least recently used make room (128G)",
        [&engine](const std::string& given_text) {
          engine.weight_cache_bytes = human_number("--weight-cache-size", given_text);
        });
  value(group, "--weight-residence", "WHERE",
        "Cached weights are used in place (mapped) or copied to huge pages (owned); auto: large ones are mapped",
        [&engine](const std::string& given_text) {
          const std::string where = one_of("--weight-residence", given_text, {"auto", "mapped", "owned"});
          engine.weight_residence = where == "mapped"  ? device::Residence::mapped
                                    : where == "owned" ? device::Residence::owned
                                                       : device::Residence::automatic;
        });
  integer(group, "--threads", "Compute threads (also GRISTMILL_THREADS)", engine.threads);
  text(group, "--device", "NAME", "cpu, or reference (slow, for comparison)", engine.device);
}

void ServeFlags::Impl::http_flags() {
  config::HttpConfig& http = config.http;
  const char* group = "HTTP";
  text(group, "--host", "ADDRESS", "Address to listen on; all interfaces unless given", http.host);
  value(group, "--port", "N", "Port to listen on (8000)", [&http](const std::string& given_text) {
    const int64_t port = human_number("--port", given_text);
    if (port < 0 || port > 65535) throw Error(cat("argument --port: must be between 0 and 65535, got ", given_text));
    http.port = static_cast<uint16_t>(port);
  });
  text(group, "--uds", "PATH", "Listen on a UNIX socket instead", http.uds);
  list(group, "--api-key", "KEY", "Keys that clients must send (also VLLM_API_KEY)", http.api_keys);
  boolean(group, "--api-key-compat-v1-only", "Guard only paths that begin with /v1, as vLLM does",
          http.api_key_guards_v1_only);
  text(group, "--root-path", "PATH", "Prefix that a proxy leaves in front of paths", http.root_path);
  const auto json = [&](const char* name, const char* help, std::vector<std::string>& out) {
    value(group, name, "JSON", help,
          [name, &out](const std::string& given_text) { out = json_list(name, given_text); });
  };
  json("--allowed-origins", "CORS: origins whose pages may call", http.allowed_origins);
  json("--allowed-methods", "CORS: methods they may use", http.allowed_methods);
  json("--allowed-headers", "CORS: headers they may send", http.allowed_headers);
  boolean(group, "--allow-credentials", "CORS: allow credentials", http.allow_credentials);
  value(group, "--h11-max-incomplete-event-size", "BYTES", "Most bytes of a request's headers (64K)",
        [&http](const std::string& given_text) {
          const int64_t bytes = human_number("--h11-max-incomplete-event-size", given_text);
          if (bytes < 1024 || bytes > 64 << 20) {
            throw Error("argument --h11-max-incomplete-event-size: must be between 1K and 64M");
          }
          http.max_header_bytes = static_cast<size_t>(bytes);
        });
  value(group, "--h11-max-header-count", "N", "Most header fields of a request (256)",
        [&http](const std::string& given_text) {
          const int64_t count = human_number("--h11-max-header-count", given_text);
          if (count < 1 || count > 65536) throw Error("argument --h11-max-header-count: must be between 1 and 65536");
          http.max_header_count = static_cast<size_t>(count);
        });
  value(group, "--max-body-bytes", "BYTES", "Most bytes of a request's body (64M)",
        [&http](const std::string& given_text) {
          const int64_t bytes = human_number("--max-body-bytes", given_text);
          if (bytes < 1) throw Error("argument --max-body-bytes: must be at least 1");
          http.max_body_bytes = static_cast<size_t>(bytes);
        });
  value(
      group, "--shutdown-timeout", "SECONDS", "How long running requests may go on after SIGTERM (30)",
      [&http](const std::string& given_text) { http.shutdown_seconds = real_value("--shutdown-timeout", given_text); });
  boolean(group, "--enable-request-id-headers", "Send X-Request-Id with answers", http.request_id_headers);
  boolean(group, "--enable-server-load-tracking", "Let /load count running requests", http.load_tracking);

  group = "Log";
  value(group, "--log-level", "LEVEL", "debug, info, warning, error (also VLLM_LOGGING_LEVEL)",
        [this](const std::string& given_text) { log_level = given_text; });
  value(group, "--uvicorn-log-level", "LEVEL", "Access lines are written at info and below",
        [&http](const std::string& given_text) {
          const std::string level =
              one_of("--uvicorn-log-level", given_text, {"critical", "error", "warning", "info", "debug", "trace"});
          if (level == "critical" || level == "error" || level == "warning") http.access_log = false;
        });
  boolean(group, "--disable-uvicorn-access-log", "No line per request",
          [&http](bool disabled) { http.access_log = !disabled; });
  value(group, "--disable-access-log-for-endpoints", "PATHS", "Paths without a line, separated by commas",
        [&http](const std::string& given_text) { http.access_log_skips = split_commas(given_text); });
  boolean(group, "--enable-log-requests", "Log every request's parameters", config.log.requests);
  boolean(group, "--disable-log-stats", "No statistics every 10 s, no engine metrics",
          [this](bool disabled) { config.log.stats = !disabled; });
}

void ServeFlags::Impl::api_flags() {
  config::ApiPolicy& api = config.api;
  const char* const group = "API";
  value(group, "--max-logprobs", "N", "Most alternatives per token that requests may ask for (20; -1: no limit)",
        [&api](const std::string& given_text) { api.max_logprobs = human_number("--max-logprobs", given_text); });
  value(group, "--logprobs-mode", "MODE", "raw_logprobs, processed_logprobs, raw_logits, processed_logits",
        [this](const std::string& given_text) {
          const std::string mode = one_of("--logprobs-mode", given_text,
                                          {"raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits"});
          config.engine.logprobs_mode = mode == "raw_logprobs"         ? LogprobsMode::raw_logprobs
                                        : mode == "processed_logprobs" ? LogprobsMode::processed_logprobs
                                        : mode == "raw_logits"         ? LogprobsMode::raw_logits
                                                                       : LogprobsMode::processed_logits;
        });
  boolean(group, "--return-tokens-as-token-ids", "Show tokens as \"token_id:N\" in log-probabilities",
          api.return_tokens_as_token_ids);
  text(group, "--response-role", "ROLE", "Role of answers (assistant)", api.response_role);
  boolean(group, "--trust-request-chat-template", "Let requests bring their own chat template",
          api.trust_request_chat_template);
  boolean(group, "--parse-message-control-tokens",
          "Take control tokens that messages and tools spell as such, as vLLM does (default); --no-...: as plain text",
          api.parse_message_control_tokens);
  boolean(group, "--exclude-tools-when-tool-choice-none", "Leave tools out of the prompt under tool_choice none",
          api.exclude_tools_when_tool_choice_none);
  boolean(group, "--enable-prompt-tokens-details", "Tell cached prompt tokens in usage", api.prompt_tokens_details);
  boolean(group, "--enable-force-include-usage", "Tell usage at the end of every stream", api.force_include_usage);
  integer(group, "--stream-interval", "Tokens per event of a stream (1)", api.stream_interval);
  value(group, "--max-queued-requests", "N", "Refuse requests while so many wait (-1: no limit)",
        [&api](const std::string& given_text) {
          api.max_queued_requests = human_number("--max-queued-requests", given_text);
        });
  boolean(group, "--strict-vllm", "vLLM's exact bodies: tool_calls [] and a first chunk with the role only",
          api.strict_vllm);
}

ServeFlags::ServeFlags(CLI::App& command) : impl_(std::make_unique<Impl>(command)) {
  impl_->model_flags();
  impl_->engine_flags();
  impl_->http_flags();
  impl_->api_flags();
}

ServeFlags::~ServeFlags() = default;

std::vector<FlagSpec> ServeFlags::specs() const {
  return impl_->specs;
}

config::ServeConfig& ServeFlags::config() {
  return impl_->config;
}

const std::vector<std::string>& ServeFlags::notes() const {
  return impl_->notes;
}

const std::string& ServeFlags::log_level() const {
  return impl_->log_level;
}

std::string ServeFlags::given() const {
  std::string out = "{";
  for (const auto& [name, value] : impl_->given) {
    std::string key = name;
    std::replace(key.begin(), key.end(), '-', '_');
    out += cat(out.size() > 1 ? ", " : "", "'", key, "': '", value, "'");
  }
  return out + "}";
}

}  // namespace gristmill::cli
