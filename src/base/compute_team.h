#pragma once
#include <cstdint>
#include <memory>
#include <span>

namespace gristmill {

/// One phase of a launch: `items` independent pieces of work. Every item is run exactly once, by any member; all items
/// of a phase end before the first item of the next phase starts.
struct Phase {
  /// Runs one item. `member` is 0 .. size-1 and names the scratch space this call may use. Must not throw.
  void (*run)(void* context, uint32_t item, uint32_t member) = nullptr;
  void* context = nullptr;
  uint32_t items = 0;
};

/// A fixed set of threads that walk a list of phases together. Items are taken one by one from a counter, and a phase
/// ends when its items are done, not when every member has come by: a member that the kernel has set aside between two
/// items delays nobody. Members spin briefly for the end of a phase, then sleep.
///
/// The caller's thread is member 0: a team of 1 starts no thread. Results may not depend on which member runs an item.
/// One launch at a time; start() and finish() are called from one thread.
class ComputeTeam {
 public:
  explicit ComputeTeam(int members);
  ~ComputeTeam();
  ComputeTeam(const ComputeTeam&) = delete;
  ComputeTeam& operator=(const ComputeTeam&) = delete;

  int size() const;
  /// Wakes the other members on `phases`, which must live until finish() returns.
  void start(std::span<const Phase> phases);
  /// The caller joins in as member 0 and returns when the last phase is done.
  void finish();
  void run(std::span<const Phase> phases) {
    start(phases);
    finish();
  }

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Cores this process may use: the affinity mask, lowered to the cgroup's CPU quota.
int usable_cores();

}  // namespace gristmill
