#include "cli/quantize.h"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/terminal_progress.h"
#include "base/topology.h"
#include "cli/command_line.h"
#include "cli/perplexity.h"
#include "quantize/quantizer.h"
#include "weights/mapped_file.h"

namespace gristmill::cli {
namespace {

struct Scores {
  Perplexity before, after;
};

double relative(const quantize::QuantizeReport::Layer& layer) {
  return std::sqrt(layer.error / std::max(layer.size, 1e-300));
}

void print_table(const quantize::QuantizeOptions& options, const quantize::QuantizeReport& report,
                 const std::optional<Scores>& scores) {
  std::printf("%s -> %s: %zu shards, %.1f MB -> %.1f MB\n", options.source.c_str(), options.target.c_str(),
              report.shards, static_cast<double>(report.source_bytes) * 1e-6,
              static_cast<double>(report.target_bytes) * 1e-6);
  for (const auto& [type, count] : report.types)
    std::printf("%-14s %lld matrices\n", type.c_str(), static_cast<long long>(count));
  if (report.group != 0) std::printf("group          %d columns\n", report.group);
  if (report.left_out != 0)
    std::printf("left out       %lld tensors of draft heads, which share the head that has been rotated\n",
                static_cast<long long>(report.left_out));
  std::printf("\nlayer   matrices   relative error of weights\n");
  for (const auto& [layer, sums] : report.layers)
    std::printf("%-7s %8lld   %.6f\n", layer < 0 ? "-" : std::to_string(layer).c_str(),
                static_cast<long long>(sums.matrices), relative(sums));
  if (!scores) return;
  std::printf("\nperplexity     %.4f before, %.4f after (%+.2f %%) over %lld tokens\n", scores->before.value(),
              scores->after.value(), 100 * (scores->after.value() / scores->before.value() - 1),
              static_cast<long long>(scores->after.scored));
}

void print_json(const quantize::QuantizeReport& report, const std::optional<Scores>& scores) {
  boost::json::object types, layers;
  for (const auto& [type, count] : report.types) types[type] = count;
  for (const auto& [layer, sums] : report.layers)
    layers[std::to_string(layer)] = {{"matrices", sums.matrices}, {"relative_error", relative(sums)}};
  boost::json::object object{{"shards", report.shards},
                             {"source_bytes", report.source_bytes},
                             {"target_bytes", report.target_bytes},
                             {"group_size", report.group},
                             {"left_out", report.left_out},
                             {"types", types},
                             {"layers", layers}};
  if (scores) {
    object["perplexity_before"] = scores->before.value();
    object["perplexity_after"] = scores->after.value();
  }
  std::puts(boost::json::serialize(object).c_str());
}

/// `file` as the tokens of the source's tokenizer, which the quantized folder shares.
ScoredText text_of(const std::string& source, const std::string& file, int64_t max_tokens) {
  PerplexityOptions options;
  options.file = file;
  options.max_tokens = max_tokens;
  return read_scored_text(options, text::load_text_model(source));
}

Perplexity perplexity_of(const std::string& model, const ScoredText& text, int threads) {
  PerplexityOptions options;
  options.engine.model = model;
  options.engine.threads = threads;
  return score(options, text);
}

}  // namespace

int quantize(const std::vector<std::string>& words) {
  CLI::App command("Quantize a Hugging Face folder to msmodelslim's layout (\"ascend\").", "gristmill quantize");
  quantize::QuantizeOptions options;
  std::string scheme, calibration, evaluation;
  int64_t calibration_tokens = 2048, shard_bytes = int64_t{4} << 30;
  bool json = false;
  options.threads = usable_cores();
  command.add_option("SRC", options.source, "A folder of float weights, or of FP8 in blocks")->required();
  command.add_option("DST", options.target, "A folder that does not exist yet")->required();
  command
      .add_option("--scheme", scheme,
                  "w8a8: int8, activations dynamic; w8a8-static: int8, activations by calibration; w4a8: int4 with a "
                  "scale per output; w4a8-group: int4 in groups of columns")
      ->required()
      ->check(CLI::IsMember({"w8a8", "w8a8-static", "w4a8", "w4a8-group"}));
  command.add_flag("--quarot", options.quarot, "Fold rotations into the weights first (fewer outliers)");
  command.add_option("--calibration", calibration, "Text or *.jsonl of chats that w8a8-static measures inputs on");
  command.add_option("--calibration-tokens", calibration_tokens, "Most tokens of it (2048)")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 30));
  command.add_option("--recipe", options.recipe, "Which matrices (the architecture's usual ones)")
      ->check(CLI::IsMember({"minimax-m2", "qwen3.5", "all-linear"}));
  command.add_option("--evaluate", evaluation, "Text or *.jsonl of chats: perplexity before and after");
  command.add_option("--shard-bytes", shard_bytes, "Largest shard (4 GiB)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 60));
  command.add_option("--threads", options.threads, "Threads (all usable cores)")->check(CLI::Range(1, 4096));
  command.add_flag("--json", json, "Print the report as one JSON object");
  if (const std::optional<int> status = parse_words(command, words)) return *status;
  options.scheme = scheme == "w8a8"          ? quantize::Scheme::w8a8
                   : scheme == "w8a8-static" ? quantize::Scheme::w8a8_static
                   : scheme == "w4a8"        ? quantize::Scheme::w4a8
                                             : quantize::Scheme::w4a8_group;
  const bool is_static = options.scheme == quantize::Scheme::w8a8_static;
  if (is_static == calibration.empty())
    throw Error(is_static ? "--scheme w8a8-static needs a --calibration FILE"
                          : cat("--calibration is for w8a8-static; ", scheme, " needs none"));
  options.shard_bytes = static_cast<uint64_t>(shard_bytes);
  options.target = quantize::new_folder(options.target);
  // All that is read is looked at before the work, which may take hours.
  for (const std::string& file : {calibration, evaluation})
    if (!file.empty()) weights::MappedFile{file};
  std::optional<ScoredText> scored;
  if (!evaluation.empty()) scored = text_of(options.source, evaluation, 0);
  TerminalProgress progress;
  quantize::InputRanges ranges;
  if (is_static)
    ranges = quantize::calibrate(options, text_of(options.source, calibration, calibration_tokens).sequences, progress);
  const quantize::QuantizeReport report = quantize::quantize_folder(options, ranges, progress);
  std::optional<Scores> scores;
  if (scored)
    scores = Scores{perplexity_of(options.source, *scored, options.threads),
                    perplexity_of(options.target, *scored, options.threads)};
  if (json) {
    print_json(report, scores);
  } else {
    print_table(options, report, scores);
  }
  return 0;
}

}  // namespace gristmill::cli
