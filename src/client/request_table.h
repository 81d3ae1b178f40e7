#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/engine_client.h"

namespace gristmill {

/// The open requests of a client: who gets their outputs, and which choices have not ended. Thread safe.
class RequestTable {
 public:
  engine::RequestId next_id();
  void open(const engine::EngineRequest& request, EngineClient::OutputHandler handler);
  /// Hands each output to its request's handler; requests end with their last choice. Outputs of unknown requests are
  /// dropped.
  void deliver(std::vector<engine::EngineOutput>&& outputs);
  /// Ends every open choice of one request, or of all, with FinishReason::error.
  void fail(engine::RequestId id, const std::string& why);
  void fail_all(const std::string& why);
  size_t size() const;

 private:
  struct Entry {
    EngineClient::OutputHandler handler;
    std::vector<bool> ended;
    size_t open = 0;
    int32_t prompt_tokens = 0;
  };
  void end(engine::RequestId id, Entry& entry, const std::string& why);

  mutable std::mutex mutex_;
  engine::RequestId next_id_ = 1;
  std::unordered_map<engine::RequestId, std::shared_ptr<Entry>> entries_;
};

}  // namespace gristmill
