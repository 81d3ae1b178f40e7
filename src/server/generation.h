#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/engine_client.h"
#include "server/http/event_loop.h"
#include "server/http/message.h"
#include "server/metrics/serving_metrics.h"
#include "server/openai/answer.h"
#include "server/openai/job.h"

namespace gristmill::server {

class Generation;

/// Brings engine outputs from the client's threads to the loop: however many a step gives, the loop wakes once. The
/// client's handlers share it, and may outlive the loop; generations live and die on the loop only.
class OutputInbox {
 public:
  explicit OutputInbox(EventLoop& loop) : loop_(&loop) {}
  /// Thread safe.
  void put(std::weak_ptr<Generation> generation, size_t prompt, engine::EngineOutput&& output);
  /// The loop is going away: whatever still comes is dropped. On the loop, or after it.
  void close();

 private:
  struct Item {
    std::weak_ptr<Generation> generation;
    size_t prompt;
    engine::EngineOutput output;
  };
  void deliver();

  std::mutex mutex_;
  EventLoop* loop_;
  std::vector<Item> items_;
  std::vector<Item> delivering_;  // only on the loop
};

/// What generations share. Everything on the loop.
class GenerationHost {
 public:
  virtual ~GenerationHost() = default;
  virtual EngineClient& client() = 0;
  virtual const std::shared_ptr<OutputInbox>& inbox() = 0;
  virtual ServingMetrics& metrics() = 0;
  /// The first output has come: the request does not wait any more.
  virtual void admitted(Generation& generation) = 0;
  virtual void ended(Generation& generation) = 0;
};

/// One request from the engine's queue to the end of its answer. Lives on the loop, kept by its host until it has
/// ended.
class Generation final : public std::enable_shared_from_this<Generation> {
 public:
  Generation(GenerationHost& host, std::shared_ptr<Exchange> exchange, openai::Job job,
             std::shared_ptr<const ServedModel> model, std::string id, double arrival);

  /// Queues every prompt in the engine.
  void start();
  void accept(size_t prompt, engine::EngineOutput&& output);
  /// Asks the engine to end everything; the answer then ends with finish_reason "abort".
  void abort();
  bool waiting() const { return waiting_; }
  size_t prompt_bytes() const { return prompt_bytes_; }
  const std::string& id() const { return id_; }
  /// For the log: sizes and sampling.
  std::string describe() const;

 private:
  struct Timing {
    double first = 0, last = 0;  ///< when its first and last tokens arrived here
    double queued = 0, scheduled = 0, first_made = 0, last_made = 0;
    int64_t generated = 0;
  };
  void note_output(size_t prompt, size_t choice, const engine::EngineOutput& output);
  void choice_over(size_t choice, const char* reason);
  void tell(size_t choice);
  void fail(const engine::EngineOutput& output);
  void conclude();
  void end();
  void client_gone();
  openai::Usage usage() const;
  void begin_stream();

  GenerationHost& host_;
  std::shared_ptr<Exchange> exchange_;
  openai::Job job_;
  std::shared_ptr<const ServedModel> model_;
  std::string id_;
  double arrival_;
  size_t prompt_bytes_ = 0;
  std::unique_ptr<openai::Answer> answer_;
  std::vector<openai::Choice> choices_;
  std::vector<Timing> timings_;
  std::vector<engine::RequestId> engine_ids_;
  std::vector<int32_t> cached_;  // per prompt; -1 before its first output
  size_t unfinished_ = 0;
  bool waiting_ = true;
  bool streaming_ = false;
  bool over_ = false;
  std::string events_;  // reused for every event
};

/// Seconds on CLOCK_MONOTONIC.
double monotonic_seconds();

}  // namespace gristmill::server
