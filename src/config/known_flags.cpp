#include "config/known_flags.h"

#include <utility>

namespace gristmill::config {
namespace {

constexpr const char* one_engine = "one engine process on one machine is what is built so far";
constexpr const char* no_tls = "put a TLS proxy in front, or listen on a UNIX socket with --uds";
constexpr const char* no_python = "this program runs no Python";
constexpr const char* no_lora = "LoRA adapters are not built yet";
constexpr const char* no_media = "the models served so far take text only";
constexpr const char* no_parser = "reasoning and tool calls come back as text so far";
constexpr const char* one_file = "the model is one local GGUF file";
constexpr const char* no_graphs = "this device runs no graphs and compiles nothing";
constexpr const char* no_offload = "weights and KV cache already are in host memory";
constexpr const char* not_built = "not supported yet";

constexpr KnownFlag flags[] = {
    {"--additional-config", true, nullptr, not_built},
    {"--aggregate-engine-logging", false, nullptr, one_engine},
    {"--all2all-backend", true, nullptr, one_engine},
    {"--allowed-local-media-path", true, nullptr, no_media},
    {"--allowed-media-domains", true, nullptr, no_media},
    {"--api-server-count", true, "1", one_engine},
    {"--attention-backend", true, "*", "there is one attention"},
    {"--attention-config", true, nullptr, not_built},
    {"--calculate-kv-scales", false, nullptr, not_built},
    {"--code-revision", true, "*", one_file},
    {"--collect-detailed-traces", true, nullptr, not_built},
    {"--compilation-config", true, nullptr, no_graphs},
    {"--config", true, nullptr, not_built},
    {"--config-format", true, "auto", one_file},
    {"--convert", true, "auto none", "pooling models are not built yet"},
    {"--cp-kv-cache-interleave-size", true, "1", one_engine},
    {"--cpu-offload-gb", true, "*", no_offload},
    {"--cudagraph-capture-sizes", true, nullptr, no_graphs},
    {"--cudagraph-metrics", false, "*", no_graphs},
    {"--data-parallel-address", true, nullptr, one_engine},
    {"--data-parallel-backend", true, "mp", one_engine},
    {"--data-parallel-external-lb", false, nullptr, one_engine},
    {"--data-parallel-hybrid-lb", false, nullptr, one_engine},
    {"--data-parallel-rank", true, nullptr, one_engine},
    {"--data-parallel-rpc-port", true, nullptr, one_engine},
    {"--data-parallel-size", true, "1", one_engine},
    {"--data-parallel-size-local", true, "1", one_engine},
    {"--data-parallel-start-rank", true, nullptr, one_engine},
    {"--decode-context-parallel-size", true, "1", one_engine},
    {"--default-mm-loras", true, nullptr, no_lora},
    {"--disable-cascade-attn", false, "*", "there is one attention"},
    {"--disable-custom-all-reduce", false, "*", one_engine},
    {"--disable-fastapi-docs", false, "*", "there are no docs pages"},
    {"--disable-hybrid-kv-cache-manager", false, nullptr, not_built},
    {"--disable-log-requests", false, "*", "requests are logged only with --enable-log-requests"},
    {"--disable-sliding-window", false, nullptr, not_built},
    {"--distributed-executor-backend", true, "mp uni", one_engine},
    {"--distributed-timeout-seconds", true, "*", one_engine},
    {"--download-dir", true, "*", one_file},
    {"--dry-run", false, nullptr, not_built},
    {"--ec-transfer-config", true, nullptr, not_built},
    {"--enable-auto-tool-choice", false, nullptr, no_parser},
    {"--enable-dbo", false, nullptr, one_engine},
    {"--enable-eplb", false, nullptr, one_engine},
    {"--enable-expert-parallel", false, nullptr, one_engine},
    {"--enable-log-deltas", false, nullptr, not_built},
    {"--enable-log-outputs", false, nullptr, not_built},
    {"--enable-logging-iteration-details", false, nullptr, not_built},
    {"--enable-lora", false, nullptr, no_lora},
    {"--enable-mfu-metrics", false, nullptr, not_built},
    {"--enable-mm-embeds", false, nullptr, no_media},
    {"--enable-offline-docs", false, nullptr, not_built},
    {"--enable-prompt-embeds", false, nullptr, not_built},
    {"--enable-return-routed-experts", false, nullptr, not_built},
    {"--enable-sleep-mode", false, nullptr, not_built},
    {"--enable-ssl-refresh", false, nullptr, no_tls},
    {"--enable-tokenizer-info-endpoint", false, nullptr, not_built},
    {"--enforce-eager", false, "*", no_graphs},
    {"--eplb-config", true, nullptr, one_engine},
    {"--expert-placement-strategy", true, nullptr, one_engine},
    {"--fail-on-environ-validation", false, nullptr, not_built},
    {"--fully-sharded-loras", false, nullptr, no_lora},
    {"--gdn-prefill-backend", true, "*", "there is one prefill"},
    {"--grpc", false, nullptr, not_built},
    {"--guided-decoding-backend", true, nullptr, "structured output is not built yet"},
    {"--headless", false, nullptr, one_engine},
    {"--hf-config-path", true, nullptr, one_file},
    {"--hf-token", true, "*", one_file},
    {"--ignore-patterns", true, "*", one_file},
    {"--interleave-mm-strings", false, nullptr, no_media},
    {"--io-processor-plugin", true, nullptr, no_python},
    {"--kernel-config", true, nullptr, not_built},
    {"--kv-cache-metrics", false, nullptr, not_built},
    {"--kv-cache-metrics-sample", true, nullptr, not_built},
    {"--kv-events-config", true, nullptr, not_built},
    {"--kv-offloading-backend", true, nullptr, not_built},
    {"--kv-offloading-size", true, nullptr, not_built},
    {"--kv-transfer-config", true, nullptr, not_built},
    {"--language-model-only", false, "*", no_media},
    {"--limit-mm-per-prompt", true, "*", no_media},
    {"--log-config-file", true, nullptr, not_built},
    {"--logits-processors", true, nullptr, no_python},
    {"--lora-dtype", true, nullptr, no_lora},
    {"--lora-modules", true, nullptr, no_lora},
    {"--mamba-block-size", true, nullptr, not_built},
    {"--mamba-cache-dtype", true, nullptr, not_built},
    {"--mamba-cache-mode", true, nullptr, not_built},
    {"--mamba-ssm-cache-dtype", true, nullptr, not_built},
    {"--master-addr", true, nullptr, one_engine},
    {"--master-port", true, nullptr, one_engine},
    {"--max-cpu-loras", true, nullptr, no_lora},
    {"--max-cudagraph-capture-size", true, nullptr, no_graphs},
    {"--max-log-len", true, nullptr, not_built},
    {"--max-lora-rank", true, nullptr, no_lora},
    {"--max-loras", true, nullptr, no_lora},
    {"--max-parallel-loading-workers", true, "*", one_file},
    {"--media-io-kwargs", true, nullptr, no_media},
    {"--middleware", true, nullptr, "this program runs no Python; use a proxy"},
    {"--mm-encoder-tp-mode", true, nullptr, no_media},
    {"--mm-processor-cache-gb", true, "*", no_media},
    {"--mm-processor-cache-type", true, "*", no_media},
    {"--mm-processor-kwargs", true, nullptr, no_media},
    {"--mm-shm-cache-max-object-size-mb", true, "*", no_media},
    {"--model-impl", true, "auto", no_python},
    {"--model-loader-extra-config", true, nullptr, one_file},
    {"--moe-backend", true, "*", "there is one kernel per format"},
    {"--nnodes", true, "1", one_engine},
    {"--node-rank", true, "0", one_engine},
    {"--optimization-level", true, "*", no_graphs},
    {"--otlp-traces-endpoint", true, nullptr, not_built},
    {"--performance-mode", true, "balanced", not_built},
    {"--pipeline-parallel-size", true, "1", one_engine},
    {"--pooler-config", true, nullptr, "pooling models are not built yet"},
    {"--prefill-context-parallel-size", true, "1", one_engine},
    {"--profiler-config", true, nullptr, not_built},
    {"--reasoning-parser", true, nullptr, no_parser},
    {"--reasoning-parser-plugin", true, nullptr, no_python},
    {"--revision", true, "*", one_file},
    {"--runner", true, "auto generate", "pooling models are not built yet"},
    {"--safetensors-load-strategy", true, nullptr, one_file},
    {"--scheduler-cls", true, nullptr, no_python},
    {"--show-hidden-metrics-for-version", true, "*", "no metric is hidden"},
    {"--skip-mm-profiling", false, "*", no_media},
    {"--skip-tokenizer-init", false, nullptr, not_built},
    {"--speculative-config", true, nullptr, "speculation is not built yet"},
    {"--ssl-ca-certs", true, nullptr, no_tls},
    {"--ssl-cert-reqs", true, nullptr, no_tls},
    {"--ssl-certfile", true, nullptr, no_tls},
    {"--ssl-ciphers", true, nullptr, no_tls},
    {"--ssl-keyfile", true, nullptr, no_tls},
    {"--structured-outputs-config", true, nullptr, "structured output is not built yet"},
    {"--swap-space", true, "*", "there is no swap space: preemption recomputes"},
    {"--tensor-parallel-size", true, "1", one_engine},
    {"--tokenizer", true, nullptr, "the tokenizer is the GGUF file's own"},
    {"--tokenizer-mode", true, "auto hf", "the tokenizer is the GGUF file's own"},
    {"--tokenizer-revision", true, "*", one_file},
    {"--tool-call-parser", true, nullptr, no_parser},
    {"--tool-parser-plugin", true, nullptr, no_python},
    {"--tool-server", true, nullptr, no_python},
    {"--trust-remote-code", false, "*", "no code of a model's repository is ever run"},
    {"--use-tqdm-on-load", false, "*", "progress is shown when loading takes long"},
    {"--video-pruning-rate", true, nullptr, no_media},
    {"--worker-cls", true, nullptr, no_python},
    {"--worker-extension-cls", true, nullptr, no_python},
};

constexpr std::pair<std::string_view, std::string_view> short_flags[] = {
    {"-tp", "--tensor-parallel-size"},
    {"-dp", "--data-parallel-size"},
    {"-pp", "--pipeline-parallel-size"},
    {"-dpn", "--data-parallel-rank"},
    {"-dpr", "--data-parallel-start-rank"},
    {"-dpl", "--data-parallel-size-local"},
    {"-dpa", "--data-parallel-address"},
    {"-dpp", "--data-parallel-rpc-port"},
    {"-dpb", "--data-parallel-backend"},
    {"-dph", "--data-parallel-hybrid-lb"},
    {"-dpe", "--data-parallel-external-lb"},
    {"-ep", "--enable-expert-parallel"},
    {"-dcp", "--decode-context-parallel-size"},
    {"-pcp", "--prefill-context-parallel-size"},
    {"-q", "--quantization"},
    {"-n", "--nnodes"},
    {"-r", "--node-rank"},
    {"-asc", "--api-server-count"},
    {"-cc", "--compilation-config"},
    {"-ac", "--attention-config"},
    {"-sc", "--speculative-config"},
    {"-O", "--optimization-level"},
};

}  // namespace

std::span<const KnownFlag> known_flags() {
  return flags;
}

const KnownFlag* find_known_flag(std::string_view name) {
  for (const KnownFlag& flag : flags) {
    if (name == flag.name) return &flag;
  }
  return nullptr;
}

std::string_view long_name(std::string_view short_flag) {
  for (const auto& [from, to] : short_flags) {
    if (short_flag == from) return to;
  }
  return {};
}

}  // namespace gristmill::config
