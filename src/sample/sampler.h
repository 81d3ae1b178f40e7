#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "sample/ranking.h"
#include "sample/sampling_params.h"

namespace gristmill {

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
  int32_t rank = 0;  ///< 1 = the most likely
};

/// How often each token stands in a sequence's prompt and output; what penalties count.
class TokenCounts {
 public:
  void add_prompt(std::span<const int32_t> tokens);
  void add_output(int32_t token) { ++counts_[token].output; }
  struct Count {
    bool prompt = false;
    int32_t output = 0;
  };
  const std::unordered_map<int32_t, Count>& counts() const { return counts_; }

 private:
  std::unordered_map<int32_t, Count> counts_;
};

/// What the sampler knows of the sequence a row belongs to.
struct SampleContext {
  const SamplingParams* params = nullptr;
  uint64_t seed = 0;                    ///< the request's, or one drawn for it at admission
  uint32_t choice = 0;                  ///< index among the n choices
  std::span<const int32_t> output;      ///< tokens generated so far
  std::span<const int32_t> stop_ids;    ///< EOS and stop ids, masked until min_tokens are out
  const TokenCounts* counts = nullptr;  ///< only when a penalty is on
};

struct Sampled {
  int32_t token = 0;
  TokenLogprob sampled;  ///< filled when params->logprobs >= 0
  std::vector<TokenLogprob> top;
};

/// Why a row of logits has no next token, whatever the request asks for.
extern const char* const not_finite_message;

/// Draws one token from a row of logits. The result depends only on the logits and the context, never on other rows.
/// Holds scratch for one vocabulary: one Sampler per thread.
class Sampler {
 public:
  explicit Sampler(int32_t vocabulary, LogprobsMode mode = LogprobsMode::raw_logprobs);
  /// Whether the argmax of the unchanged logits is the answer, so that the back end need not hand out the row.
  static bool argmax_is_enough(const SampleContext& context);
  /// `logits` may be shorter than the vocabulary: ids beyond them do not exist. The ids of the request must be below
  /// their number. Throws RequestError when the request's masks leave no token, and Error (not_finite_message) when the
  /// logits themselves hold NaN or have no finite largest value.
  Sampled sample(std::span<const float> logits, const SampleContext& context);
  /// Log-probabilities of `token` (-inf when it is beyond the row) and of the `top` most likely tokens of a row. Throws
  /// Error (not_finite_message) as sample() does.
  void logprobs(std::span<const float> logits, int32_t token, int32_t top, TokenLogprob& of_token,
                std::vector<TokenLogprob>& best);

 private:
  /// logprobs(), or with `as_logits` the logits themselves.
  void report(std::span<const float> logits, int32_t token, int32_t top, bool as_logits, TokenLogprob& of_token,
              std::vector<TokenLogprob>& best);
  void adjust(const SampleContext& context);
  int32_t draw(const SampleContext& context);
  void keep_only(std::span<const int32_t> ids);
  LogprobsMode mode_;
  std::vector<float> logits_;   ///< after masks, biases and penalties
  std::vector<float> weights_;  ///< exp of them
  Ranking ranking_;
};

}  // namespace gristmill
