#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/engine_config.h"
#include "text/text_model.h"

namespace gristmill::cli {

/// What `gristmill eval perplexity` was told.
struct PerplexityOptions {
  engine::EngineConfig engine;  ///< model, device, threads, precision
  std::string file;             ///< UTF-8 text, or chats where its name ends in .jsonl
  int32_t context = 0;          ///< tokens of a window; 0: 512 for text, whole chats for chats
  int64_t max_tokens = 0;       ///< score no more of the file than this many tokens; 0: all
};

/// Token sequences that are scored apart from each other, each from an empty context. The first token of a sequence is
/// not scored, as nothing predicts it.
struct ScoredText {
  std::vector<std::vector<int32_t>> sequences;  ///< each of two tokens or more
  int64_t tokens = 0;                           ///< of all sequences
  int32_t longest = 0;
  std::string method;  ///< how the file was cut, in words
};

/// Cuts `tokens` into windows of `context` that do not overlap; a last window of one token is left out.
std::vector<std::vector<int32_t>> cut_windows(std::span<const int32_t> tokens, int32_t context);

/// Reads and tokenizes options.file. A text is tokenized whole without special tokens and cut into windows. Each line
/// of a .jsonl file is {"messages": [...], "tools": [...]}, rendered by the model's chat template without a generation
/// prompt; one sequence per chat, cut only where options.context asks for it. Throws Error naming file and line.
ScoredText read_scored_text(const PerplexityOptions& options, const text::TextModel& model);

struct Perplexity {
  int64_t scored = 0;     ///< tokens
  double nll = 0;         ///< sum of -ln p over them
  int64_t likeliest = 0;  ///< how many of them were the model's first choice
  double seconds = 0;     ///< without loading

  double nll_mean() const { return nll / static_cast<double>(scored); }
  double value() const;
};

/// Loads the model into an engine of this process and scores `text`; progress goes to stderr. Throws Error, also when
/// an output of the model is not finite.
Perplexity score(const PerplexityOptions& options, const ScoredText& text);

}  // namespace gristmill::cli
