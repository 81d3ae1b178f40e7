#pragma once
#include <csignal>

namespace gristmill::cli {

/// Turns Ctrl-C into something that can be waited for beside files, while an object lives. A SIGINT that comes before
/// the one before it was taken has its usual effect: whatever hangs, a second Ctrl-C ends the program. At most one
/// object at a time.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Whether a SIGINT came since the last take(); forgets it.
  bool take();
  /// Waits until `file` can be read (or written), or a SIGINT comes, or `milliseconds` pass (negative: for ever).
  enum class Event { ready, interrupt, timeout };
  Event wait(int file, bool write = false, int milliseconds = -1) const;

 private:
  int pipe_[2] = {-1, -1};
  struct sigaction previous_{};
};

}  // namespace gristmill::cli
