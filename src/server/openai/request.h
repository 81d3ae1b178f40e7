#pragma once
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace gristmill::server::openai {

/// What chat and completion requests have in common, as it was sent: absent fields are empty where the default depends
/// on the model. Types and ranges that need no model are checked.
struct CommonFields {
  std::optional<std::string> model;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  double presence_penalty = 0, frequency_penalty = 0;
  std::optional<int64_t> seed;
  std::optional<int64_t> max_tokens;  ///< of chats also max_completion_tokens
  int64_t min_tokens = 0;
  int32_t n = 1;
  bool ignore_eos = false;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<int32_t> allowed_token_ids;
  std::vector<std::string> bad_words;
  std::optional<int64_t> logprobs;         ///< alternatives per token; -1: the whole vocabulary
  std::optional<int64_t> prompt_logprobs;  ///< the same
  bool echo = false;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage_stats = false;
  bool return_token_ids = false;
  std::optional<bool> return_tokens_as_token_ids;
  std::optional<bool> add_special_tokens;
  std::optional<int64_t> truncate_prompt_tokens;
  int32_t priority = 0;
  std::string cache_salt;
  std::string request_id;
  std::vector<std::string> ignored;  ///< fields that were sent and have no effect
};

struct ChatRequest {
  CommonFields common;
  boost::json::array messages;  ///< as sent
  boost::json::array tools;
  bool tools_in_prompt = true;  ///< false: tool_choice none was sent
  boost::json::object template_kwargs;
  std::string chat_template;  ///< empty: the model's
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

struct CompletionRequest {
  CommonFields common;
  std::vector<std::variant<std::string, std::vector<int32_t>>> prompts;
};

/// Both throw ApiError (400) that names the field, with its path, and the reason.
ChatRequest parse_chat_request(const boost::json::object& body);
CompletionRequest parse_completion_request(const boost::json::object& body);

/// Limits on lists, stated in the messages that refuse more.
constexpr size_t max_stop_strings = 64;
constexpr size_t max_stop_bytes = 1024;
constexpr size_t max_token_id_list = 1 << 18;
constexpr size_t max_bad_words = 1024;
constexpr size_t max_batched_prompts = 4096;
constexpr int max_choices = 1024;

}  // namespace gristmill::server::openai
