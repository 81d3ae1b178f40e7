#include "client/engine_process.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/terminal_progress.h"
#include "client/wire.h"
#include "engine/engine_loop.h"

namespace gristmill {
namespace {

constexpr int stats_interval_ms = 250;

/// Progress on the terminal, and the place where loading waits until the front permits it: packing weights, the first
/// stage of all, is what takes the reserved memory.
class GatedProgress final : public Progress {
 public:
  void permit() {
    {
      const std::lock_guard lock(mutex_);
      permitted_ = true;
    }
    changed_.notify_all();
  }
  void begin(std::string_view stage, uint64_t total) override {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return permitted_; });
    }
    shown_.begin(stage, total);
  }
  void advance(uint64_t units) override { shown_.advance(units); }
  void end() override { shown_.end(); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool permitted_ = false;
  TerminalProgress shown_;
};

class EngineProcess {
 public:
  explicit EngineProcess(int socket) : socket_(socket) {}

  // Loading and the IO of this thread go on side by side: the front sees heartbeats from the first moment.
  int run() {
    int status = 0;
    try {
      while (take_frames()) {
        pollfd waited{socket_, POLLIN, 0};
        const int events = ::poll(&waited, 1, stats_interval_ms);
        if (events > 0 && !reader_.fill(socket_)) break;
        send_stats();
        if (const std::string fault = loaded_ && loop_ != nullptr ? loop_->fault() : ""; !fault.empty()) {
          LOG_ERROR("Engine process ends to be started anew: ", fault);
          status = 1;
          break;
        }
      }
    } catch (const std::exception& error) {
      LOG_ERROR("Engine process: ", error.what());
      status = 1;
    }
    if (loader_.joinable()) {
      // A model that is still loading is not waited for.
      if (!loaded_) std::_Exit(status);
      loader_.join();
    }
    loop_.reset();
    return status;
  }

 private:
  // False when the front says stop.
  bool take_frames() {
    while (const auto frame = reader_.next()) {
      switch (frame->type) {
        case wire::Type::hello: {
          const engine::EngineConfig config = wire::read_hello(frame->payload);
          loader_ = std::thread([this, config] { load(config); });
          break;
        }
        case wire::Type::load:
          progress_.permit();
          break;
        case wire::Type::submit:
          if (loaded_ && loop_ != nullptr) loop_->submit(wire::read_submit(frame->payload));
          break;
        case wire::Type::abort:
          if (loaded_ && loop_ != nullptr) {
            const auto [id, choice] = wire::read_abort(frame->payload);
            loop_->abort(id, choice);
          }
          break;
        case wire::Type::reset:
          send(wire::reset_answer_frame(loaded_ && loop_ != nullptr && loop_->reset_prefix_cache()));
          break;
        case wire::Type::stop:
          return false;
        default:
          throw Error(cat("unexpected message ", static_cast<int>(frame->type), " from the front"));
      }
    }
    return true;
  }

  void load(const engine::EngineConfig& config) {
    try {
      auto engine = std::make_unique<engine::Engine>(config, progress_);
      const engine::EngineInfo info = engine->info();
      loop_ = std::make_unique<engine::EngineLoop>(
          std::move(engine),
          [this](std::vector<engine::EngineOutput>&& outputs) { send(wire::outputs_frame(outputs)); });
      loaded_ = true;
      send(wire::ready_frame(info));
    } catch (const std::exception& error) {
      loaded_ = true;
      send(wire::failed_frame(error.what()));
    }
  }

  void send_stats() {
    const bool running = loaded_ && loop_ != nullptr;
    send(wire::stats_frame(running ? loop_->stats() : engine::EngineStats{}, running ? loop_->seconds_in_step() : 0));
  }

  // When the front is gone, the read side notices too.
  void send(const wire::Bytes& frame) {
    const std::lock_guard lock(write_mutex_);
    wire::write_frame(socket_, frame);
  }

  int socket_;
  wire::FrameReader reader_;
  std::mutex write_mutex_;
  GatedProgress progress_;
  std::atomic<bool> loaded_{false};  ///< loop_ is set, or loading has failed
  std::unique_ptr<engine::EngineLoop> loop_;
  std::thread loader_;
};

}  // namespace

int run_engine_process(int fd) {
  // A terminal's Ctrl-C and a service manager's TERM reach the whole group; the front decides when the engine ends.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  set_log_prefix(cat("(EngineCore pid=", ::getpid(), ") "));
  return EngineProcess(fd).run();
}

}  // namespace gristmill
