#include <chrono>
#include <condition_variable>
#include <thread>

#include "base/terminal_progress.h"
#include "client/engine_client.h"
#include "client/request_table.h"
#include "engine/engine_loop.h"

namespace gristmill {
namespace {

class InProcessClient final : public EngineClient {
 public:
  explicit InProcessClient(const engine::EngineConfig& config) : loader_([this, config] { load(config); }) {}

  ~InProcessClient() override {
    loader_.join();
    loop_.reset();
    table_.fail_all("the engine is shutting down");
  }

  engine::RequestId next_id() override { return table_.next_id(); }

  void submit(engine::EngineRequest request, OutputHandler handler) override {
    table_.open(request, std::move(handler));
    const std::lock_guard lock(mutex_);
    if (loop_ == nullptr) {
      queued_.push_back(std::move(request));  // delivered, or failed, when loading ends
      if (health_ == EngineHealth::dead) table_.fail(queued_.back().id, detail_);
      return;
    }
    loop_->submit(std::move(request));
  }

  void abort(engine::RequestId id, int32_t choice) override {
    const std::lock_guard lock(mutex_);
    if (loop_ != nullptr) loop_->abort(id, choice);
    if (loop_ == nullptr) aborted_.emplace_back(id, choice);
  }

  EngineHealth health() const override {
    const std::lock_guard lock(mutex_);
    return health_;
  }

  std::string health_detail() const override {
    const std::lock_guard lock(mutex_);
    return detail_;
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
    return loop_->info();
  }

  engine::EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    return loop_ == nullptr ? engine::EngineStats{} : loop_->stats();
  }

  bool reset_prefix_cache() override {
    engine::EngineLoop* loop = nullptr;
    {
      const std::lock_guard lock(mutex_);
      loop = loop_.get();
    }
    return loop != nullptr && loop->reset_prefix_cache();
  }

 private:
  void load(const engine::EngineConfig& config) {
    std::unique_ptr<engine::EngineLoop> loop;
    std::string failure;
    try {
      TerminalProgress progress;
      auto engine = std::make_unique<engine::Engine>(config, progress);
      loop = std::make_unique<engine::EngineLoop>(
          std::move(engine),
          [this](std::vector<engine::EngineOutput>&& outputs) { table_.deliver(std::move(outputs)); });
    } catch (const std::exception& error) {
      failure = error.what();
    }
    {
      const std::lock_guard lock(mutex_);
      loop_ = std::move(loop);
      detail_ = failure;
      health_ = loop_ != nullptr ? EngineHealth::ready : EngineHealth::dead;
      for (engine::EngineRequest& request : queued_) {
        if (loop_ != nullptr) loop_->submit(std::move(request));
      }
      for (const auto& [id, choice] : aborted_) {
        if (loop_ != nullptr) loop_->abort(id, choice);
      }
      queued_.clear();
      aborted_.clear();
    }
    changed_.notify_all();
    if (!failure.empty()) table_.fail_all(failure);
  }

  RequestTable table_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  EngineHealth health_ = EngineHealth::starting;
  std::string detail_ = "the engine is loading the model";
  std::vector<engine::EngineRequest> queued_;
  std::vector<std::pair<engine::RequestId, int32_t>> aborted_;
  std::unique_ptr<engine::EngineLoop> loop_;
  std::thread loader_;
};

}  // namespace

std::unique_ptr<EngineClient> make_in_process_client(const engine::EngineConfig& config) {
  return std::make_unique<InProcessClient>(config);
}

}  // namespace gristmill
