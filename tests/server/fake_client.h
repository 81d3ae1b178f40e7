#pragma once
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/engine_client.h"
#include "fake_tokenizer.h"

namespace gristmill::server {

/// An engine that says `reply` (bytes, then EOS) to everything, a token a step. Steps run by themselves unless paused.
class FakeClient final : public EngineClient {
 public:
  FakeClient() : thread_([this] { run(); }) {}
  ~FakeClient() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // Controls.
  void set_reply(std::string reply) {
    const std::lock_guard lock(mutex_);
    reply_ = std::move(reply);
  }
  /// Every request is refused with this error of its own.
  void set_refusal(std::string why) {
    const std::lock_guard lock(mutex_);
    refusal_ = std::move(why);
  }
  void set_tokens_per_step(size_t n) {
    const std::lock_guard lock(mutex_);
    tokens_per_step_ = n;
  }
  void set_step_seconds(double seconds) {
    const std::lock_guard lock(mutex_);
    step_seconds_ = seconds;
  }
  void pause(bool on) {
    {
      const std::lock_guard lock(mutex_);
      paused_ = on;
    }
    changed_.notify_all();
  }
  /// The engine dies: all requests end with an error.
  void die() {
    std::vector<Running> all;
    {
      const std::lock_guard lock(mutex_);
      health_ = EngineHealth::starting;
      all.assign(std::make_move_iterator(running_.begin()), std::make_move_iterator(running_.end()));
      running_.clear();
    }
    for (Running& each : all) {
      for (int32_t i = 0; i < each.request.n; ++i) {
        engine::EngineOutput out;
        out.id = each.request.id;
        out.index = i;
        out.finish = engine::FinishReason::error;
        out.error = "the engine process was killed by signal 9";
        each.handler(std::move(out));
      }
    }
  }
  void revive() {
    const std::lock_guard lock(mutex_);
    health_ = EngineHealth::ready;
  }
  std::vector<engine::EngineRequest> submitted() const {
    const std::lock_guard lock(mutex_);
    return submitted_;
  }
  std::vector<std::pair<engine::RequestId, int32_t>> aborted() const {
    const std::lock_guard lock(mutex_);
    return aborted_;
  }
  size_t running() const {
    const std::lock_guard lock(mutex_);
    return running_.size();
  }

  // EngineClient
  engine::RequestId next_id() override {
    const std::lock_guard lock(mutex_);
    return ++last_id_;
  }
  void submit(engine::EngineRequest request, OutputHandler handler) override {
    {
      const std::lock_guard lock(mutex_);
      submitted_.push_back(request);
      Running running;
      running.done.resize(static_cast<size_t>(request.n));
      running.abort.resize(static_cast<size_t>(request.n));
      running.reply = reply_;
      running.request = std::move(request);
      running.handler = std::move(handler);
      running_.push_back(std::move(running));
    }
    changed_.notify_all();
  }
  using EngineClient::abort;
  void abort(engine::RequestId id, int32_t choice) override {
    {
      const std::lock_guard lock(mutex_);
      aborted_.emplace_back(id, choice);
      mark_aborts(running_);
    }
    changed_.notify_all();
  }
  EngineHealth health() const override {
    const std::lock_guard lock(mutex_);
    return health_;
  }
  std::string health_detail() const override { return "it is being restarted"; }
  engine::EngineInfo wait_ready(double) override { return info(); }
  engine::EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    engine::EngineStats stats;
    stats.running = static_cast<int32_t>(running_.size());
    stats.total_blocks = 100;
    stats.free_blocks = 100 - stats.running;
    for (const engine::EngineRequest& request : submitted_) {
      stats.prompt_tokens += request.prompt.size() - 3;
      stats.cached_prompt_tokens += 3;
    }
    return stats;
  }
  bool reset_prefix_cache() override { return running() == 0; }
  static engine::EngineInfo info() {
    engine::EngineInfo info;
    info.max_model_len = 512;
    info.vocabulary = FakeTokenizer::size;
    info.block_size = 16;
    info.num_blocks = 100;
    return info;
  }

 private:
  struct Running {
    engine::EngineRequest request;
    OutputHandler handler;
    std::string reply;
    size_t produced = 0;
    bool prompt_told = false;
    std::vector<char> abort, done;  // per choice
    bool aborting() const {
      for (size_t i = 0; i < done.size(); ++i) {
        if (abort[i] != 0 && done[i] == 0) return true;
      }
      return false;
    }
    bool over() const {
      return std::all_of(done.begin(), done.end(), [](char one) { return one != 0; });
    }
  };

  void mark_aborts(std::deque<Running>& all) const {
    for (const auto& [id, choice] : aborted_) {
      for (Running& each : all) {
        if (each.request.id != id) continue;
        for (size_t i = 0; i < each.abort.size(); ++i) {
          if (choice == engine::every_choice || static_cast<size_t>(choice) == i) each.abort[i] = 1;
        }
      }
    }
  }

  static void end_aborted(Running& running) {
    for (size_t i = 0; i < running.done.size(); ++i) {
      if (running.abort[i] == 0 || running.done[i] != 0) continue;
      running.done[i] = 1;
      engine::EngineOutput out;
      out.id = running.request.id;
      out.index = static_cast<int32_t>(i);
      out.finish = engine::FinishReason::abort;
      running.handler(std::move(out));
    }
  }

  static engine::OutputToken token(int32_t id, int32_t top) {
    engine::OutputToken out;
    out.token = id;
    if (top < 0) return out;
    out.sampled = {id, -0.5f, 1};
    for (int32_t i = 0; i < top; ++i) out.top.push_back({i == 0 ? id : 'a' + i, -0.5f - static_cast<float>(i), i + 1});
    return out;
  }

  /// Emits up to tokens_per_step_ tokens of one request.
  void step(Running& running) {
    const SamplingParams& sampling = running.request.sampling;
    engine::EngineOutput out;
    out.id = running.request.id;
    out.prompt_tokens = static_cast<int32_t>(running.request.prompt.size());
    out.cached_tokens = 3;
    if (!refusal_.empty()) {
      out.finish = engine::FinishReason::error;
      out.error = refusal_;
      out.bad_request = true;
    } else if (sampling.max_tokens == 0) {
      out.finish = engine::FinishReason::length;
    } else {
      for (size_t n = 0; n < tokens_per_step_ && out.finish == engine::FinishReason::none; ++n) {
        const bool ended = running.produced >= running.reply.size();
        const int32_t id = ended ? FakeTokenizer::eos_id : static_cast<unsigned char>(running.reply[running.produced]);
        ++running.produced;
        out.tokens.push_back(token(id, sampling.logprobs));
        const auto& stops = sampling.stop_token_ids;
        if (std::find(stops.begin(), stops.end(), id) != stops.end()) {
          out.finish = engine::FinishReason::stop;
          out.stop_token = id;
        } else if (ended && !sampling.ignore_eos) {
          out.finish = engine::FinishReason::stop;
        } else if (running.produced >= static_cast<size_t>(sampling.max_tokens)) {
          out.finish = engine::FinishReason::length;
        }
      }
    }
    if (sampling.prompt_logprobs >= 0 && !running.prompt_told) {
      for (const int32_t id : running.request.prompt) {
        out.prompt_logprobs.push_back(out.prompt_logprobs.empty() ? engine::OutputToken{id, {}, {}}
                                                                  : token(id, sampling.prompt_logprobs));
      }
      running.prompt_told = true;
    }
    for (int32_t i = 0; i < running.request.n; ++i) {
      if (running.done[static_cast<size_t>(i)] != 0) continue;
      engine::EngineOutput copy = out;
      copy.index = i;
      if (out.finish != engine::FinishReason::none) running.done[static_cast<size_t>(i)] = 1;
      running.handler(std::move(copy));
    }
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] {
        if (stopping_) return true;
        if (!paused_ && !running_.empty()) return true;
        return std::any_of(running_.begin(), running_.end(), [](const Running& r) { return r.aborting(); });
      });
      if (stopping_) return;
      std::deque<Running> now;
      now.swap(running_);
      const bool paused = paused_;
      // Handlers may call back, and must not find the lock taken.
      const double pause_seconds = step_seconds_;
      lock.unlock();
      for (Running& each : now) {
        end_aborted(each);
        if (!paused) step(each);
      }
      if (pause_seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(pause_seconds));
      lock.lock();
      mark_aborts(now);  // those that came meanwhile found nothing to mark
      for (Running& each : now) {
        if (!each.over()) running_.push_back(std::move(each));
      }
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string reply_ = "Hello!";
  std::string refusal_;
  size_t tokens_per_step_ = 1;
  double step_seconds_ = 0;
  bool paused_ = false;
  bool stopping_ = false;
  EngineHealth health_ = EngineHealth::ready;
  engine::RequestId last_id_ = 0;
  std::deque<Running> running_;
  std::vector<engine::EngineRequest> submitted_;
  std::vector<std::pair<engine::RequestId, int32_t>> aborted_;  // id and choice
  std::thread thread_;
};

}  // namespace gristmill::server
