#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace gristmill::cli {

/// Reads server-sent events (WHATWG HTML, section 9.2) from a stream that arrives in pieces of any size; keeps the data
/// field only.
class EventStream {
 public:
  /// The data of the events that `bytes` completes.
  std::vector<std::string> push(std::string_view bytes);

 private:
  void end_line(std::vector<std::string>& events);
  std::string line_, data_;
  bool has_data_ = false, after_return_ = false;
};

}  // namespace gristmill::cli
