#include "cli/event_stream.h"

namespace gristmill::cli {

void EventStream::end_line(std::vector<std::string>& events) {
  if (line_.empty()) {
    if (has_data_) events.push_back(std::move(data_));
    data_.clear();
    has_data_ = false;
    return;
  }
  const size_t colon = line_.find(':');  // in front: a comment
  if (line_.compare(0, colon, "data") == 0 && (colon == std::string::npos || colon == 4)) {
    size_t value = colon == std::string::npos ? line_.size() : colon + 1;
    if (value < line_.size() && line_[value] == ' ') ++value;
    if (has_data_) data_ += '\n';
    data_.append(line_, value);
    has_data_ = true;
  }
  line_.clear();
}

std::vector<std::string> EventStream::push(std::string_view bytes) {
  std::vector<std::string> events;
  for (const char c : bytes) {
    if (c == '\n' && after_return_) {  // the second half of a line end
      after_return_ = false;
      continue;
    }
    after_return_ = c == '\r';
    if (c == '\n' || c == '\r') {
      end_line(events);
    } else {
      line_ += c;
    }
  }
  return events;
}

}  // namespace gristmill::cli
