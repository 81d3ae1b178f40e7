#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sample/sampling_params.h"
#include "server/openai/request.h"
#include "server/served_model.h"

namespace gristmill::server::openai {

struct Prompt {
  std::vector<int32_t> ids;
  std::string text;  ///< only when it is echoed
};

/// A request made ready: prompts as ids, every default filled in, everything checked against the model. What the engine
/// gets and how its answer is told.
struct Job {
  bool chat = false;
  std::vector<Prompt> prompts;
  SamplingParams sampling;
  int32_t n = 1;
  int32_t priority = 0;
  std::string cache_salt;
  std::string request_id;  ///< the client's, if usable

  // The answer.
  std::string model;  ///< name to answer with
  std::string role;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool prompt_tokens_details = false;
  bool strict_vllm = false;
  int32_t stream_interval = 1;
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special = true;
  bool echo = false;
  std::string chat_echo;            ///< text put before a chat's answer
  bool no_output = false;           ///< completions with max_tokens 0: only the prompt is wanted
  std::optional<int64_t> logprobs;  ///< alternatives per token
  std::optional<int64_t> prompt_logprobs;
  bool return_token_ids = false;
  bool tokens_as_ids = false;

  std::vector<std::string> warnings;  ///< for the Warning header

  int32_t choices() const { return static_cast<int32_t>(prompts.size()) * n; }
};

/// Tokenizes and checks. Pure functions of their arguments: they may run on any thread. Throw ApiError.
Job prepare_chat(const ChatRequest& request, const ServedModel& model, const ApiPolicy& policy);
Job prepare_completion(const CompletionRequest& request, const ServedModel& model, const ApiPolicy& policy);

/// A request may name the model or not; any other name is ApiError 404.
void check_model_name(const std::optional<std::string>& name, const ServedModel& model);

/// The chat's prompt text; `messages` are converted already. Guarded (text/guarded_text.h) where the policy says so.
std::string render_chat(const ChatRequest& request, boost::json::array messages, const ServedModel& model,
                        const ApiPolicy& policy);

/// The ids of what render_chat() gave. Throws RequestError with an empty field.
std::vector<int32_t> encode_chat(const std::string& text, bool add_special, const ServedModel& model,
                                 const ApiPolicy& policy);

}  // namespace gristmill::server::openai
