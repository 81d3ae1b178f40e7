#include <algorithm>

#include "base/error.h"
#include "config/serve_config.h"

namespace gristmill::config {
namespace {

constexpr int32_t most_threads = 4096;

void at_least(const char* flag, int64_t value, int64_t least) {
  if (value < least) throw Error(cat(flag, " must be at least ", least, ", got ", value));
}

void one_of(const char* flag, const std::string& value, std::initializer_list<const char*> choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return;
  std::string list;
  for (const char* choice : choices) list += cat(list.empty() ? "" : ", ", choice);
  throw Error(cat(flag, " must be one of ", list, "; got \"", value, "\""));
}

}  // namespace

void validate(const ServeConfig& config) {
  const engine::EngineConfig& engine = config.engine;
  one_of("--chat-template-content-format", config.model.content_format, {"auto", "string", "openai"});
  if (config.api.response_role.empty()) throw Error("--response-role must not be empty");
  one_of("--device", engine.device, {"cpu", "reference"});
  at_least("--threads", engine.threads, 0);
  if (engine.threads > most_threads) {
    throw Error(cat("--threads must be at most ", most_threads, ", got ", engine.threads));
  }
  at_least("--max-model-len", engine.max_model_len, 0);
  at_least("--max-num-seqs", engine.max_num_seqs, 0);
  at_least("--max-num-batched-tokens", engine.max_num_batched_tokens, 0);
  at_least("--long-prefill-token-threshold", engine.long_prefill_token_threshold, 0);
  at_least("--mixed-prefill-tokens", engine.mixed_prefill_tokens, 0);
  at_least("--watchdog-seconds", static_cast<int64_t>(engine.watchdog_seconds), 1);
  at_least("--kv-cache-memory-bytes", engine.cache_bytes, 0);
  at_least("--weight-cache-size", engine.weight_cache_bytes, 1);
  if (!config.weight_cache && engine.weight_residence == device::Residence::mapped)
    throw Error("--weight-residence mapped: weights are mapped from the weight cache; remove --no-weight-cache");
  at_least("--num-gpu-blocks-override", engine.num_blocks_override, 0);
  // What the CPU back end has layouts for.
  if (engine.block_size < 8 || engine.block_size > 256 || (engine.block_size & (engine.block_size - 1)) != 0) {
    throw Error(cat("--block-size must be 8, 16, 32, 64, 128 or 256, got ", engine.block_size));
  }
  if (engine.max_num_batched_tokens > 0 && engine.max_num_batched_tokens < engine.max_num_seqs) {
    throw Error(cat("max_num_batched_tokens (", engine.max_num_batched_tokens,
                    ") must be greater than or equal to max_num_seqs (", engine.max_num_seqs, ")."));
  }
  if (!engine.chunked_prefill && engine.max_num_batched_tokens > 0 &&
      engine.max_model_len > engine.max_num_batched_tokens) {
    throw Error(cat("--no-enable-chunked-prefill: --max-num-batched-tokens (", engine.max_num_batched_tokens,
                    ") must be at least --max-model-len (", engine.max_model_len, ")"));
  }
  if (!(engine.memory_utilization > 0 && engine.memory_utilization <= 1)) {
    throw Error(cat("--gpu-memory-utilization must be above 0 and at most 1, got ", engine.memory_utilization));
  }
  at_least("--max-logprobs", config.api.max_logprobs, -1);
  at_least("--stream-interval", config.api.stream_interval, 1);
  at_least("--max-queued-requests", config.api.max_queued_requests, -1);
  if (config.http.shutdown_seconds < 0) throw Error("--shutdown-timeout must not be negative");
  if (!config.http.root_path.empty() && config.http.root_path.front() != '/') {
    throw Error("--root-path must begin with \"/\"");
  }
}

}  // namespace gristmill::config
