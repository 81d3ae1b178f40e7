#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace gristmill {

/// What reported log-probabilities are: of the model's logits as they are (raw), or of what the token was drawn from,
/// after masks, penalties, temperature and truncation (processed); or those logits themselves.
enum class LogprobsMode : uint8_t { raw_logprobs, processed_logprobs, raw_logits, processed_logits };

/// What a request asks of the sampler. Ranges are checked by validate(); the defaults do nothing.
struct SamplingParams {
  float temperature = 1.0f;         ///< below 1e-5: greedy, and top_k, top_p, min_p are ignored
  float top_p = 1.0f;               ///< (0, 1]
  int32_t top_k = 0;                ///< 0 or -1: off
  float min_p = 0.0f;               ///< [0, 1]
  float repetition_penalty = 1.0f;  ///< > 0; counts prompt and output
  float presence_penalty = 0.0f;    ///< [-2, 2]; counts output
  float frequency_penalty = 0.0f;   ///< [-2, 2]; counts output
  std::optional<int64_t> seed;
  int32_t max_tokens = 16;  ///< >= 0; 0: the prompt is computed and nothing drawn
  int32_t min_tokens = 0;   ///< stop ids are masked until so many tokens are out
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<int32_t> allowed_token_ids;       ///< empty: all
  std::vector<std::vector<int32_t>> bad_words;  ///< token sequences never to be completed
  int32_t logprobs = -1;  ///< number of top log-probabilities per token; -1: none at all; 0: the sampled one only
  int32_t prompt_logprobs = -1;  ///< the same for prompt tokens

  bool greedy() const { return temperature < 1e-5f; }
};

/// Throws RequestError naming the field that is out of range. `vocabulary` bounds token ids.
void validate(const SamplingParams& params, int32_t vocabulary);

}  // namespace gristmill
