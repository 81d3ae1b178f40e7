#pragma once
#include <cstdint>
#include <string>

#include "engine/messages.h"
#include "server/openai/job.h"
#include "text/detokenizer.h"

namespace gristmill::server::openai {

/// What one engine output meant for a choice.
struct Delta {
  std::string text;   ///< to be sent now
  size_t tokens = 0;  ///< the first so many tokens of the output count; those past a stop string do not
  bool finished = false;
  const char* finish_reason = nullptr;  ///< "stop", "length", "abort"; set when finished
};

/// One of a request's choices: turns tokens into text and decides where it ends.
class Choice {
 public:
  Choice(const Job& job, const text::Tokenizer& tokenizer);

  Delta accept(const engine::EngineOutput& output);
  bool finished() const { return finished_; }
  int64_t tokens() const { return tokens_; }
  /// JSON: null, the id of a stop token, or the stop string.
  const std::string& stop_reason() const { return stop_reason_; }

 private:
  void append(std::string& text, std::string&& piece, Delta& delta);

  const Job& job_;
  text::Detokenizer detokenizer_;
  text::StopStrings stops_;
  int64_t tokens_ = 0;
  bool finished_ = false;
  std::string stop_reason_ = "null";
};

}  // namespace gristmill::server::openai
