#include "server/openai/choice.h"

#include <utility>

#include "server/json_writer.h"

namespace gristmill::server::openai {
namespace {

const char* name_of(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::stop:
      return "stop";
    case engine::FinishReason::length:
      return "length";
    case engine::FinishReason::abort:
      return "abort";
    case engine::FinishReason::error:
      return "error";
    case engine::FinishReason::none:
      break;
  }
  return nullptr;
}

}  // namespace

Choice::Choice(const Job& job, const text::Tokenizer& tokenizer)
    : job_(job), detokenizer_(tokenizer, job.skip_special), stops_(job.stop, job.include_stop) {}

/// Until min_tokens are out, stop strings are not looked for.
void Choice::append(std::string& text, std::string&& piece, Delta& delta) {
  if (job_.stop.empty() || tokens_ <= job_.sampling.min_tokens) {
    text += piece;
    return;
  }
  text::StopStrings::Result result = stops_.push(piece);
  text += result.text;
  if (result.matched < 0) return;
  stop_reason_.clear();
  append_json_string(stop_reason_, job_.stop[static_cast<size_t>(result.matched)]);
  delta.finished = true;
  delta.finish_reason = "stop";
}

Delta Choice::accept(const engine::EngineOutput& output) {
  Delta delta;
  if (finished_) return delta;
  for (size_t i = 0; i < output.tokens.size() && !delta.finished; ++i) {
    ++tokens_;
    ++delta.tokens;
    const bool ends_here = output.finish == engine::FinishReason::stop && i + 1 == output.tokens.size();
    if (ends_here && !job_.include_stop) break;  // the text of EOS and stop ids is no part of the answer
    append(delta.text, detokenizer_.push(output.tokens[i].token), delta);
  }
  if (!delta.finished && output.finish != engine::FinishReason::none) {
    append(delta.text, detokenizer_.finish(), delta);
    if (!delta.finished) {
      delta.text += stops_.finish();
      delta.finished = true;
      delta.finish_reason = name_of(output.finish);
      if (output.finish == engine::FinishReason::stop && output.stop_token >= 0) {
        stop_reason_ = std::to_string(output.stop_token);
      }
    }
  }
  finished_ = delta.finished;
  return delta;
}

}  // namespace gristmill::server::openai
