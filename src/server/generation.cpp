#include "server/generation.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "server/api_error.h"

namespace gristmill::server {

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void OutputInbox::put(std::weak_ptr<Generation> generation, size_t prompt, engine::EngineOutput&& output) {
  const std::lock_guard lock(mutex_);
  if (!loop_) return;
  items_.push_back({std::move(generation), prompt, std::move(output)});
  if (items_.size() == 1) loop_->post([this] { deliver(); });
}

void OutputInbox::close() {
  const std::lock_guard lock(mutex_);
  loop_ = nullptr;
  items_.clear();
}

void OutputInbox::deliver() {
  {
    const std::lock_guard lock(mutex_);
    delivering_.swap(items_);
  }
  for (Item& item : delivering_) {
    if (const auto generation = item.generation.lock()) generation->accept(item.prompt, std::move(item.output));
  }
  delivering_.clear();
}

Generation::Generation(GenerationHost& host, std::shared_ptr<Exchange> exchange, openai::Job job,
                       std::shared_ptr<const ServedModel> model, std::string id, double arrival)
    : host_(host),
      exchange_(std::move(exchange)),
      job_(std::move(job)),
      model_(std::move(model)),
      id_(std::move(id)),
      arrival_(arrival),
      timings_(static_cast<size_t>(job_.choices())),
      cached_(job_.prompts.size(), -1),
      unfinished_(static_cast<size_t>(job_.choices())) {
  const int64_t created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  answer_ = job_.chat ? openai::make_chat_answer(job_, *model_, id_, created)
                      : openai::make_completion_answer(job_, *model_, id_, created);
  choices_.reserve(unfinished_);
  for (size_t i = 0; i < unfinished_; ++i) choices_.emplace_back(job_, *model_->tokenizer);
  for (const openai::Prompt& prompt : job_.prompts) prompt_bytes_ += prompt.ids.size() * sizeof(int32_t);
}

void Generation::start() {
  exchange_->on_gone([weak = weak_from_this()] {
    if (const auto alive = weak.lock()) alive->client_gone();
  });
  for (size_t i = 0; i < job_.prompts.size(); ++i) {
    engine::EngineRequest request;
    request.id = host_.client().next_id();
    request.prompt = job_.prompts[i].ids;
    request.sampling = job_.sampling;
    request.n = job_.n;
    request.priority = job_.priority;
    request.eos_ids = model_->end_ids;
    request.known_tokens = model_->known_tokens();
    request.cache_salt = job_.cache_salt;
    engine_ids_.push_back(request.id);
    host_.client().submit(std::move(request),
                          [inbox = host_.inbox(), self = weak_from_this(), i](engine::EngineOutput&& output) {
                            inbox->put(self, i, std::move(output));
                          });
  }
}

void Generation::accept(size_t prompt, engine::EngineOutput&& output) {
  if (over_) return;
  if (output.finish == engine::FinishReason::error) {
    fail(output);
    return;
  }
  const size_t choice = prompt * static_cast<size_t>(job_.n) + static_cast<size_t>(output.index);
  if (output.index < 0 || output.index >= job_.n || choices_[choice].finished()) return;
  if (!output.prompt_logprobs.empty()) answer_->set_prompt_logprobs(prompt, std::move(output.prompt_logprobs));
  if (output.tokens.empty() && output.finish == engine::FinishReason::none) return;
  note_output(prompt, choice, output);
  const openai::Delta delta = choices_[choice].accept(output);
  answer_->accept(choice, delta, output, choices_[choice].stop_reason());
  if (delta.finished) {
    --unfinished_;
    choice_over(choice, delta.finish_reason);
    // The engine knows nothing of stop strings.
    if (output.finish == engine::FinishReason::none) host_.client().abort(engine_ids_[prompt], output.index);
  }
  if (job_.stream) tell(choice);
  if (!over_ && unfinished_ == 0) conclude();
}

void Generation::note_output(size_t prompt, size_t choice, const engine::EngineOutput& output) {
  timings_[choice].queued = output.queued;
  timings_[choice].scheduled = output.scheduled;
  // The end of a prompt of which nothing more is wanted counts like a first token.
  if (output.tokens.empty() && !job_.no_output) return;
  const double now = monotonic_seconds();
  ServingMetrics& metrics = host_.metrics();
  Timing& timing = timings_[choice];
  if (cached_[prompt] < 0) {
    cached_[prompt] = output.cached_tokens;
    metrics.first_output(static_cast<int64_t>(job_.prompts[prompt].ids.size()), output.cached_tokens, now - arrival_);
  }
  if (waiting_) {
    waiting_ = false;
    host_.admitted(*this);
  }
  if (output.tokens.empty()) return;
  if (timing.first > 0) {
    metrics.more_output(now - timing.last);
  } else {
    timing.first = now;
    timing.first_made = output.made;
  }
  timing.last = now;
  timing.last_made = output.made;
  timing.generated += static_cast<int64_t>(output.tokens.size());
  metrics.generated(static_cast<int64_t>(output.tokens.size()));
}

void Generation::choice_over(size_t choice, const char* reason) {
  const size_t prompt = choice / static_cast<size_t>(job_.n);
  FinishedChoice done;
  done.reason = reason;
  done.arrival = arrival_;
  done.queued = timings_[choice].queued;
  done.scheduled = timings_[choice].scheduled;
  done.first_token = timings_[choice].first_made;
  done.last_token = timings_[choice].last_made;
  done.end = monotonic_seconds();
  done.prompt_tokens = static_cast<int64_t>(job_.prompts[prompt].ids.size());
  done.cached_tokens = std::max(0, cached_[prompt]);
  done.generated_tokens = timings_[choice].generated;
  done.max_tokens = job_.sampling.max_tokens;
  host_.metrics().finished(done);
}

void Generation::begin_stream() {
  if (streaming_) return;
  streaming_ = true;
  Response head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.set("Cache-Control", "no-cache");
  head.set("X-Accel-Buffering", "no");  // nginx would hold events back
  exchange_->start_stream(std::move(head));
}

void Generation::tell(size_t choice) {
  if (!answer_->chunk_due(choice)) return;
  begin_stream();
  events_.clear();
  answer_->append_chunk(events_, choice);
  exchange_->write(events_);
}

openai::Usage Generation::usage() const {
  openai::Usage usage;
  for (const openai::Prompt& prompt : job_.prompts) usage.prompt_tokens += static_cast<int64_t>(prompt.ids.size());
  for (const int32_t cached : cached_) usage.cached_tokens += std::max(0, cached);
  for (const openai::Choice& choice : choices_) usage.completion_tokens += choice.tokens();
  return usage;
}

void Generation::conclude() {
  const std::shared_ptr<Generation> self = shared_from_this();
  if (job_.stream) {
    begin_stream();
    events_.clear();
    if (job_.include_usage) answer_->append_usage_chunk(events_, usage());
    events_ += "data: [DONE]\n\n";
    exchange_->write(events_);
    end();
    exchange_->finish();
    return;
  }
  Response response;
  answer_->append_body(response.body, usage());
  end();
  exchange_->respond(std::move(response));
}

void Generation::fail(const engine::EngineOutput& output) {
  const std::shared_ptr<Generation> self = shared_from_this();
  const bool away = !output.bad_request && host_.client().health() != EngineHealth::ready;
  const int status = output.bad_request ? 400 : away ? 503 : 500;
  const char* const type = output.bad_request ? "BadRequestError"
                           : away             ? "ServiceUnavailableError"
                                              : "InternalServerError";
  const std::string message = output.error.empty() ? "the engine failed" : output.error;
  LOG_WARNING("request ", id_, " failed: ", shorten(message, 400));
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (!choices_[i].finished()) choice_over(i, "error");
  }
  for (size_t i = 0; i < engine_ids_.size(); ++i) host_.client().abort(engine_ids_[i]);
  end();
  if (streaming_) {
    events_ = "data: ";
    append_error_body(events_, status, type, message, {});
    events_ += "\n\ndata: [DONE]\n\n";
    exchange_->write(events_);
    exchange_->finish();
  } else {
    exchange_->respond(error_response(ApiError(status, type, message)));
  }
}

void Generation::client_gone() {
  if (over_) return;
  const std::shared_ptr<Generation> self = shared_from_this();
  for (const engine::RequestId id : engine_ids_) host_.client().abort(id);
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (!choices_[i].finished()) choice_over(i, "abort");
  }
  LOG_DEBUG("request ", id_, " aborted: its client went away");
  end();
}

std::string Generation::describe() const {
  size_t tokens = 0;
  for (const openai::Prompt& prompt : job_.prompts) tokens += prompt.ids.size();
  const SamplingParams& s = job_.sampling;
  return cat("prompts: ", job_.prompts.size(), ", prompt tokens: ", tokens, ", n: ", job_.n,
             ", max_tokens: ", s.max_tokens, ", temperature: ", s.temperature, ", top_p: ", s.top_p,
             ", top_k: ", s.top_k, ", min_p: ", s.min_p, ", seed: ", s.seed ? std::to_string(*s.seed) : "none",
             ", stop: ", job_.stop.size(), ", stream: ", job_.stream ? "true" : "false");
}

void Generation::abort() {
  for (const engine::RequestId id : engine_ids_) host_.client().abort(id);
}

void Generation::end() {
  over_ = true;
  int64_t most = 0;
  for (const Timing& timing : timings_) most = std::max(most, timing.generated);
  host_.metrics().request_over(job_.n, most);
  host_.ended(*this);
}

}  // namespace gristmill::server
