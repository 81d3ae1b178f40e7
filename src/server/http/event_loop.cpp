#include "server/http/event_loop.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <utility>

#include "server/http/event_loop_impl.h"

namespace gristmill::server {
namespace asio = boost::asio;

EventLoop::EventLoop() : impl_(std::make_unique<Impl>()) {}
EventLoop::~EventLoop() = default;

void EventLoop::run() {
  auto work = asio::make_work_guard(impl_->context);
  impl_->context.run();
}

void EventLoop::stop() {
  impl_->context.stop();
}

void EventLoop::post(std::function<void()> task) {
  asio::post(impl_->context, std::move(task));
}

void EventLoop::after(double seconds, std::function<void()> task) {
  auto timer = std::make_shared<asio::steady_timer>(
      impl_->context, std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
  timer->async_wait([timer, task = std::move(task)](const boost::system::error_code& failure) {
    if (!failure) task();
  });
}

void EventLoop::on_signals(std::initializer_list<int> signals, std::function<void(int)> handler) {
  impl_->signals = std::make_unique<asio::signal_set>(impl_->context);
  for (const int signal : signals) impl_->signals->add(signal);
  // Re-arms itself; the set owns the only copy of the waiting handler.
  struct Waiter {
    asio::signal_set& set;
    std::shared_ptr<std::function<void(int)>> handler;
    void operator()(const boost::system::error_code& failure, int signal) const {
      if (failure) return;
      (*handler)(signal);
      set.async_wait(*this);
    }
  };
  impl_->signals->async_wait(Waiter{*impl_->signals, std::make_shared<std::function<void(int)>>(std::move(handler))});
}

}  // namespace gristmill::server
