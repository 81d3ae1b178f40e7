#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

namespace gristmill {

/// A child that speaks over a socket pair. Not thread safe; must be used and destroyed on the thread that started it,
/// because the kernel ends the child with that thread (PR_SET_PDEATHSIG).
class ChildProcess {
 public:
  /// Starts `executable` with `arguments`; its end of the socket pair is file descriptor 3, everything above is closed.
  /// Throws Error.
  ChildProcess(const std::string& executable, const std::vector<std::string>& arguments);
  /// Kills the child if it still runs, and reaps it.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  int socket() const { return socket_; }
  pid_t pid() const { return pid_; }
  void kill();
  /// Waits for the end and says how it came: "exited with status 1", "was killed by signal 11 (Segmentation fault)".
  std::string wait();

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  bool reaped_ = false;
};

}  // namespace gristmill
