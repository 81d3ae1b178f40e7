#include "engine/engine.h"

#include <algorithm>
#include <chrono>

#include "base/host_memory.h"
#include "base/log.h"
#include "base/topology.h"
#include "model/model.h"

namespace gristmill::engine {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Row i of a prompt predicts token i + 1: every row whose next token is a prompt token reports, when asked for.
int32_t reported_rows(const PlanEntry& entry) {
  const Sequence& s = *entry.sequence;
  if (!s.reports_prompt()) return 0;
  return std::max(std::min(entry.first + entry.count, s.prompt_size() - 1) - entry.first, 0);
}

std::string grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

DType choose_cache_dtype(const EngineConfig& config, const device::Program& program) {
  if (config.cache_dtype) return *config.cache_dtype;
  if (config.float32) return DType::f32;
  for (const device::Op& op : program.ops()) {
    const auto* const attention = std::get_if<device::AttentionOp>(&op);
    if (attention == nullptr || !attention->attention.cache_scales) continue;
    LOG_INFO("KV cache: int8 with the scales of the checkpoint (C8); --kv-cache-dtype chooses another type");
    return DType::i8;
  }
  return DType::bf16;
}

}  // namespace

struct Engine::Loaded {
  std::shared_ptr<const device::Program> program;
  int32_t trained_len = 0;
  std::string identity;  ///< of the model's weights
  std::unique_ptr<device::Backend> owned_backend;
  device::Backend* backend = nullptr;
};

Engine::Engine(const EngineConfig& config, Progress& progress)
    : Engine(
          config,
          [&] {
            model::BuildOptions options;
            options.exact = config.float32;
            options.quantization = config.quantization;
            options.float_linears = config.float_linears;
            options.load_format = config.load_format;
            options.hf_overrides = config.hf_overrides;
            model::Model model = model::load_model(config.model, options);
            Loaded loaded;
            loaded.program = std::move(model.program);
            loaded.identity = std::move(model.identity);
            loaded.trained_len = model.config.context;
            if (config.device == "reference") {
              loaded.owned_backend = device::make_reference_backend();
            } else if (config.device == "cpu") {
              loaded.owned_backend = device::make_cpu_backend(
                  config.threads > 0 ? config.threads : usable_cores(),
                  config.float32 ? device::ActivationMode::f32 : device::ActivationMode::int8, config.topology);
            } else {
              throw Error(cat("--device ", config.device, " is not supported; choose cpu or reference"));
            }
            loaded.backend = loaded.owned_backend.get();
            return loaded;
          }(),
          progress) {}

Engine::Engine(const EngineConfig& config, std::shared_ptr<const device::Program> program, int32_t trained_len,
               device::Backend& backend, Progress& progress)
    : Engine(
          config,
          [&] {
            Loaded loaded;
            loaded.program = std::move(program);
            loaded.trained_len = trained_len;
            loaded.backend = &backend;
            return loaded;
          }(),
          progress) {}

Engine::Engine(const EngineConfig& config, Loaded loaded, Progress& progress)
    : config_(config),
      program_(std::move(loaded.program)),
      backend_(std::move(loaded.owned_backend)),
      sampler_(program_->vocabulary(), config.logprobs_mode),
      trace_(config.trace_path) {
  const double started = seconds_now();
  if (config_.max_model_len > loaded.trained_len) {
    throw Error(cat("User-specified max_model_len (", config_.max_model_len,
                    ") is greater than the derived max_model_len (", loaded.trained_len,
                    " by the model file). Lower --max-model-len."));
  }
  const int32_t model_len = config_.max_model_len > 0 ? config_.max_model_len : loaded.trained_len;
  const int32_t max_num_seqs = config_.max_num_seqs > 0 ? config_.max_num_seqs : 128;
  int32_t batched = config_.max_num_batched_tokens > 0 ? config_.max_num_batched_tokens : std::max(2048, max_num_seqs);
  if (batched < max_num_seqs) {
    throw Error(cat("max_num_batched_tokens (", batched, ") must be greater than or equal to max_num_seqs (",
                    max_num_seqs, "). Raise --max-num-batched-tokens or lower --max-num-seqs."));
  }
  if (!config_.chunked_prefill && batched < model_len) {
    if (config_.max_num_batched_tokens > 0) {
      throw Error(cat("max_num_batched_tokens (", batched, ") is smaller than max_model_len (", model_len,
                      "), which without chunked prefill would refuse long prompts. Raise --max-num-batched-tokens, "
                      "lower --max-model-len or leave --enable-chunked-prefill on."));
    }
    batched = model_len;
  }
  SchedulerLimits limits;
  limits.max_num_seqs = max_num_seqs;
  limits.max_num_batched_tokens = batched;
  limits.long_prefill_token_threshold = config_.long_prefill_token_threshold;
  limits.mixed_prefill_tokens = config_.mixed_prefill_tokens;
  limits.max_num_partial_prefills = config_.max_num_partial_prefills;
  limits.max_long_partial_prefills = config_.max_long_partial_prefills;
  limits.chunked_prefill = config_.chunked_prefill;
  limits.policy = config_.policy;

  device::Limits device_limits;
  device_limits.tokens = batched;
  device_limits.seqs = max_num_seqs;
  device_limits.rows = std::min(batched, max_num_seqs + limits.prompt_logprob_tokens);
  device_limits.context = model_len;
  const DType cache_dtype = choose_cache_dtype(config_, *program_);
  // Smaller models are packed in less time than it takes to look after a file.
  constexpr uint64_t kLeastCached = 16 << 20;
  executable_ = loaded.backend->compile(
      program_, device_limits, {cache_dtype, config_.block_size},
      {config_.weight_cache_dir, loaded.identity, static_cast<uint64_t>(config_.weight_cache_bytes), kLeastCached,
       config_.weight_residence});
  const EngineMemoryPlan plan = plan_memory(config_, executable_->memory(), memory_limit(), config_.max_model_len,
                                            loaded.trained_len, max_num_seqs);
  limits.max_model_len = plan.max_model_len;
  LOG_INFO("Using max model len ", plan.max_model_len);
  if (config_.chunked_prefill) LOG_INFO("Chunked prefill is enabled with max_num_batched_tokens=", batched, ".");
  LOG_INFO("Asynchronous scheduling is ", config_.async_scheduling ? "enabled." : "disabled.");
  LOG_INFO("Device: ", loaded.backend->describe());
  LOG_INFO(describe(plan, config_.block_size));

  const double before_weights = seconds_now();
  device::BindOptions binding;
  binding.num_blocks = plan.num_blocks;
  binding.num_states = plan.running_states + plan.snapshots;
  binding.progress = &progress;
  executable_->bind(binding);
  const double now = seconds_now();
  LOG_INFO("Loading weights took ", now - before_weights, " seconds");
  LOG_INFO("Model loading took ", static_cast<double>(plan.weights) / (1 << 30), " GiB memory and ", now - started,
           " seconds");
  LOG_INFO("Available KV cache memory: ", static_cast<double>(plan.cache) / (1 << 30), " GiB");
  const uint64_t cache_tokens = static_cast<uint64_t>(plan.num_blocks) * static_cast<uint64_t>(config_.block_size);
  LOG_INFO("GPU KV cache size: ", grouped(cache_tokens), " tokens");
  char concurrency[32];
  std::snprintf(concurrency, sizeof concurrency, "%.2fx", static_cast<double>(cache_tokens) / plan.max_model_len);
  LOG_INFO("Maximum concurrency for ", grouped(static_cast<uint64_t>(plan.max_model_len)),
           " tokens per request: ", concurrency);

  cache_ = std::make_unique<KvCacheManager>(plan.num_blocks, config_.block_size, config_.prefix_caching,
                                            config_.prefix_hash);
  if (plan.running_states > 0) cache_->add_states(plan.running_states, plan.snapshots);
  scheduler_ = std::make_unique<Scheduler>(limits, *cache_);
  info_ = {plan.max_model_len, program_->vocabulary(),
           max_num_seqs,       config_.block_size,
           plan.num_blocks,    plan.weights,
           plan.cache,         plan.scratch,
           now - started,      loaded.backend->describe(),
           cache_dtype};
}

Engine::~Engine() = default;

EngineStats Engine::stats() const {
  EngineStats stats = stats_;
  stats.running = scheduler_->running();
  stats.waiting = scheduler_->waiting();
  stats.total_blocks = cache_->pool().size();
  stats.free_blocks = cache_->pool().free_count();
  stats.preemptions = scheduler_->preemptions();
  stats.prefix_queries = cache_->queries();
  stats.prefix_hits = stats.cached_prompt_tokens = cache_->hits();
  stats.prefix_block_hits = cache_->block_hits();
  stats.state_snapshots = cache_->snapshots();
  return stats;
}

void Engine::add(EngineRequest request) {
  std::string wrong;
  const int32_t known = request.known_tokens > 0 ? request.known_tokens : info_.vocabulary;
  request.known_tokens = std::min(known, info_.vocabulary);
  try {
    validate(request.sampling, request.known_tokens);
    if (request.prompt.empty()) wrong = "the prompt is empty";
    if (request.n < 1) wrong = "n must be at least 1";
    if (static_cast<int64_t>(request.prompt.size()) >= info_.max_model_len) {
      wrong = cat("the prompt has ", request.prompt.size(), " tokens, and this model's maximum context length is ",
                  info_.max_model_len, " tokens");
    }
    const bool out_of_range = std::any_of(request.prompt.begin(), request.prompt.end(),
                                          [&](int32_t token) { return token < 0 || token >= info_.vocabulary; });
    if (out_of_range) wrong = cat("the prompt holds a token id outside 0 to ", info_.vocabulary - 1);
    std::erase_if(request.eos_ids, [&](int32_t id) { return id < 0 || id >= request.known_tokens; });
  } catch (const Error& error) {
    wrong = error.what();
  }
  if (!wrong.empty()) {
    for (int32_t choice = 0; choice < std::max(request.n, 1); ++choice) {
      EngineOutput output;
      output.id = request.id;
      output.index = choice;
      output.finish = FinishReason::error;
      output.error = wrong;
      output.bad_request = true;
      outputs_.push_back(std::move(output));
    }
    return;
  }
  const RequestId id = request.id;
  scheduler_->add(std::make_shared<const EngineRequest>(std::move(request)), static_cast<uint64_t>(config_.seed));
  const double now = seconds_now();
  for (Sequence* sequence : scheduler_->choices(id)) sequence->queued = now;
}

void Engine::abort(RequestId id, int32_t choice) {
  for (Sequence* sequence : scheduler_->choices(id)) {
    if (choice == every_choice || sequence->choice == choice) sequence->abort_wanted = true;
  }
  aborting_.emplace_back(id, choice);
}

bool Engine::reset_prefix_cache() {
  if (!scheduler_->idle()) return false;
  cache_->forget_all();
  return true;
}

bool Engine::idle() const {
  return scheduler_->idle() && aborting_.empty() && outputs_.empty();
}

// A sequence that a waiting plan computes prompt tokens for runs once more: others may share the blocks it fills.
void Engine::settle_aborts(const StepPlan& pending) {
  std::erase_if(aborting_, [&](const std::pair<RequestId, int32_t>& wanted) {
    bool settled = true;
    for (Sequence* sequence : scheduler_->choices(wanted.first)) {
      if (wanted.second != every_choice && wanted.second != sequence->choice) continue;
      const bool needed = std::any_of(pending.entries.begin(), pending.entries.end(), [&](const PlanEntry& entry) {
        return entry.sequence == sequence && entry.first + entry.count <= sequence->size();
      });
      if (!needed) emit(*sequence, nullptr, FinishReason::abort, -1);
      settled = settled && !needed;
    }
    return settled;
  });
}

void Engine::step(std::vector<EngineOutput>& outputs) {
  const double started = seconds_now();
  settle_aborts(next_);
  scheduler_->prune(next_);
  StepPlan plan = std::move(next_);
  next_ = {};
  if (plan.empty()) {
    const StepTrace::Span span(trace_, "plan", stats_.steps);
    plan = scheduler_->plan();
  }
  if (!plan.empty()) {
    for (const PlanEntry& entry : plan.entries) {
      if (entry.sequence->scheduled == 0) entry.sequence->scheduled = started;
    }
    {
      const StepTrace::Span span(trace_, "bind", stats_.steps);
      bind(plan);
    }
    const double launched = seconds_now();
    try {
      const device::StepShape shape{plan.tokens, static_cast<int>(plan.entries.size()),
                                    static_cast<int>(logit_rows_.size()),
                                    plan.tokens == static_cast<int32_t>(plan.entries.size())};
      const device::StepResult* result = nullptr;
      {
        const StepTrace::Span launch(trace_, "launch", stats_.steps);
        const device::Ticket ticket = executable_->launch(shape, {ids_, sequences_, logit_rows_, want_logits_});
        if (config_.async_scheduling) {
          const StepTrace::Span planning(trace_, "plan", stats_.steps + 1);
          next_ = scheduler_->plan();
        }
        result = &executable_->wait(ticket);
      }
      stats_.forward_seconds += seconds_now() - launched;
      const StepTrace::Span span(trace_, "commit", stats_.steps);
      commit(plan, *result);
    } catch (const device::StepError& error) {
      fail_step(plan, error.what());
    }
    count_step(plan);
    stats_.step_seconds += seconds_now() - started;
  }
  std::move(outputs_.begin(), outputs_.end(), std::back_inserter(outputs));
  outputs_.clear();
  scheduler_->forget_finished();
}

void Engine::count_step(const StepPlan& plan) {
  ++stats_.steps;
  stats_.step_tokens += static_cast<uint64_t>(plan.tokens);
  const auto bucket = std::lower_bound(step_token_bounds.begin(), step_token_bounds.end(), plan.tokens);
  ++stats_.steps_by_tokens[static_cast<size_t>(bucket - step_token_bounds.begin())];
}

void Engine::bind(const StepPlan& plan) {
  ids_.clear();
  sequences_.clear();
  logit_rows_.clear();
  want_logits_.clear();
  // Copies of the block tables: the next plan, made while this step runs, changes the sequences' own.
  block_tables_.clear();
  for (const PlanEntry& entry : plan.entries) {
    block_tables_.insert(block_tables_.end(), entry.sequence->blocks.begin(), entry.sequence->blocks.end());
  }
  size_t table = 0;
  std::vector<std::pair<int32_t, int32_t>> restores;
  for (const PlanEntry& entry : plan.entries) {
    Sequence& s = *entry.sequence;
    if (s.restore_from >= 0) restores.emplace_back(s.restore_from, s.state_slot);
    cache_->restored(s);
    const int32_t first_row = static_cast<int32_t>(ids_.size());
    ids_.insert(ids_.end(), s.tokens.begin() + entry.first, s.tokens.begin() + entry.first + entry.count);
    sequences_.push_back(
        {first_row, entry.count, entry.first, std::span(block_tables_).subspan(table, s.blocks.size()), entry.state});
    table += s.blocks.size();
    for (int32_t row = 0; row < reported_rows(entry); ++row) {
      logit_rows_.push_back(first_row + row);
      want_logits_.push_back(1);
    }
    if (!entry.samples) continue;
    logit_rows_.push_back(first_row + entry.count - 1);
    const bool argmax = s.request->sampling.max_tokens == 0 ||
                        (Sampler::argmax_is_enough(s.sample_context()) && s.request->known_tokens == info_.vocabulary);
    want_logits_.push_back(argmax ? 0 : 1);
  }
  if (!restores.empty()) executable_->copy_states(restores);
}

void Engine::commit(const StepPlan& plan, const device::StepResult& result) {
  size_t row = 0;
  std::vector<std::pair<int32_t, int32_t>> snapshots;
  for (const PlanEntry& entry : plan.entries) {
    if (!entry.snapshot) continue;
    const auto slot = cache_->take_snapshot(*entry.sequence, entry.first + entry.count);
    if (slot) snapshots.emplace_back(entry.state, *slot);
  }
  // Before any sequence ends: its slot still holds what the step left there.
  if (!snapshots.empty()) executable_->copy_states(snapshots);
  for (const PlanEntry& entry : plan.entries) {
    Sequence& s = *entry.sequence;
    const int32_t reported = reported_rows(entry);
    try {
      if (s.state != SequenceState::finished) commit_prompt_logprobs(entry, reported, result, row);
    } catch (const Error& error) {
      emit_error(s, error.what(), false);
    }
    row += static_cast<size_t>(reported);
    if (s.state != SequenceState::finished) {
      const int32_t computed = std::min(entry.first + entry.count, s.prompt_size());
      const int32_t counted = std::max(s.prompt_counted, std::max(s.cached_tokens, 0));
      stats_.prompt_tokens += static_cast<uint64_t>(std::max(computed - counted, 0));
      s.prompt_counted = std::max(computed, counted);
    }
    append_token(s, entry, result, row);
    row += entry.samples ? 1 : 0;
  }
}

void Engine::commit_prompt_logprobs(const PlanEntry& entry, int32_t rows, const device::StepResult& result,
                                    size_t row) {
  Sequence& s = *entry.sequence;
  const size_t vocabulary = static_cast<size_t>(s.request->known_tokens);
  // No row predicts the only token of a prompt; it is reported all the same, as the first of any prompt.
  if (s.prompt_size() == 1 && s.reports_prompt() && s.prompt_logprobs.empty())
    s.prompt_logprobs.emplace_back().token = s.tokens[0];
  for (int32_t at = entry.first; at < entry.first + rows; ++at, ++row) {
    // A preemption in the middle of the prompt: these rows are kept already.
    if (static_cast<size_t>(at) + 1 < s.prompt_logprobs.size()) continue;
    if (s.prompt_logprobs.empty()) s.prompt_logprobs.emplace_back().token = s.tokens[0];
    OutputToken& out = s.prompt_logprobs.emplace_back();
    out.token = s.tokens[static_cast<size_t>(at) + 1];
    sampler_.logprobs({result.logits[row], vocabulary}, out.token, s.request->sampling.prompt_logprobs, out.sampled,
                      out.top);
  }
}

void Engine::append_token(Sequence& s, const PlanEntry& entry, const device::StepResult& result, size_t row) {
  if (!entry.samples || s.state == SequenceState::finished) {
    scheduler_->commit(entry, nullptr);
    return;
  }
  if (s.request->sampling.max_tokens == 0) {  // only the prompt is wanted, e.g. its log-probabilities
    scheduler_->commit(entry, nullptr);
    emit(s, nullptr, FinishReason::length, -1);
    return;
  }
  OutputToken token;
  if (want_logits_[row] != 0) {
    try {
      Sampled sampled =
          sampler_.sample({result.logits[row], static_cast<size_t>(s.request->known_tokens)}, s.sample_context());
      token = {sampled.token, sampled.sampled, std::move(sampled.top)};
    } catch (const Error& error) {
      scheduler_->commit(entry, nullptr);
      emit_error(s, error.what(), dynamic_cast<const RequestError*>(&error) != nullptr);
      return;
    }
  } else if (result.argmax[row] >= 0) {
    token.token = result.argmax[row];
  } else {
    scheduler_->commit(entry, nullptr);
    emit_error(s, not_finite_message, false);
    return;
  }
  scheduler_->commit(entry, &token.token);
  ++stats_.generated_tokens;

  const SamplingParams& p = s.request->sampling;
  FinishReason finish = FinishReason::none;
  int32_t stop_token = -1;
  const auto among = [&](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token.token) != ids.end();
  };
  if (!p.ignore_eos && among(s.request->eos_ids)) {
    finish = FinishReason::stop;
  } else if (among(p.stop_token_ids)) {
    finish = FinishReason::stop;
    stop_token = token.token;
  } else if (s.output_size() >= p.max_tokens || s.size() >= info_.max_model_len) {
    finish = FinishReason::length;
  }
  emit(s, &token, finish, stop_token);
}

void Engine::emit_error(Sequence& s, const std::string& why, bool bad_request) {
  emit(s, nullptr, FinishReason::error, -1);
  outputs_.back().error = why;
  outputs_.back().bad_request = bad_request;
}

void Engine::emit(Sequence& s, OutputToken* token, FinishReason finish, int32_t stop_token) {
  EngineOutput output;
  output.id = s.request->id;
  output.index = s.choice;
  if (token != nullptr) output.tokens.push_back(std::move(*token));
  output.finish = finish;
  output.stop_token = stop_token;
  output.prompt_tokens = s.prompt_size();
  output.cached_tokens = std::max(s.cached_tokens, 0);
  output.prompt_logprobs = std::move(s.prompt_logprobs);
  s.prompt_logprobs.clear();
  output.queued = s.queued;
  output.scheduled = s.scheduled;
  output.made = seconds_now();
  outputs_.push_back(std::move(output));
  if (finish != FinishReason::none) scheduler_->finish(s);
}

// The step's requests fail; what others find in the cache may be incomplete, so they compute again.
void Engine::fail_step(const StepPlan& plan, const std::string& why) {
  LOG_ERROR("A step of ", plan.tokens, " tokens failed: ", why);
  scheduler_->withdraw(next_);
  next_ = {};
  for (const PlanEntry& entry : plan.entries) {
    Sequence& s = *entry.sequence;
    scheduler_->commit(entry, nullptr);
    if (s.state == SequenceState::finished) continue;
    emit_error(s, why, false);
  }
  scheduler_->recompute_all();
}

}  // namespace gristmill::engine
