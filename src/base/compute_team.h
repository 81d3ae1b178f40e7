#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "base/overrun.h"
#include "base/topology.h"

namespace gristmill {

/// One phase of a launch: `items` independent pieces of work. Every item is run exactly once, by any member; all items
/// of a phase end before the first item of the next phase starts.
struct Phase {
  /// Runs one item. `member` is 0 .. size-1 and names the scratch space this call may use. Must not throw.
  void (*run)(void* context, uint32_t item, uint32_t member) = nullptr;
  void* context = nullptr;
  uint32_t items = 0;
};

/// A set of threads that walk a list of phases together. Items are taken one by one from counters, and a phase ends
/// when its items are done, not when every member has come by: a member that the kernel has set aside between two items
/// delays nobody. Members spin briefly for the end of a phase, then sleep. A member whose core others use sits out for
/// a while (base/overrun.h).
///
/// On machines with several domains (base/topology.h) members are spread over them by their cores and may be bound to
/// all CPUs of theirs; within a domain the kernel finds the idle one. Every domain has a counter for its share of a
/// phase's items, always the same share, so that it reads the same weights in every step; who finds it empty helps the
/// next domain.
///
/// The caller's thread is member 0: a team of 1 starts no thread. Results may not depend on which member runs an item.
/// One launch at a time; start() and finish() are called from one thread.
class ComputeTeam {
 public:
  /// An empty topology is one domain, and nothing is bound.
  explicit ComputeTeam(int members, const Topology& topology = {}, const OverrunPolicy::Settings& overrun = {});
  ~ComputeTeam();
  ComputeTeam(const ComputeTeam&) = delete;
  ComputeTeam& operator=(const ComputeTeam&) = delete;

  int size() const;
  /// Members that do not sit out. As of the last launch; the caller's thread.
  int active() const;
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

}  // namespace gristmill
