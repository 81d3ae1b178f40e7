#include "client/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.h"

namespace gristmill {

ChildProcess::ChildProcess(const std::string& executable, const std::vector<std::string>& arguments) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    throw Error(cat("cannot make a socket pair for the engine process: ", std::strerror(errno)));
  }
  std::vector<char*> argv;
  std::string name = "gristmill";  // what process lists show, where the executable may be /proc/self/exe
  argv.push_back(name.data());
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    // Only async-signal-safe calls from here to exec: other threads may have held locks.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    if (pair[1] == 3) {
      ::fcntl(3, F_SETFD, 0);
    } else if (::dup2(pair[1], 3) < 0) {
      ::_exit(127);
    }
    ::syscall(SYS_close_range, 4u, ~0u, 0u);
    ::execv(executable.c_str(), argv.data());
    ::_exit(127);
  }
  ::close(pair[1]);
  if (pid_ < 0) {
    const int failure = errno;
    ::close(pair[0]);
    throw Error(cat("cannot start the engine process: ", std::strerror(failure)));
  }
  socket_ = pair[0];
  ::fcntl(socket_, F_SETFL, ::fcntl(socket_, F_GETFL) | O_NONBLOCK);
}

ChildProcess::~ChildProcess() {
  if (!reaped_) {
    kill();
    wait();
  }
  ::close(socket_);
}

void ChildProcess::kill() {
  if (!reaped_) ::kill(pid_, SIGKILL);
}

std::string ChildProcess::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  if (WIFSIGNALED(status)) {
    return cat("was killed by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  }
  return cat("exited with status ", WEXITSTATUS(status));
}

}  // namespace gristmill
