#include "engine/scheduler.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "sample/random.h"

namespace gristmill::engine {

namespace {

// Where the last messages of a conversation end: after an end-of-turn token of the prompt.
std::vector<int32_t> message_ends(const EngineRequest& request) {
  constexpr size_t most = 2;
  std::vector<int32_t> ends;
  for (size_t at = request.prompt.size(); at-- > 0 && ends.size() < most;) {
    const bool end =
        std::find(request.eos_ids.begin(), request.eos_ids.end(), request.prompt[at]) != request.eos_ids.end();
    if (end) ends.push_back(static_cast<int32_t>(at) + 1);
  }
  return ends;
}

}  // namespace

void Scheduler::add(const std::shared_ptr<const EngineRequest>& request, uint64_t engine_seed) {
  auto& choices = requests_[request->id];
  for (int32_t choice = 0; choice < request->n; ++choice) {
    auto sequence = std::make_unique<Sequence>();
    sequence->request = request;
    sequence->choice = choice;
    sequence->order = next_order_++;
    // Without a seed of its own a request draws from the engine's seed and its id; choices differ by their index.
    const auto drawn = philox4x32({static_cast<uint32_t>(request->id), static_cast<uint32_t>(request->id >> 32), 0, 0},
                                  {static_cast<uint32_t>(engine_seed), static_cast<uint32_t>(engine_seed >> 32)});
    sequence->seed = static_cast<uint64_t>(
        request->sampling.seed.value_or(static_cast<int64_t>(uint64_t{drawn[0]} << 32 | drawn[1])));
    sequence->tokens = request->prompt;
    if (!request->sampling.ignore_eos) sequence->stop_ids = request->eos_ids;
    sequence->stop_ids.insert(sequence->stop_ids.end(), request->sampling.stop_token_ids.begin(),
                              request->sampling.stop_token_ids.end());
    if (sequence->sample_context().counts != nullptr) sequence->counts.add_prompt(request->prompt);
    sequence->message_ends = message_ends(*request);
    waiting_.insert(sequence.get());
    choices.push_back(std::move(sequence));
  }
}

std::vector<Sequence*> Scheduler::choices(RequestId id) {
  std::vector<Sequence*> open;
  const auto found = requests_.find(id);
  if (found == requests_.end()) return open;
  for (const auto& sequence : found->second) {
    if (sequence->state != SequenceState::finished) open.push_back(sequence.get());
  }
  return open;
}

// A sequence whose tokens in flight fill it up needs no further step.
bool Scheduler::will_end(const Sequence& s) const {
  return s.in_flight > 0 && (s.output_size() + s.in_flight >= s.request->sampling.max_tokens ||
                             s.size() + s.in_flight >= limits_.max_model_len);
}

// Whether the prompt of a sequence about to be admitted may be computed in parts now, the first of `count` tokens.
bool Scheduler::may_be_partial(Sequence& s, int32_t count, const Budget& budget) const {
  if (!limits_.chunked_prefill) {
    // A prompt that fits into the step is cut only where the recurrent state is kept for the prefix cache: no chunk of
    // a long prompt, and no later step could take it without that cut.
    const bool fits = s.size() - s.computed <= std::min(budget.tokens, budget.prefill);
    return s.reports_prompt() || (fits && s.computed + count == cache_.next_snapshot(s));
  }
  const int32_t threshold = limits_.long_prefill_token_threshold;
  const auto is_long = [&](const Sequence& one) { return threshold > 0 && one.size() > threshold; };
  int32_t partial = 0, long_partial = 0;
  for (const Sequence* one : running_) {
    if (one->size() + one->in_flight - one->computed <= 1) continue;
    ++partial;
    long_partial += is_long(*one) ? 1 : 0;
  }
  return partial < limits_.max_num_partial_prefills &&
         (!is_long(s) || long_partial < limits_.max_long_partial_prefills);
}

// How many tokens of `s` the step may take; 0 when none.
int32_t Scheduler::share_of(Sequence& s, const Budget& budget) const {
  const int32_t missing = s.size() + s.in_flight - s.computed;
  int32_t share = std::min(missing, budget.tokens);
  if (missing > 1) {
    share = std::min(share, budget.prefill);
    if (limits_.chunked_prefill && limits_.long_prefill_token_threshold > 0) {
      share = std::min(share, limits_.long_prefill_token_threshold);
    }
    if (s.reports_prompt()) share = std::min(share, budget.logprob_rows);
    share = std::min(share, cache_.next_snapshot(s) - s.computed);
  }
  return std::max(share, 0);
}

void Scheduler::add_entry(StepPlan& plan, Budget& budget, Sequence& s, int32_t count) {
  const bool snapshot = s.computed + count == cache_.next_snapshot(s);
  PlanEntry entry{&s, s.computed, count, s.computed + count == s.size() + s.in_flight, snapshot, s.state_slot};
  if (s.size() + s.in_flight - s.computed > 1) {
    budget.prefill -= count;
    if (s.reports_prompt()) budget.logprob_rows -= count;
  }
  budget.tokens -= count;
  s.computed += count;
  s.in_flight += entry.samples ? 1 : 0;
  ++s.planned;
  plan.entries.push_back(entry);
  plan.tokens += count;
}

Sequence& Scheduler::pick_victim() const {
  return **std::max_element(running_.begin(), running_.end(), Sooner{limits_.policy == SchedulingPolicy::priority});
}

void Scheduler::preempt(Sequence& victim, StepPlan& plan, Budget& budget) {
  const auto entry =
      std::find_if(plan.entries.begin(), plan.entries.end(), [&](const PlanEntry& e) { return e.sequence == &victim; });
  if (entry != plan.entries.end()) {
    budget.tokens += entry->count;
    plan.tokens -= entry->count;
    victim.in_flight -= entry->samples ? 1 : 0;
    --victim.planned;
    plan.entries.erase(entry);
  }
  cache_.release(victim);
  victim.computed = 0;
  victim.state = SequenceState::waiting;
  running_.erase(std::find(running_.begin(), running_.end(), &victim));
  waiting_.insert(&victim);
  ++preemptions_;
}

void Scheduler::plan_running(StepPlan& plan, Budget& budget, bool& preempted) {
  // Sequences that wait for one token go before those with a prompt to compute, so that a long prompt never holds them
  // up.
  std::vector<Sequence*> order = running_;
  std::stable_partition(order.begin(), order.end(),
                        [](const Sequence* s) { return s->size() + s->in_flight - s->computed <= 1; });
  for (Sequence* s : order) {
    if (s->state != SequenceState::running || s->abort_wanted || will_end(*s)) continue;
    const int32_t count = share_of(*s, budget);
    if (count == 0) continue;
    bool fits = cache_.reserve(*s, s->computed + count);
    while (!fits) {
      Sequence& victim = pick_victim();
      preempt(victim, plan, budget);
      preempted = true;
      if (&victim == s) break;
      fits = cache_.reserve(*s, s->computed + count);
    }
    if (fits) add_entry(plan, budget, *s, count);
  }
  for (const PlanEntry& entry : plan.entries) cache_.name_full_blocks(*entry.sequence, entry.sequence->computed);
}

void Scheduler::admit_waiting(StepPlan& plan, Budget& budget) {
  while (!waiting_.empty() && running() < limits_.max_num_seqs && budget.tokens > 0) {
    Sequence& s = **waiting_.begin();
    // A preempted sequence whose last token is still in flight comes back one step later.
    if (s.in_flight > 0 || s.abort_wanted) break;
    cache_.take_prefix(s);
    const int32_t count = share_of(s, budget);
    const bool whole = s.computed + count == s.size();
    if (count == 0 || (!whole && !may_be_partial(s, count, budget)) || !cache_.reserve(s, s.computed + count)) {
      cache_.release(s);
      s.computed = 0;
      break;  // first come, first served: nobody overtakes
    }
    if (s.cached_tokens < 0) {
      s.cached_tokens = std::min(s.computed, s.prompt_size());
      cache_.count_lookup(s);
    }
    waiting_.erase(waiting_.begin());
    s.state = SequenceState::running;
    running_.push_back(&s);
    add_entry(plan, budget, s, count);
    cache_.name_full_blocks(s, s.computed);  // later sequences of this very step may share: K/V are written first
  }
}

StepPlan Scheduler::plan() {
  StepPlan plan;
  const bool decoding = std::any_of(running_.begin(), running_.end(),
                                    [](const Sequence* s) { return s->size() + s->in_flight - s->computed == 1; });
  Budget budget{limits_.max_num_batched_tokens, limits_.max_num_batched_tokens, limits_.prompt_logprob_tokens};
  if (decoding && limits_.mixed_prefill_tokens > 0 && limits_.chunked_prefill) {
    budget.prefill = std::min(budget.prefill, limits_.mixed_prefill_tokens);
  }
  bool preempted = false;
  plan_running(plan, budget, preempted);
  if (!preempted) admit_waiting(plan, budget);
  return plan;
}

void Scheduler::prune(StepPlan& plan) {
  std::erase_if(plan.entries, [&](const PlanEntry& entry) {
    if (entry.sequence->state != SequenceState::finished) return false;
    plan.tokens -= entry.count;
    --entry.sequence->planned;
    return true;
  });
}

void Scheduler::commit(const PlanEntry& entry, const int32_t* token) {
  Sequence& s = *entry.sequence;
  --s.planned;
  if (!entry.samples) return;
  --s.in_flight;
  if (s.state == SequenceState::finished || token == nullptr) return;
  s.tokens.push_back(*token);
  if (s.sample_context().counts != nullptr) s.counts.add_output(*token);
  // A block that this step filled may hold a token that was not known when it was planned.
  if (s.state == SequenceState::running) cache_.name_full_blocks(s, std::min(s.computed, entry.first + entry.count));
}

void Scheduler::finish(Sequence& s) {
  if (s.state == SequenceState::finished) return;
  if (s.state == SequenceState::running) {
    running_.erase(std::find(running_.begin(), running_.end(), &s));
  } else {
    waiting_.erase(&s);
  }
  cache_.release(s);
  s.state = SequenceState::finished;
  to_forget_.push_back(s.request->id);
}

void Scheduler::withdraw(const StepPlan& plan) {
  for (const PlanEntry& entry : plan.entries) {
    --entry.sequence->planned;
    entry.sequence->in_flight -= entry.samples ? 1 : 0;
    entry.sequence->computed = entry.first;
  }
}

void Scheduler::recompute_all() {
  for (Sequence* s : running_) {
    cache_.release(*s);
    s->computed = 0;
    s->state = SequenceState::waiting;
    waiting_.insert(s);
    ++preemptions_;
  }
  running_.clear();
  cache_.forget_all();
}

void Scheduler::forget_finished() {
  std::erase_if(to_forget_, [&](RequestId id) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return true;
    const bool done = std::all_of(found->second.begin(), found->second.end(),
                                  [](const auto& s) { return s->state == SequenceState::finished && s->planned == 0; });
    if (done) requests_.erase(found);
    return done;
  });
}

}  // namespace gristmill::engine
