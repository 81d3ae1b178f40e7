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
  std::vector<engine::RequestId> aborted() const {
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
      running.reply = reply_;
      running.request = std::move(request);
      running.handler = std::move(handler);
      running_.push_back(std::move(running));
    }
    changed_.notify_all();
  }
  void abort(engine::RequestId id) override {
    {
      const std::lock_guard lock(mutex_);
      aborted_.push_back(id);
      for (Running& each : running_) {
        if (each.request.id == id) each.abort = true;
      }
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
    bool abort = false;
    bool prompt_told = false;
    std::vector<char> done;
  };

  static engine::OutputToken token(int32_t id, int32_t top) {
    engine::OutputToken out;
    out.token = id;
    if (top < 0) return out;
    out.sampled = {id, -0.5f, 1};
    for (int32_t i = 0; i < top; ++i) out.top.push_back({i == 0 ? id : 'a' + i, -0.5f - static_cast<float>(i), i + 1});
    return out;
  }

  /// Emits up to tokens_per_step_ tokens of one request; false when it is over.
  bool step(Running& running) {
    const SamplingParams& sampling = running.request.sampling;
    engine::EngineOutput out;
    out.id = running.request.id;
    out.prompt_tokens = static_cast<int32_t>(running.request.prompt.size());
    out.cached_tokens = 3;
    if (running.abort) {
      out.finish = engine::FinishReason::abort;
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
      if (sampling.prompt_logprobs >= 0 && !running.prompt_told) {
        for (const int32_t id : running.request.prompt) {
          out.prompt_logprobs.push_back(out.prompt_logprobs.empty() ? engine::OutputToken{id, {}, {}}
                                                                    : token(id, sampling.prompt_logprobs));
        }
        running.prompt_told = true;
      }
    }
    const bool over = out.finish != engine::FinishReason::none;
    for (int32_t i = 0; i < running.request.n; ++i) {
      engine::EngineOutput copy = out;
      copy.index = i;
      running.handler(std::move(copy));
    }
    return !over;
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] {
        if (stopping_) return true;
        if (!paused_ && !running_.empty()) return true;
        return std::any_of(running_.begin(), running_.end(), [](const Running& r) { return r.abort; });
      });
      if (stopping_) return;
      std::deque<Running> now;
      std::deque<Running> later;
      for (Running& each : running_) (paused_ && !each.abort ? later : now).push_back(std::move(each));
      running_.clear();
      // Handlers may call back, and must not find the lock taken.
      const double pause_seconds = step_seconds_;
      lock.unlock();
      std::deque<Running> left;
      for (Running& each : now) {
        if (step(each)) left.push_back(std::move(each));
      }
      if (pause_seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(pause_seconds));
      lock.lock();
      for (Running& each : later) left.push_back(std::move(each));
      for (Running& each : left) {
        // Aborts that came meanwhile found nothing to mark.
        each.abort = each.abort || std::find(aborted_.begin(), aborted_.end(), each.request.id) != aborted_.end();
        running_.push_back(std::move(each));
      }
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string reply_ = "Hello!";
  size_t tokens_per_step_ = 1;
  double step_seconds_ = 0;
  bool paused_ = false;
  bool stopping_ = false;
  EngineHealth health_ = EngineHealth::ready;
  engine::RequestId last_id_ = 0;
  std::deque<Running> running_;
  std::vector<engine::EngineRequest> submitted_;
  std::vector<engine::RequestId> aborted_;
  std::thread thread_;
};

}  // namespace gristmill::server
