#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/messages.h"
#include "server/json_writer.h"
#include "text/tokenizer.h"

namespace gristmill::server::openai {

/// How log-probabilities are told.
struct LogprobStyle {
  const text::Tokenizer* tokenizer = nullptr;
  bool tokens_as_ids = false;  ///< "token_id:N" in place of token text
  bool skip_special = true;
};

/// Entries of choices[].logprobs.content of a chat: appended one by one, taken as JSON.
class ChatLogprobs {
 public:
  explicit ChatLogprobs(LogprobStyle style) : style_(style) {}
  /// `top` alternatives are listed.
  void add(const engine::OutputToken& token, size_t top);
  /// {"content":[...]}, after which it is empty; null when nothing was added.
  void take(JsonWriter& json);

 private:
  LogprobStyle style_;
  std::string entries_;
};

/// The four parallel lists of a completion's logprobs.
class CompletionLogprobs {
 public:
  explicit CompletionLogprobs(LogprobStyle style) : style_(style) {}
  void add(const engine::OutputToken& token, size_t top);
  /// The prompt's first token, of which nothing is known.
  void add_first(int32_t token);
  void take(JsonWriter& json);

 private:
  void add_token(int32_t token);

  LogprobStyle style_;
  size_t offset_ = 0;  ///< characters of text so far
  std::string offsets_, values_, tokens_, tops_;
};

/// The prompt's: [null, {"id": {"logprob","rank","decoded_token"}, ...}, ...], with `top` alternatives and the token
/// itself.
void write_prompt_logprobs(JsonWriter& json, const std::vector<engine::OutputToken>& prompt, size_t top,
                           const text::Tokenizer& tokenizer);

}  // namespace gristmill::server::openai
