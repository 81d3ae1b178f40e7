#include "engine/engine_loop.h"

#include <chrono>
#include <utility>

#include "base/log.h"

namespace gristmill::engine {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

EngineLoop::EngineLoop(std::unique_ptr<Engine> engine, OutputsHandler handler)
    : engine_(std::move(engine)), handler_(std::move(handler)), stats_(engine_->stats()), thread_([this] { run(); }) {}

EngineLoop::~EngineLoop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void EngineLoop::submit(EngineRequest request) {
  {
    const std::lock_guard lock(mutex_);
    submitted_.push_back(std::move(request));
  }
  wake_.notify_one();
}

void EngineLoop::abort(RequestId id, int32_t choice) {
  {
    const std::lock_guard lock(mutex_);
    aborted_.emplace_back(id, choice);
  }
  wake_.notify_one();
}

bool EngineLoop::reset_prefix_cache() {
  Reset reset;
  std::unique_lock lock(mutex_);
  if (stop_) return false;
  resets_.push_back(&reset);
  wake_.notify_one();
  answered_.wait(lock, [&] { return reset.done; });
  return reset.result;
}

EngineStats EngineLoop::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

double EngineLoop::seconds_in_step() const {
  const double started = step_started_.load(std::memory_order_relaxed);
  return started == 0 ? 0 : seconds_now() - started;
}

// Returns false when the loop shall end.
bool EngineLoop::take_inbox(std::unique_lock<std::mutex>& lock) {
  lock.lock();
  stats_ = engine_->stats();
  wake_.wait(lock,
             [&] { return stop_ || !engine_->idle() || !submitted_.empty() || !aborted_.empty() || !resets_.empty(); });
  if (stop_) {
    for (Reset* reset : std::exchange(resets_, {})) reset->done = true;
    answered_.notify_all();
    return false;
  }
  auto requests = std::exchange(submitted_, {});
  const auto aborts = std::exchange(aborted_, {});
  const auto resets = std::exchange(resets_, {});
  lock.unlock();
  for (EngineRequest& request : requests) engine_->add(std::move(request));
  for (const auto& [id, choice] : aborts) engine_->abort(id, choice);
  if (resets.empty()) return true;
  const bool result = engine_->reset_prefix_cache();
  lock.lock();
  for (Reset* reset : resets) *reset = {true, result};
  lock.unlock();
  answered_.notify_all();
  return true;
}

void EngineLoop::run() {
  std::unique_lock lock(mutex_, std::defer_lock);
  std::vector<EngineOutput> outputs;
  while (take_inbox(lock)) {
    step_started_.store(seconds_now(), std::memory_order_relaxed);
    engine_->step(outputs);
    step_started_.store(0, std::memory_order_relaxed);
    if (!outputs.empty()) handler_(std::move(outputs));
    outputs.clear();
  }
}

}  // namespace gristmill::engine
