#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/progress.h"

namespace gristmill {

/// Shows progress on stderr once a stage has taken two seconds: a bar that moves on a terminal, a line every ten
/// seconds elsewhere. Thread safe.
class TerminalProgress final : public Progress {
 public:
  TerminalProgress();
  void begin(std::string_view stage, uint64_t total) override;
  void advance(uint64_t units) override;
  void end() override;

 private:
  void draw(double seconds, bool last);
  std::mutex mutex_;
  bool terminal_;
  std::string stage_;
  uint64_t total_ = 0;
  std::atomic<uint64_t> done_{0};
  double started_ = 0;
  double next_draw_ = 0;
  bool drawn_ = false;
};

}  // namespace gristmill
