#include "text/detokenizer.h"

#include "text/utf8.h"

namespace gristmill::text {

std::string Detokenizer::push(int32_t id) {
  pending_ += tokenizer_.token_bytes(id, skip_special_);
  std::string text;
  pending_.erase(0, append_decoded(text, pending_));
  return text;
}

std::string Detokenizer::finish() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(replacement_character);
}

StopStrings::StopStrings(std::vector<std::string> stops, bool include_in_output)
    : nodes_(1), include_(include_in_output) {
  for (size_t i = 0; i < stops.size(); ++i) {
    lengths_.push_back(static_cast<uint32_t>(stops[i].size()));
    if (stops[i].empty()) continue;
    uint32_t node = 0;
    for (const char c : stops[i]) {
      const uint8_t byte = static_cast<uint8_t>(c);
      uint32_t next = child(node, byte);
      if (next == 0) {
        next = static_cast<uint32_t>(nodes_.size());
        Node made;
        made.byte = byte;
        made.depth = nodes_[node].depth + 1;
        made.sibling = nodes_[node].first_child;
        nodes_[node].first_child = next;
        nodes_.push_back(made);
      }
      node = next;
    }
    if (nodes_[node].stop < 0) nodes_[node].stop = static_cast<int32_t>(i);
  }
  // Breadth first, so that a node's fallback, which is less deep, is finished before it.
  std::vector<uint32_t> order{0};
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t parent = order[i];
    for (uint32_t node = nodes_[parent].first_child; node != 0; node = nodes_[node].sibling) {
      order.push_back(node);
      if (parent == 0) continue;
      uint32_t suffix = nodes_[parent].fallback;
      while (suffix != 0 && child(suffix, nodes_[node].byte) == 0) suffix = nodes_[suffix].fallback;
      nodes_[node].fallback = child(suffix, nodes_[node].byte);
      const int32_t inherited = nodes_[nodes_[node].fallback].stop;
      if (inherited >= 0 && (nodes_[node].stop < 0 || inherited < nodes_[node].stop)) nodes_[node].stop = inherited;
    }
  }
}

uint32_t StopStrings::child(uint32_t node, uint8_t byte) const {
  uint32_t next = nodes_[node].first_child;
  while (next != 0 && nodes_[next].byte != byte) next = nodes_[next].sibling;
  return next;
}

StopStrings::Result StopStrings::push(std::string_view text) {
  if (stopped_) return {};
  Result result;
  held_ += text;
  const size_t known = held_.size() - text.size();  // bytes that the automaton has seen
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    uint32_t next = child(state_, byte);
    while (next == 0 && state_ != 0) {
      state_ = nodes_[state_].fallback;
      next = child(state_, byte);
    }
    state_ = next;
    if (nodes_[state_].stop < 0) continue;
    stopped_ = true;
    result.matched = nodes_[state_].stop;
    const size_t end = known + i + 1;
    result.text = held_.substr(0, include_ ? end : end - lengths_[static_cast<size_t>(result.matched)]);
    held_.clear();
    return result;
  }
  const size_t keep = nodes_[state_].depth;
  result.text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return result;
}

std::string StopStrings::finish() {
  state_ = 0;
  return std::move(held_);
}

}  // namespace gristmill::text
