#include "base/compute_team.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"

namespace gristmill {
namespace {

// Longer than the imbalance of a well cut phase, shorter than what a sleeping thread costs to wake in a virtual
// machine: whoever waits longer than this waits for a member that has lost its core, and should give up its own.
constexpr std::chrono::microseconds kSpin{30};

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == sizeof(uint32_t),
              "a futex is a plain 32-bit word");

// A counter of one launch: its epoch in the upper half, what is left in the lower. A member that slept through the end
// of a launch finds another epoch and leaves; it can neither take nor finish an item of a launch it does not know.
constexpr uint64_t counter(uint32_t epoch, uint32_t left) {
  return (static_cast<uint64_t>(epoch) << 32) | left;
}
constexpr uint32_t epoch_of(uint64_t value) {
  return static_cast<uint32_t>(value >> 32);
}
constexpr uint32_t left_of(uint64_t value) {
  return static_cast<uint32_t>(value);
}

struct alignas(64) Slot {
  std::atomic<uint64_t> untaken{0};
  std::atomic<uint64_t> undone{0};
  Phase phase;  // read only between taking an item and finishing it
};

struct Board {
  explicit Board(size_t size) : slots(size) {}
  std::vector<Slot> slots;
  std::atomic<uint32_t> count{0};
};

}  // namespace

struct ComputeTeam::State {
  std::atomic<uint32_t> epoch{0};
  std::atomic<Board*> board{nullptr};
  std::atomic<bool> stop{false};
  // An event count: sleepers wait for `signal` to change. Raised only while somebody sleeps.
  std::atomic<uint32_t> signal{0};
  std::atomic<uint32_t> sleepers{0};
  // Boards are kept until the end: a member that is late may still look at the counters of an old one.
  std::vector<std::unique_ptr<Board>> boards;
  std::vector<std::thread> threads;
  std::span<const Phase> alone;  // a team of one walks the caller's list itself

  void wake() {
    if (sleepers.load(std::memory_order_seq_cst) == 0) return;
    signal.fetch_add(1, std::memory_order_seq_cst);
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&signal), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }

  template <class Condition>
  void wait(Condition reached) {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 16; ++i) {
        if (reached()) return;
        pause_core();
      }
    } while (std::chrono::steady_clock::now() < deadline);
    while (!reached()) {
      const uint32_t seen = signal.load(std::memory_order_seq_cst);
      sleepers.fetch_add(1, std::memory_order_seq_cst);
      if (!reached()) {
        syscall(SYS_futex, reinterpret_cast<uint32_t*>(&signal), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
      }
      sleepers.fetch_sub(1, std::memory_order_seq_cst);
    }
  }

  void end() {
    stop.store(true, std::memory_order_seq_cst);
    wake();
    for (std::thread& thread : threads) thread.join();
  }

  // Runs items of this slot until none is left; false when the launch is over.
  bool take_items(Slot& slot, uint32_t epoch_now, uint32_t member) {
    uint64_t seen = slot.untaken.load(std::memory_order_acquire);
    while (epoch_of(seen) == epoch_now && left_of(seen) != 0) {
      if (!slot.untaken.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
        continue;
      }
      slot.phase.run(slot.phase.context, slot.phase.items - left_of(seen), member);
      if (left_of(slot.undone.fetch_sub(1, std::memory_order_seq_cst)) == 1) wake();
      seen = slot.untaken.load(std::memory_order_acquire);
    }
    return epoch_of(seen) == epoch_now;
  }

  void walk(uint32_t epoch_now, uint32_t member) {
    Board* const shown = board.load(std::memory_order_acquire);
    const uint32_t count = shown->count.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < count; ++i) {
      Slot& slot = shown->slots[i];
      if (!take_items(slot, epoch_now, member)) return;
      wait([&] {
        const uint64_t seen = slot.undone.load(std::memory_order_seq_cst);
        return epoch_of(seen) != epoch_now || left_of(seen) == 0;
      });
    }
  }

  void serve(uint32_t member) {
    uint32_t known = 0;
    for (;;) {
      wait([&] { return stop.load(std::memory_order_acquire) || epoch.load(std::memory_order_seq_cst) != known; });
      if (stop.load(std::memory_order_acquire)) return;
      known = epoch.load(std::memory_order_acquire);
      walk(known, member);
    }
  }
};

ComputeTeam::ComputeTeam(int members) : state_(std::make_unique<State>()) {
  try {
    for (int member = 1; member < members; ++member) {
      state_->threads.emplace_back([state = state_.get(), member] { state->serve(static_cast<uint32_t>(member)); });
    }
  } catch (const std::system_error& error) {
    const size_t started = state_->threads.size() + 1;
    state_->end();
    throw Error(cat("cannot start ", members, " threads: the system gives ", started, " (", error.what(),
                    "); lower --threads"));
  }
}

ComputeTeam::~ComputeTeam() {
  state_->end();
}

int ComputeTeam::size() const {
  return static_cast<int>(state_->threads.size()) + 1;
}

void ComputeTeam::start(std::span<const Phase> phases) {
  if (state_->threads.empty()) {
    state_->alone = phases;
    return;
  }
  Board* board = state_->board.load(std::memory_order_relaxed);
  if (board == nullptr || board->slots.size() < phases.size()) {
    state_->boards.push_back(std::make_unique<Board>(std::max<size_t>(64, 2 * phases.size())));
    board = state_->boards.back().get();
  }
  uint32_t epoch = state_->epoch.load(std::memory_order_relaxed) + 1;
  if (epoch == 0) epoch = 1;  // 0 is what a new member knows
  for (size_t i = 0; i < phases.size(); ++i) {
    Slot& slot = board->slots[i];
    slot.phase = phases[i];
    slot.undone.store(counter(epoch, phases[i].items), std::memory_order_relaxed);
    slot.untaken.store(counter(epoch, phases[i].items), std::memory_order_release);
  }
  board->count.store(static_cast<uint32_t>(phases.size()), std::memory_order_release);
  state_->board.store(board, std::memory_order_release);
  state_->epoch.store(epoch, std::memory_order_seq_cst);
  state_->wake();
}

void ComputeTeam::finish() {
  if (state_->threads.empty()) {
    for (const Phase& phase : state_->alone) {
      for (uint32_t item = 0; item < phase.items; ++item) phase.run(phase.context, item, 0);
    }
    return;
  }
  state_->walk(state_->epoch.load(std::memory_order_relaxed), 0);
}

}  // namespace gristmill
