#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace gristmill::engine {

/// The thread that drives an Engine. Calls from other threads are queued and taken between steps; outputs of a step are
/// handed over together.
class EngineLoop {
 public:
  /// Called on the loop's thread, once a step at most; must not throw.
  using OutputsHandler = std::function<void(std::vector<EngineOutput>&&)>;

  EngineLoop(std::unique_ptr<Engine> engine, OutputsHandler handler);
  /// Ends the thread after the step it is in; open requests get no further output.
  ~EngineLoop();

  void submit(EngineRequest request);
  void abort(RequestId id, int32_t choice = every_choice);
  /// Waits for the loop's answer.
  bool reset_prefix_cache();
  /// As of the end of the last step.
  EngineStats stats() const;
  const EngineInfo& info() const { return engine_->info(); }
  /// Seconds that the step now running has taken; 0 between steps. For the watchdog.
  double seconds_in_step() const;
  /// Why no step will succeed any more, or "".
  std::string fault() const { return engine_->fault(); }

 private:
  struct Reset {
    bool done = false;
    bool result = false;
  };
  void run();
  bool take_inbox(std::unique_lock<std::mutex>& lock);

  std::unique_ptr<Engine> engine_;
  OutputsHandler handler_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable answered_;
  std::vector<EngineRequest> submitted_;
  std::vector<std::pair<RequestId, int32_t>> aborted_;
  std::vector<Reset*> resets_;
  bool stop_ = false;
  EngineStats stats_;
  std::atomic<double> step_started_{0};
  std::thread thread_;
};

}  // namespace gristmill::engine
