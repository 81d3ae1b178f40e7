#include "base/terminal_progress.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace gristmill {
namespace {

constexpr double quiet_seconds = 2;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

TerminalProgress::TerminalProgress() : terminal_(isatty(STDERR_FILENO) == 1) {}

void TerminalProgress::begin(std::string_view stage, uint64_t total) {
  const std::lock_guard lock(mutex_);
  stage_ = stage;
  total_ = total;
  done_ = 0;
  started_ = seconds_now();
  next_draw_ = started_ + quiet_seconds;
  drawn_ = false;
}

void TerminalProgress::advance(uint64_t units) {
  done_.fetch_add(units, std::memory_order_relaxed);
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;  // another thread is drawing
  const double now = seconds_now();
  if (now < next_draw_) return;
  draw(now - started_, false);
  next_draw_ = now + (terminal_ ? 0.1 : 10);
}

void TerminalProgress::end() {
  const std::lock_guard lock(mutex_);
  if (drawn_) draw(seconds_now() - started_, true);
  drawn_ = false;
}

void TerminalProgress::draw(double seconds, bool last) {
  drawn_ = true;
  const uint64_t done = std::min(done_.load(std::memory_order_relaxed), total_);
  const double share = total_ == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total_);
  const double left = share > 0 ? seconds / share - seconds : 0;
  if (terminal_) {
    std::string bar(static_cast<size_t>(share * 30), '#');
    bar.resize(30, '.');
    std::fprintf(stderr, "\r%s [%s] %3.0f %% %.1f s, %.0f s left %s", stage_.c_str(), bar.c_str(), share * 100, seconds,
                 left, last ? "\n" : "");
  } else {
    std::fprintf(stderr, "%s: %.0f %% after %.0f s\n", stage_.c_str(), share * 100, seconds);
  }
}

}  // namespace gristmill
