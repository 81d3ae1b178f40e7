#include "cli/interrupts.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace gristmill::cli {
namespace {

std::atomic<int> write_end{-1};
std::atomic<bool> pending{false};

void on_interrupt(int number) {
  const int saved = errno;
  if (pending.exchange(true)) {
    signal(number, SIG_DFL);
    raise(number);
  } else {
    const char byte = 1;
    const ssize_t put = write(write_end.load(), &byte, 1);
    static_cast<void>(put);  // the pipe is empty: it has room
  }
  errno = saved;
}

}  // namespace

Interrupts::Interrupts() {
  if (pipe2(pipe_, O_CLOEXEC | O_NONBLOCK) != 0) throw Error(cat("no pipe for signals: ", std::strerror(errno)));
  write_end = pipe_[1];
  pending = false;
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_);
}

Interrupts::~Interrupts() {
  sigaction(SIGINT, &previous_, nullptr);
  write_end = -1;
  close(pipe_[0]);
  close(pipe_[1]);
}

bool Interrupts::take() {
  bool any = false;
  char bytes[16];
  while (read(pipe_[0], bytes, sizeof(bytes)) > 0) any = true;
  pending = false;
  return any;
}

Interrupts::Event Interrupts::wait(int file, bool write, int milliseconds) const {
  pollfd files[2] = {{pipe_[0], POLLIN, 0}, {file, static_cast<short>(write ? POLLOUT : POLLIN), 0}};
  while (true) {
    const int ready = poll(files, 2, milliseconds);
    if (ready < 0 && errno != EINTR) throw Error(cat("cannot wait for input: ", std::strerror(errno)));
    if (ready < 0) continue;
    if (ready == 0) return Event::timeout;
    return files[0].revents != 0 ? Event::interrupt : Event::ready;
  }
}

}  // namespace gristmill::cli
