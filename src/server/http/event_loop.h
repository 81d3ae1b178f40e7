#pragma once
#include <functional>
#include <initializer_list>
#include <memory>

namespace gristmill::server {

/// The one thread that everything of the server happens on: sockets, timers, signals and what other threads post.
class EventLoop {
 public:
  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Works on this thread until stop(). A task that throws ends the program's promise of order, so tasks must not.
  void run();
  /// Thread safe.
  void stop();
  /// Runs `task` on the loop soon. Thread safe.
  void post(std::function<void()> task);
  /// Runs `task` on the loop after `seconds`; stop() drops it. Thread safe.
  void after(double seconds, std::function<void()> task);
  /// From now on these signals call `handler` on the loop instead of their default action.
  void on_signals(std::initializer_list<int> signals, std::function<void(int)> handler);

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace gristmill::server
