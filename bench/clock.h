#pragma once
#include <time.h>

#include <algorithm>
#include <vector>

namespace gristmill::bench {

inline double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
/// CPU time of the calling thread, and of all threads of the process: on a shared machine they say more than wall time.
inline double thread_seconds() {
  return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}
inline double process_seconds() {
  return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}
inline double wall_seconds() {
  return seconds_of(CLOCK_MONOTONIC);
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace gristmill::bench
