#include "sample/sampling_params.h"

#include <cmath>

#include "base/error.h"

namespace gristmill {
namespace {

void check_token(const char* field, int32_t token, int32_t vocabulary) {
  if (token < 0 || token >= vocabulary) {
    throw RequestError(field,
                       cat(field, " holds token id ", token, ", but the vocabulary has ids 0 to ", vocabulary - 1));
  }
}

void require(bool holds, const char* field, const char* rule) {
  if (!holds) throw RequestError(field, cat(field, " must be ", rule));
}

}  // namespace

void validate(const SamplingParams& p, int32_t vocabulary) {
  require(std::isfinite(p.temperature) && p.temperature >= 0, "temperature", "a number of at least 0");
  require(p.top_p > 0 && p.top_p <= 1, "top_p", "in (0, 1]");
  require(p.top_k >= -1, "top_k", "-1 or 0 (off), or at least 1");
  require(p.min_p >= 0 && p.min_p <= 1, "min_p", "in [0, 1]");
  require(std::isfinite(p.repetition_penalty) && p.repetition_penalty > 0, "repetition_penalty", "above 0");
  require(p.presence_penalty >= -2 && p.presence_penalty <= 2, "presence_penalty", "in [-2, 2]");
  require(p.frequency_penalty >= -2 && p.frequency_penalty <= 2, "frequency_penalty", "in [-2, 2]");
  require(p.max_tokens >= 0, "max_tokens", "at least 0");
  require(p.min_tokens >= 0, "min_tokens", "at least 0");
  require(p.min_tokens <= p.max_tokens, "min_tokens", "at most max_tokens");
  require(p.logprobs >= -1 && p.logprobs <= vocabulary, "logprobs", "between 0 and the size of the vocabulary");
  require(p.prompt_logprobs >= -1 && p.prompt_logprobs <= vocabulary, "prompt_logprobs",
          "between 0 and the size of the vocabulary");
  for (const int32_t token : p.stop_token_ids) check_token("stop_token_ids", token, vocabulary);
  for (const int32_t token : p.allowed_token_ids) check_token("allowed_token_ids", token, vocabulary);
  for (const auto& [token, bias] : p.logit_bias) {
    check_token("logit_bias", token, vocabulary);
    require(std::isfinite(bias), "logit_bias", "made of finite numbers");
  }
  for (const auto& word : p.bad_words) {
    require(!word.empty(), "bad_words", "made of words that are not empty");
    for (const int32_t token : word) check_token("bad_words", token, vocabulary);
  }
}

}  // namespace gristmill
