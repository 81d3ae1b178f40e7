#include "cli/eval.h"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cstdio>

#include "base/error.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "cli/perplexity.h"
#include "config/cache_dtype.h"
#include "config/environment.h"
#include "weights/mapped_file.h"

namespace gristmill::cli {
namespace {

void print_table(const PerplexityOptions& options, const ScoredText& text, const Perplexity& result) {
  std::printf("%s on %s\n", options.engine.model.c_str(), options.file.c_str());
  std::printf("%lld tokens in %zu sequences: %s\n\n", static_cast<long long>(text.tokens), text.sequences.size(),
              text.method.c_str());
  std::printf("tokens scored   %lld\n", static_cast<long long>(result.scored));
  std::printf("mean NLL        %.6f nats per token\n", result.nll_mean());
  std::printf("perplexity      %.4f\n", result.value());
  std::printf("top-1 accuracy  %.4f\n", static_cast<double>(result.likeliest) / static_cast<double>(result.scored));
  std::printf("time            %.1f s, %.0f tokens/s\n", result.seconds,
              static_cast<double>(text.tokens) / result.seconds);
}

void print_json(const PerplexityOptions& options, const ScoredText& text, const Perplexity& result) {
  const boost::json::object object{
      {"model", options.engine.model},
      {"file", options.file},
      {"method", text.method},
      {"token_count", text.tokens},
      {"sequences", text.sequences.size()},
      {"tokens_scored", result.scored},
      {"nll_mean", result.nll_mean()},
      {"perplexity", result.value()},
      {"top1_accuracy", static_cast<double>(result.likeliest) / static_cast<double>(result.scored)},
      {"seconds", result.seconds}};
  std::puts(boost::json::serialize(object).c_str());
}

}  // namespace

int eval(const std::vector<std::string>& words) {
  CLI::App command("Measure the quality of a model on a text.", "gristmill eval");
  command.require_subcommand(1);
  CLI::App* const perplexity = command.add_subcommand(
      "perplexity", "Negative log-likelihood per token, and its exponential, of a text or of chats");
  PerplexityOptions options;
  std::string dtype = "auto", cache_dtype = "auto";
  bool json = false;
  perplexity->add_option("MODEL", options.engine.model, "A GGUF file or a Hugging Face folder")->required();
  perplexity
      ->add_option("FILE", options.file,
                   "UTF-8 text, cut into windows; or, named *.jsonl, one chat {\"messages\": [...]} per line")
      ->required();
  perplexity
      ->add_option("--context", options.context,
                   "Tokens of a window, each scored from an empty context (512 for text, whole chats for chats)")
      ->check(CLI::Range(2, 1 << 24));
  perplexity->add_option("--max-tokens", options.max_tokens, "Score only the first so many tokens of the file")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 40));
  perplexity
      ->add_option("--dtype", dtype, "auto: the file's own precision; float32: exact weights, float32 activations")
      ->check(CLI::IsMember({"auto", "float32"}));
  perplexity->add_option("--quantization", options.engine.quantization, "As for gristmill serve");
  perplexity->add_option("--float-linears", options.engine.float_linears, "As for gristmill serve");
  perplexity->add_option("--kv-cache-dtype", cache_dtype, "As for gristmill serve");
  perplexity->add_option("--device", options.engine.device, "cpu, or reference (slow, scalar)")
      ->check(CLI::IsMember({"cpu", "reference"}));
  perplexity->add_option("--threads", options.engine.threads, "Threads (all usable cores)")->check(CLI::Range(0, 4096));
  perplexity->add_flag("--json", json, "Print one JSON object");
  if (const std::optional<int> status = parse_words(command, words)) return *status;
  options.engine.float32 = dtype == "float32";
  if (cache_dtype != "auto") options.engine.cache_dtype = config::cache_dtype("--kv-cache-dtype", cache_dtype);
  check_model_path(options.engine.model);
  const weights::MappedFile readable(options.file);  // refuses what cannot be read before any work
  set_log_level(config::environment_log_level(config::process_environment()).value_or(LogLevel::warning));

  const ScoredText text = read_scored_text(options, text::load_text_model(options.engine.model));
  const Perplexity result = score(options, text);
  (json ? print_json : print_table)(options, text, result);
  return 0;
}

}  // namespace gristmill::cli
