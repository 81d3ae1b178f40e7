#pragma once
#include <functional>
#include <memory>
#include <string>

#include "engine/engine_config.h"
#include "engine/messages.h"

namespace gristmill {

enum class EngineHealth : uint8_t {
  starting,  ///< loading, or restarting after a failure
  ready,
  dead,  ///< gave up: restarts failed repeatedly
};

/// The front's view of one engine, in this process or in another. All calls are thread safe and return at once.
class EngineClient {
 public:
  /// Called on a thread of the client for each output, in order per request; must be quick and not throw. The last call
  /// of a choice has finish != none. An engine that dies ends every choice with FinishReason::error.
  using OutputHandler = std::function<void(engine::EngineOutput&&)>;

  virtual ~EngineClient() = default;
  /// A fresh request id.
  virtual engine::RequestId next_id() = 0;
  /// Queues the request (request.id from next_id()). Fails by way of the handler when the engine is not ready.
  virtual void submit(engine::EngineRequest request, OutputHandler handler) = 0;
  /// Ends one choice of the request, or engine::every_choice, with FinishReason::abort and frees its memory within a
  /// step. Unknown ids and choices that have ended are ignored.
  virtual void abort(engine::RequestId id, int32_t choice) = 0;
  void abort(engine::RequestId id) { abort(id, engine::every_choice); }
  virtual EngineHealth health() const = 0;
  /// Why health() is not ready; empty when it is.
  virtual std::string health_detail() const = 0;
  /// Valid once health() has been ready. Waits for that up to `seconds` (negative: for ever) and throws Error if the
  /// engine cannot start.
  virtual engine::EngineInfo wait_ready(double seconds) = 0;
  /// Lets an engine that was made to wait for it (make_process_client) take memory and load its weights.
  virtual void permit_loading() {}
  /// The engine's latest figures, at most a second old.
  virtual engine::EngineStats stats() const = 0;
  /// Drops every cached block that no request uses; false when some request was running.
  virtual bool reset_prefix_cache() = 0;
};

/// The engine runs on a thread of this process.
std::unique_ptr<EngineClient> make_in_process_client(const engine::EngineConfig& config);

/// The engine runs in a child process (`executable` is this program, started again as `engine`), which is restarted
/// when it dies or stops answering. kill -9 of this process takes the child with it. With `waits`, it reads and checks
/// the model but takes no memory for it before permit_loading(): a fault that the front finds meanwhile costs nothing.
std::unique_ptr<EngineClient> make_process_client(const engine::EngineConfig& config, const std::string& executable,
                                                  bool waits = false);

}  // namespace gristmill
