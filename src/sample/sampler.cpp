#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "sample/random.h"
#include "sample/vector_math.h"

namespace gristmill {
namespace {

constexpr float masked = -std::numeric_limits<float>::infinity();

bool penalized(const SamplingParams& p) {
  return p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f;
}

// True when `word` without its last token is what the output ends with.
bool completes(const std::vector<int32_t>& word, std::span<const int32_t> output) {
  const size_t before = word.size() - 1;
  return output.size() >= before &&
         std::equal(word.begin(), word.end() - 1, output.end() - static_cast<std::ptrdiff_t>(before));
}

int32_t argmax(std::span<const float> values) {
  const float best = max_value(values);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == best) return static_cast<int32_t>(i);
  }
  return 0;
}

// -inf alone is a value a model may give to an id that never follows.
void expect_finite(std::span<const float> logits) {
  if (!std::isfinite(max_value(logits)) || has_nan(logits)) throw Error(not_finite_message);
}

}  // namespace

const char* const not_finite_message =
    "the model's logits are not finite (NaN): its weights hold values that are no numbers, or a layer overflows; check "
    "the model file, or try --dtype float32";

void TokenCounts::add_prompt(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) counts_[token].prompt = true;
}

Sampler::Sampler(int32_t vocabulary, LogprobsMode mode)
    : mode_(mode), logits_(static_cast<size_t>(vocabulary)), weights_(static_cast<size_t>(vocabulary)) {}

bool Sampler::argmax_is_enough(const SampleContext& context) {
  const SamplingParams& p = *context.params;
  return p.greedy() && p.logprobs < 0 && !penalized(p) && p.logit_bias.empty() && p.allowed_token_ids.empty() &&
         p.bad_words.empty() && static_cast<size_t>(p.min_tokens) <= context.output.size();
}

// Masks, biases and penalties in vLLM's order (CONTRACT 3.3; temperature and truncation follow in draw()).
void Sampler::adjust(const SampleContext& context) {
  const SamplingParams& p = *context.params;
  if (!p.allowed_token_ids.empty()) keep_only(p.allowed_token_ids);
  for (const auto& word : p.bad_words) {
    if (completes(word, context.output)) logits_[static_cast<size_t>(word.back())] = masked;
  }
  if (context.output.size() < static_cast<size_t>(p.min_tokens)) {
    for (const int32_t token : context.stop_ids) logits_[static_cast<size_t>(token)] = masked;
  }
  for (const auto& [token, bias] : p.logit_bias)
    logits_[static_cast<size_t>(token)] += std::clamp(bias, -100.0f, 100.0f);
  if (context.counts == nullptr || !penalized(p)) return;
  for (const auto& [token, count] : context.counts->counts()) {
    float& logit = logits_[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
    logit -= p.frequency_penalty * static_cast<float>(count.output);
    if (count.output > 0) logit -= p.presence_penalty;
  }
}

int32_t Sampler::draw(const SampleContext& context) {
  const SamplingParams& p = *context.params;
  const float maximum = max_value(logits_);
  exp_shifted(logits_, maximum, 1.0f / p.temperature, weights_.data());

  // min_p keeps weights of at least min_p times the largest, which is exp(0) = 1.
  if (p.min_p > 0) {
    for (size_t i = 0; i < weights_.size(); ++i) {
      if (weights_[i] < p.min_p) weights_[i] = 0, logits_[i] = masked;
    }
  }
  const double uniform = uniform_draw(context.seed, context.choice, context.output.size());
  const bool by_rank = (p.top_k > 0 && static_cast<size_t>(p.top_k) < logits_.size()) || p.top_p < 1.0f;
  if (!by_rank) {
    double left = uniform * lane_sum(weights_);
    int32_t last = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      if (weights_[i] <= 0) continue;
      last = static_cast<int32_t>(i);
      left -= static_cast<double>(weights_[i]);
      if (left < 0) break;
    }
    return last;
  }
  std::span<const int32_t> ids;
  double total = 0;
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < logits_.size()) {
    ids = ranking_.best(logits_, p.top_k);
    for (const int32_t id : ids) total += static_cast<double>(weights_[static_cast<size_t>(id)]);
    if (p.top_p < 1.0f) {  // the nucleus of what top_k left
      double seen = 0;
      size_t kept = 0;
      const double wanted = static_cast<double>(p.top_p) * total;
      while (kept < ids.size() && (kept == 0 || seen < wanted))
        seen += static_cast<double>(weights_[static_cast<size_t>(ids[kept++])]);
      ids = ids.first(kept);
      total = seen;
    }
  } else {
    ids = ranking_.nucleus(logits_, weights_, lane_sum(weights_), static_cast<double>(p.top_p));
    for (const int32_t id : ids) total += static_cast<double>(weights_[static_cast<size_t>(id)]);
  }
  int32_t drawn = ids.back();
  double left = uniform * total;
  for (const int32_t id : ids) {
    left -= static_cast<double>(weights_[static_cast<size_t>(id)]);
    if (left < 0) {
      drawn = id;
      break;
    }
  }
  if (p.logprobs >= 0 && (mode_ == LogprobsMode::processed_logprobs || mode_ == LogprobsMode::processed_logits))
    keep_only(ids);
  return drawn;
}

// Masks every other token, so that processed log-probabilities are those of the draw.
void Sampler::keep_only(std::span<const int32_t> ids) {
  std::vector<std::pair<int32_t, float>> kept;
  kept.reserve(ids.size());
  for (const int32_t id : ids) kept.emplace_back(id, logits_[static_cast<size_t>(id)]);
  std::fill(logits_.begin(), logits_.end(), masked);
  for (const auto& [id, logit] : kept) logits_[static_cast<size_t>(id)] = logit;
}

Sampled Sampler::sample(std::span<const float> logits, const SampleContext& context) {
  expect_finite(logits);
  Sampled result;
  logits_.assign(logits.begin(), logits.end());
  weights_.resize(logits.size());
  adjust(context);
  if (!(max_value(logits_) > masked)) {
    throw RequestError("allowed_token_ids",
                       "allowed_token_ids, bad_words and min_tokens leave no token that may follow");
  }
  const SamplingParams& p = *context.params;
  result.token = p.greedy() ? argmax(logits_) : draw(context);
  if (p.logprobs >= 0) {
    const bool raw = mode_ == LogprobsMode::raw_logprobs || mode_ == LogprobsMode::raw_logits;
    if (!raw && !p.greedy()) {
      for (float& logit : logits_) logit /= p.temperature;
    }
    const bool as_logits = mode_ == LogprobsMode::raw_logits || mode_ == LogprobsMode::processed_logits;
    report(raw ? logits : std::span<const float>(logits_), result.token, p.logprobs, as_logits, result.sampled,
           result.top);
  }
  return result;
}

void Sampler::logprobs(std::span<const float> logits, int32_t token, int32_t top, TokenLogprob& of_token,
                       std::vector<TokenLogprob>& best) {
  expect_finite(logits);
  report(logits, token, top, false, of_token, best);
}

void Sampler::report(std::span<const float> logits, int32_t token, int32_t top, bool as_logits, TokenLogprob& of_token,
                     std::vector<TokenLogprob>& best) {
  const float maximum = max_value(logits);
  weights_.resize(logits.size());
  exp_shifted(logits, maximum, 1.0f, weights_.data());
  const double log_total = std::log(lane_sum(weights_));
  const auto logprob = [&](int32_t id) {
    if (as_logits) return logits[static_cast<size_t>(id)];
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - static_cast<double>(maximum) -
                              log_total);
  };
  const bool beyond = static_cast<size_t>(token) >= logits.size();
  const float own = beyond ? masked : logits[static_cast<size_t>(token)];
  int32_t rank = 1;
  for (size_t i = 0; i < logits.size(); ++i) {
    rank += logits[i] > own || (logits[i] == own && static_cast<int32_t>(i) < token) ? 1 : 0;
  }
  of_token = {token, beyond ? masked : logprob(token), rank};
  best.clear();
  if (top <= 0) return;
  int32_t place = 0;
  for (const int32_t id : ranking_.best(logits, top)) best.push_back({id, logprob(id), ++place});
}

}  // namespace gristmill
