#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.h"
#include "client/child_process.h"
#include "client/engine_client.h"
#include "client/request_table.h"
#include "client/wire.h"

namespace gristmill {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double silence_limit_seconds = 5;  // heartbeats come every quarter second
constexpr int most_restarts = 5;             // in a row, none of which became healthy for long
constexpr double healthy_after_seconds = 60;

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

/// One thread does all the IO with the engine process, starts it, watches it and starts it again. Other threads only
/// put frames into the outbox, so a stuck engine never blocks the caller.
class ProcessClient final : public EngineClient {
 public:
  ProcessClient(const engine::EngineConfig& config, const std::string& executable, bool waits)
      : config_(config),
        executable_(executable),
        permitted_(!waits),
        wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (wake_fd_ < 0) throw Error("cannot make an eventfd for the engine client");
    thread_ = std::thread([this] { run(); });
  }

  ~ProcessClient() override {
    stop_ = true;
    wake();
    thread_.join();
    table_.fail_all("the server is shutting down");
    ::close(wake_fd_);
  }

  engine::RequestId next_id() override { return table_.next_id(); }

  void submit(engine::EngineRequest request, OutputHandler handler) override {
    const engine::RequestId id = request.id;
    table_.open(request, std::move(handler));
    wire::Bytes frame = wire::submit_frame(request);
    {
      const std::lock_guard lock(mutex_);
      if (health_ == EngineHealth::ready) {
        outbox_.push_back(std::move(frame));
      } else {
        refused_.emplace_back(id, detail_);
      }
    }
    wake();
  }

  void abort(engine::RequestId id, int32_t choice) override {
    {
      const std::lock_guard lock(mutex_);
      if (health_ != EngineHealth::ready) return;
      outbox_.push_back(wire::abort_frame(id, choice));
    }
    wake();
  }

  EngineHealth health() const override {
    const std::lock_guard lock(mutex_);
    return health_;
  }

  std::string health_detail() const override {
    const std::lock_guard lock(mutex_);
    return health_ == EngineHealth::ready ? "" : detail_;
  }

  engine::EngineInfo wait_ready(double seconds) override {
    std::unique_lock lock(mutex_);
    const auto settled = [&] { return health_ != EngineHealth::starting; };
    if (seconds < 0) {
      changed_.wait(lock, settled);
    } else if (!changed_.wait_for(lock, std::chrono::duration<double>(seconds), settled)) {
      throw Error(cat("the engine is not ready after ", seconds, " s"));
    }
    if (health_ == EngineHealth::dead) throw Error(detail_);
    return info_;
  }

  void permit_loading() override {
    {
      const std::lock_guard lock(mutex_);
      if (permitted_) return;
      permitted_ = true;
      outbox_.push_back(wire::empty_frame(wire::Type::load));
    }
    wake();
  }

  engine::EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  bool reset_prefix_cache() override {
    std::unique_lock lock(mutex_);
    if (health_ != EngineHealth::ready) return false;
    reset_answer_.reset();
    outbox_.push_back(wire::empty_frame(wire::Type::reset));
    wake();
    changed_.wait_for(lock, std::chrono::seconds(10), [&] { return reset_answer_.has_value(); });
    return reset_answer_.value_or(false);
  }

 private:
  void wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t wrote = ::write(wake_fd_, &one, sizeof one);
  }

  void set_health(EngineHealth health, std::string detail) {
    {
      const std::lock_guard lock(mutex_);
      health_ = health;
      detail_ = std::move(detail);
    }
    changed_.notify_all();
  }

  void run() {
    int failures = 0;
    while (!stop_) {
      const Clock::time_point started = Clock::now();
      std::string end;
      bool permanent = false;
      try {
        end = serve_one_child(permanent);
      } catch (const std::exception& error) {
        end = error.what();
      }
      if (stop_) return;
      const bool was_ready = ever_ready_;
      failures = seconds_since(started) > healthy_after_seconds ? 1 : failures + 1;
      // Counters of a new engine start at zero; those of this one are kept (stats are totals of the server's life).
      {
        const std::lock_guard lock(mutex_);
        base_ = stats_;
        stats_.running = stats_.waiting = base_.running = base_.waiting = 0;
        outbox_.clear();
        sent_ = 0;
      }
      if (permanent || !was_ready || failures > most_restarts) {
        set_health(EngineHealth::dead, end);
        fail_everything(end);
        if (was_ready) LOG_ERROR(end, "; giving up after ", failures, " failures");
        wait_for_stop();
        return;
      }
      const std::string detail = cat(end, " and is being restarted");
      LOG_ERROR(end, "; restarting it");
      set_health(EngineHealth::starting, detail);
      fail_everything(detail);
      pause(0.25 * (1 << std::min(failures - 1, 5)));
    }
  }

  void fail_everything(const std::string& why) {
    table_.fail_all(why);
    const std::lock_guard lock(mutex_);
    refused_.clear();  // their requests were in the table
  }

  // Until the client is destroyed, requests are answered with the reason.
  void wait_for_stop() {
    while (!stop_) {
      pause(1);
      refuse();
    }
  }

  void pause(double seconds) {
    const Clock::time_point until =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    while (!stop_ && Clock::now() < until) {
      pollfd waited{wake_fd_, POLLIN, 0};
      ::poll(&waited, 1, 50);
      drain_wake();
      refuse();
    }
  }

  void drain_wake() const {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_fd_, &count, sizeof count);
  }

  void refuse() {
    std::vector<std::pair<engine::RequestId, std::string>> refused;
    {
      const std::lock_guard lock(mutex_);
      refused = std::exchange(refused_, {});
    }
    for (const auto& [id, why] : refused) table_.fail(id, why);
  }

  // Runs an engine process to its end; returns how it ended, a sentence for people. `permanent`: starting again would
  // not help.
  std::string serve_one_child(bool& permanent) {
    ChildProcess child(executable_, {"engine", "--fd", "3"});
    wire::FrameReader reader;
    {
      const std::lock_guard lock(mutex_);
      outbox_.assign(1, wire::hello_frame(config_));
      if (permitted_) outbox_.push_back(wire::empty_frame(wire::Type::load));
      sent_ = 0;
    }
    last_heard_ = Clock::now();
    while (true) {
      if (stop_) {
        end_politely(child);
        return "the engine process was stopped";
      }
      pollfd waited[2] = {{child.socket(), static_cast<short>(POLLIN | (outbox_pending() ? POLLOUT : 0)), 0},
                          {wake_fd_, POLLIN, 0}};
      ::poll(waited, 2, 250);
      drain_wake();
      refuse();
      bool open = true;
      if ((waited[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        open = reader.fill(child.socket());
        last_heard_ = Clock::now();
        while (const auto frame = reader.next()) {
          if (frame->type == wire::Type::failed) {
            permanent = true;
            return wire::read_failed(frame->payload);
          }
          take(*frame);
        }
      }
      if (open) open = flush(child.socket());
      if (!open) {
        child.kill();  // the socket is closed: if the process lives on, it is of no use
        return cat("the engine process ", child.wait());
      }
      if (const auto stuck = find_stuck()) {
        child.kill();
        child.wait();
        return *stuck;
      }
    }
  }

  void end_politely(ChildProcess& child) {
    ::fcntl(child.socket(), F_SETFL, ::fcntl(child.socket(), F_GETFL) & ~O_NONBLOCK);
    timeval limit{1, 0};
    ::setsockopt(child.socket(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (!wire::write_frame(child.socket(), wire::empty_frame(wire::Type::stop))) return;
    pollfd waited{child.socket(), POLLIN, 0};
    uint8_t drop[4096];
    const Clock::time_point asked = Clock::now();
    while (seconds_since(asked) < 2 && ::poll(&waited, 1, 100) >= 0) {
      if ((waited.revents & (POLLIN | POLLHUP)) != 0 && ::recv(child.socket(), drop, sizeof drop, 0) <= 0) break;
    }
  }

  bool outbox_pending() {
    const std::lock_guard lock(mutex_);
    return !outbox_.empty();
  }

  // Writes what the socket takes now; false when the peer is gone.
  bool flush(int socket) {
    const std::lock_guard lock(mutex_);
    while (!outbox_.empty()) {
      const wire::Bytes& frame = outbox_.front();
      const ssize_t wrote = ::send(socket, frame.data() + sent_, frame.size() - sent_, MSG_NOSIGNAL);
      if (wrote < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
      sent_ += static_cast<size_t>(wrote);
      if (sent_ < frame.size()) continue;
      outbox_.pop_front();
      sent_ = 0;
    }
    return true;
  }

  void take(const wire::Frame& frame) {
    switch (frame.type) {
      case wire::Type::outputs:
        table_.deliver(wire::read_outputs(frame.payload));
        break;
      case wire::Type::stats: {
        const wire::StatsMessage message = wire::read_stats(frame.payload);
        const std::lock_guard lock(mutex_);
        stats_ = together(base_, message.stats);
        seconds_in_step_ = message.seconds_in_step;
        break;
      }
      case wire::Type::ready: {
        {
          const std::lock_guard lock(mutex_);
          info_ = wire::read_ready(frame.payload);
        }
        ever_ready_ = true;
        set_health(EngineHealth::ready, "");
        break;
      }
      case wire::Type::reset_answer: {
        {
          const std::lock_guard lock(mutex_);
          reset_answer_ = wire::read_reset_answer(frame.payload);
        }
        changed_.notify_all();
        break;
      }
      default:
        throw Error(cat("the engine process sent an unexpected message ", static_cast<int>(frame.type)));
    }
  }

  static engine::EngineStats together(const engine::EngineStats& base, engine::EngineStats now) {
    now.prompt_tokens += base.prompt_tokens;
    now.cached_prompt_tokens += base.cached_prompt_tokens;
    now.generated_tokens += base.generated_tokens;
    now.preemptions += base.preemptions;
    now.prefix_queries += base.prefix_queries;
    now.prefix_hits += base.prefix_hits;
    now.prefix_block_hits += base.prefix_block_hits;
    now.steps += base.steps;
    now.step_tokens += base.step_tokens;
    for (size_t i = 0; i < now.steps_by_tokens.size(); ++i) now.steps_by_tokens[i] += base.steps_by_tokens[i];
    now.forward_seconds += base.forward_seconds;
    now.step_seconds += base.step_seconds;
    return now;
  }

  std::optional<std::string> find_stuck() {
    const std::lock_guard lock(mutex_);
    if (seconds_since(last_heard_) > silence_limit_seconds) {
      return cat("the engine process has not answered for ", static_cast<int>(silence_limit_seconds), " s");
    }
    if (seconds_in_step_ > config_.watchdog_seconds) {
      return cat("the engine process has been in one step for more than ", config_.watchdog_seconds,
                 " s (--watchdog-seconds)");
    }
    return std::nullopt;
  }

  const engine::EngineConfig config_;
  const std::string executable_;
  bool permitted_;  ///< to load weights; under mutex_
  const int wake_fd_;
  RequestTable table_;
  std::atomic<bool> stop_{false};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  EngineHealth health_ = EngineHealth::starting;
  std::string detail_ = "the engine is loading the model";
  engine::EngineInfo info_;
  engine::EngineStats stats_;
  engine::EngineStats base_;  ///< totals of engine processes that are gone
  std::deque<wire::Bytes> outbox_;
  size_t sent_ = 0;  ///< bytes of outbox_.front() that are out
  std::vector<std::pair<engine::RequestId, std::string>> refused_;
  std::optional<bool> reset_answer_;
  double seconds_in_step_ = 0;

  // Of the client's thread only.
  Clock::time_point last_heard_;
  bool ever_ready_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<EngineClient> make_process_client(const engine::EngineConfig& config, const std::string& executable,
                                                  bool waits) {
  return std::make_unique<ProcessClient>(config, executable, waits);
}

}  // namespace gristmill
