#include "cli/perplexity.h"

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <sstream>

#include "base/error.h"
#include "base/terminal_progress.h"
#include "client/engine_client.h"
#include "model/model.h"
#include "text/chat_template.h"
#include "weights/mapped_file.h"

namespace gristmill::cli {
namespace {

constexpr int32_t kTextWindow = 512;
constexpr int32_t kInFlight = 4;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The text of a line {"messages": [...], "tools": [...]}; no tools where they are left out or null.
std::string render_chat(const text::ChatTemplate& chat_template, const std::string& line, const std::string& place) {
  boost::system::error_code failure;
  const boost::json::value value = boost::json::parse(line, failure);
  if (failure) throw Error(cat(place, ": is not JSON: ", failure.message()));
  const boost::json::object* const object = value.if_object();
  const boost::json::value* const messages = object == nullptr ? nullptr : object->if_contains("messages");
  if (messages == nullptr || !messages->is_array())
    throw Error(cat(place, ": must be an object with an array \"messages\""));
  boost::json::object variables{{"add_generation_prompt", false}};
  const boost::json::value* const tools = object->if_contains("tools");
  if (tools != nullptr && !tools->is_null()) variables["tools"] = *tools;
  return chat_template.render(messages->get_array(), variables);
}

/// Keeps the tokens that --max-tokens still allows.
class Collector {
 public:
  Collector(ScoredText& text, int64_t most) : text_(text), left_(most > 0 ? most : INT64_MAX) {}

  bool full() const { return left_ < 2; }
  void add(std::span<const int32_t> tokens, int32_t context) {
    tokens = tokens.first(static_cast<size_t>(std::min<int64_t>(left_, static_cast<int64_t>(tokens.size()))));
    left_ -= static_cast<int64_t>(tokens.size());
    for (std::vector<int32_t>& window : cut_windows(tokens, context)) {
      text_.tokens += static_cast<int64_t>(window.size());
      text_.longest = std::max(text_.longest, static_cast<int32_t>(window.size()));
      text_.sequences.push_back(std::move(window));
    }
  }

 private:
  ScoredText& text_;
  int64_t left_;
};

void add_chats(const PerplexityOptions& options, const text::TextModel& model, Collector& collector) {
  const text::ChatTemplate chat_template(model.chat_template, model.bos, model.eos, text::ContentFormat::automatic,
                                         model.chat_template_origin);
  std::istringstream in{std::string(weights::MappedFile(options.file).text())};
  const int32_t context = options.context > 0 ? options.context : INT32_MAX;
  std::string line;
  for (int64_t number = 1; std::getline(in, line) && !collector.full(); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = cat(options.file, ", line ", number);
    try {
      const std::string rendered = render_chat(chat_template, line, place);
      collector.add(model.tokenizer->encode(rendered, false, /*parse_special=*/true), context);
    } catch (const RequestError& error) {
      throw Error(cat(place, ": ", error.what()));
    }
  }
}

/// The sums of what has been scored, fed by the engine's thread.
class Scores {
 public:
  Scores(std::string model, Perplexity& total, Progress& progress)
      : model_(std::move(model)), total_(total), progress_(progress) {}

  void take(engine::EngineOutput&& output) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 1; i < output.prompt_logprobs.size(); ++i) {
      const TokenLogprob& token = output.prompt_logprobs[i].sampled;
      if (!std::isfinite(token.logprob) && failure_.empty())
        failure_ = cat(model_, ": the model's outputs are not finite (log-likelihood ", token.logprob,
                       "); its weights are damaged, or too large for the precision");
      total_.nll -= static_cast<double>(token.logprob);
      total_.likeliest += token.rank == 1 ? 1 : 0;
      ++total_.scored;
    }
    progress_.advance(output.prompt_logprobs.size());
    if (output.finish == engine::FinishReason::none) return;
    if (output.finish == engine::FinishReason::error && failure_.empty())
      failure_ = cat(model_, ": the engine failed: ", output.error);
    --open_;
    changed_.notify_all();
  }
  /// Waits until fewer than `most` sequences are open, then counts one more. Throws Error once a sequence has failed.
  void open(int32_t most) {
    wait_below(most);
    const std::lock_guard lock(mutex_);
    ++open_;
  }
  void wait_below(int32_t most) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_ < most; });
    if (!failure_.empty()) throw Error(failure_);
  }

 private:
  const std::string model_;
  Perplexity& total_;
  Progress& progress_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int32_t open_ = 0;
  std::string failure_;
};

}  // namespace

double Perplexity::value() const {
  return std::exp(nll_mean());
}

std::vector<std::vector<int32_t>> cut_windows(std::span<const int32_t> tokens, int32_t context) {
  std::vector<std::vector<int32_t>> windows;
  while (tokens.size() > 1) {
    const auto window = tokens.first(std::min(tokens.size(), static_cast<size_t>(context)));
    windows.emplace_back(window.begin(), window.end());
    tokens = tokens.subspan(window.size());
  }
  return windows;
}

ScoredText read_scored_text(const PerplexityOptions& options, const text::TextModel& model) {
  ScoredText text;
  Collector collector(text, options.max_tokens);
  if (options.file.ends_with(".jsonl")) {
    add_chats(options, model, collector);
    text.method = options.context > 0 ? cat("chats, cut into windows of ", options.context) : "whole chats";
  } else {
    const int32_t context = options.context > 0 ? options.context : kTextWindow;
    try {
      collector.add(model.tokenizer->encode(weights::MappedFile(options.file).text(), false, /*parse_special=*/false),
                    context);
    } catch (const RequestError& error) {
      throw Error(cat(options.file, ": ", error.what()));
    }
    text.method = cat("windows of ", context, " tokens that do not overlap");
  }
  text.method += ", each from an empty context, its first token not scored";
  if (text.sequences.empty())
    throw Error(cat(options.file, ": holds fewer than two tokens, there is nothing to score"));
  return text;
}

Perplexity score(const PerplexityOptions& options, const ScoredText& text) {
  engine::EngineConfig config = options.engine;
  config.max_model_len = text.longest + 1;  // the engine draws a token behind each prompt
  config.max_num_seqs = kInFlight;
  config.prefix_caching = false;
  const int32_t trained = model::load_model(config.model, {}).config.context;
  if (config.max_model_len > trained)
    throw Error(cat("a sequence has ", text.longest, " tokens, and the model's context is ", trained,
                    " tokens; give --context ", trained - 1, " or less"));
  const std::unique_ptr<EngineClient> client = make_in_process_client(config);
  client->wait_ready(-1);

  Perplexity total;
  TerminalProgress progress;
  const auto scores = std::make_shared<Scores>(options.engine.model, total, progress);
  progress.begin("scoring", static_cast<uint64_t>(text.tokens));
  const double started = seconds_now();
  for (const std::vector<int32_t>& sequence : text.sequences) {
    scores->open(kInFlight);
    engine::EngineRequest request;
    request.id = client->next_id();
    request.prompt = sequence;
    request.sampling.temperature = 0;
    request.sampling.max_tokens = 1;
    request.sampling.prompt_logprobs = 0;
    client->submit(std::move(request), [scores](engine::EngineOutput&& output) { scores->take(std::move(output)); });
  }
  scores->wait_below(1);
  total.seconds = seconds_now() - started;
  progress.end();
  return total;
}

}  // namespace gristmill::cli
