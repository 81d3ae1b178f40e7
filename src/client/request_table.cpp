#include "client/request_table.h"

#include <utility>

namespace gristmill {

engine::RequestId RequestTable::next_id() {
  const std::lock_guard lock(mutex_);
  return next_id_++;
}

void RequestTable::open(const engine::EngineRequest& request, EngineClient::OutputHandler handler) {
  auto entry = std::make_shared<Entry>();
  entry->handler = std::move(handler);
  entry->open = static_cast<size_t>(request.n > 0 ? request.n : 1);
  entry->ended.resize(entry->open);
  entry->prompt_tokens = static_cast<int32_t>(request.prompt.size());
  const std::lock_guard lock(mutex_);
  entries_[request.id] = std::move(entry);
}

void RequestTable::deliver(std::vector<engine::EngineOutput>&& outputs) {
  for (engine::EngineOutput& output : outputs) {
    std::shared_ptr<Entry> entry;
    {
      const std::lock_guard lock(mutex_);
      const auto found = entries_.find(output.id);
      if (found == entries_.end()) continue;
      entry = found->second;
      const size_t index = static_cast<size_t>(output.index);
      if (index >= entry->ended.size() || entry->ended[index]) continue;
      if (output.finish != engine::FinishReason::none) {
        entry->ended[index] = true;
        if (--entry->open == 0) entries_.erase(found);
      }
    }
    entry->handler(std::move(output));
  }
}

void RequestTable::end(engine::RequestId id, Entry& entry, const std::string& why) {
  for (size_t index = 0; index < entry.ended.size(); ++index) {
    if (entry.ended[index]) continue;
    engine::EngineOutput output;
    output.id = id;
    output.index = static_cast<int32_t>(index);
    output.finish = engine::FinishReason::error;
    output.error = why;
    output.prompt_tokens = entry.prompt_tokens;
    entry.handler(std::move(output));
  }
}

void RequestTable::fail(engine::RequestId id, const std::string& why) {
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    entry = std::move(found->second);
    entries_.erase(found);
  }
  end(id, *entry, why);
}

void RequestTable::fail_all(const std::string& why) {
  std::unordered_map<engine::RequestId, std::shared_ptr<Entry>> all;
  {
    const std::lock_guard lock(mutex_);
    all = std::exchange(entries_, {});
  }
  for (auto& [id, entry] : all) end(id, *entry, why);
}

size_t RequestTable::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace gristmill
