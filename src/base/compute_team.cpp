#include "base/compute_team.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"

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

struct alignas(64) Counter {
  std::atomic<uint64_t> value{0};
};

struct alignas(64) Slot {
  std::atomic<uint64_t> undone{0};
  Phase phase;  // read only between taking an item and finishing it
};

struct Board {
  Board(size_t size, size_t domains) : slots(size), untaken(size * domains) {}
  std::vector<Slot> slots;
  std::vector<Counter> untaken;  // [slot][domain]
  std::atomic<uint32_t> count{0};
};

/// Members of a domain are numbered in a row.
struct Domain {
  uint32_t first_member = 0, members = 0;
  std::vector<int> cpus;  // empty: not bound

  /// The first item of this domain's share of `items`, when `all` members share them.
  uint32_t first_item(uint32_t items, uint32_t all) const {
    return static_cast<uint32_t>(uint64_t{items} * first_member / all);
  }
  uint32_t end_item(uint32_t items, uint32_t all) const {
    return static_cast<uint32_t>(uint64_t{items} * (first_member + members) / all);
  }
};

/// Members by cores, in whole numbers that add up: domain d ends where the cores up to it have their share.
std::vector<Domain> spread(int members, const Topology& topology) {
  int64_t cores = 0, before = 0;
  for (const CpuDomain& domain : topology.domains) cores += std::max(1, domain.cores);
  std::vector<Domain> domains;
  for (const CpuDomain& domain : topology.domains) {
    const int64_t first = members * before / cores;
    before += std::max(1, domain.cores);
    const int64_t end = members * before / cores;
    if (end > first) domains.push_back({static_cast<uint32_t>(first), static_cast<uint32_t>(end - first), domain.cpus});
  }
  if (domains.empty()) domains.push_back({0, static_cast<uint32_t>(members), {}});
  if (!topology.bind)
    for (Domain& domain : domains) domain.cpus.clear();
  return domains;
}

/// Binds the calling thread. It may be refused, e.g. by a cpuset that has changed: then the kernel chooses.
void bind_to(const std::vector<int>& cpus) {
  if (cpus.empty()) return;
  const auto last = static_cast<size_t>(*std::max_element(cpus.begin(), cpus.end()));
  std::vector<unsigned long> mask(last / (8 * sizeof(unsigned long)) + 1);
  for (const int cpu : cpus)
    mask[static_cast<size_t>(cpu) / (8 * sizeof(unsigned long))] |= 1UL << cpu % (8 * sizeof(unsigned long));
  sched_setaffinity(0, mask.size() * sizeof(unsigned long), reinterpret_cast<const cpu_set_t*>(mask.data()));
}

std::chrono::nanoseconds thread_cpu() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

int futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
  return static_cast<int>(
      syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, nullptr, nullptr, 0));
}

/// What a member tells the others.
struct alignas(64) Member {
  std::atomic<uint32_t> out{0};            // 1: sits out, asleep on this word
  std::atomic<int64_t> awake{0}, lost{0};  // nanoseconds, since member 0 last looked
};

}  // namespace

struct ComputeTeam::State {
  State(int size, const Topology& topology, const OverrunPolicy::Settings& settings)
      : domains(spread(size, topology)), members(static_cast<size_t>(size)), policy(size, settings) {
    for (uint32_t d = 0; d < domains.size(); ++d) domain_of.insert(domain_of.end(), domains[d].members, d);
  }

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

  const std::vector<Domain> domains;
  std::vector<uint32_t> domain_of;  // of a member
  std::vector<Member> members;
  OverrunPolicy policy;
  std::thread::id caller;  // the thread that was bound as member 0

  void wake() {
    if (sleepers.load(std::memory_order_seq_cst) == 0) return;
    signal.fetch_add(1, std::memory_order_seq_cst);
    futex(signal, FUTEX_WAKE_PRIVATE, INT_MAX);
  }

  // Returns how long it has slept.
  template <class Condition>
  std::chrono::nanoseconds wait(Condition reached) {
    auto now = OverrunPolicy::Clock::now();
    const auto deadline = now + kSpin;
    do {
      for (int i = 0; i < 16; ++i) {
        if (reached()) return {};
        pause_core();
      }
      now = OverrunPolicy::Clock::now();
    } while (now < deadline);
    while (!reached()) {
      const uint32_t seen = signal.load(std::memory_order_seq_cst);
      sleepers.fetch_add(1, std::memory_order_seq_cst);
      if (!reached()) futex(signal, FUTEX_WAIT_PRIVATE, seen);
      sleepers.fetch_sub(1, std::memory_order_seq_cst);
    }
    return OverrunPolicy::Clock::now() - now;
  }

  void end() {
    stop.store(true, std::memory_order_seq_cst);
    for (Member& member : members) call_in(member);
    wake();
    for (std::thread& thread : threads) thread.join();
  }

  // Runs items of this slot until none is left; false when the launch is over.
  bool take_items(Board& shown, uint32_t index, uint32_t epoch_now, uint32_t member) {
    Slot& slot = shown.slots[index];
    const auto count = static_cast<uint32_t>(domains.size()), all = static_cast<uint32_t>(members.size());
    for (uint32_t turn = 0, d = domain_of[member]; turn < count; ++turn, d = d + 1 == count ? 0 : d + 1) {
      std::atomic<uint64_t>& untaken = shown.untaken[size_t{index} * count + d].value;
      uint64_t seen = untaken.load(std::memory_order_acquire);
      while (epoch_of(seen) == epoch_now && left_of(seen) != 0) {
        if (!untaken.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
          continue;
        }
        slot.phase.run(slot.phase.context, domains[d].end_item(slot.phase.items, all) - left_of(seen), member);
        if (left_of(slot.undone.fetch_sub(1, std::memory_order_seq_cst)) == 1) wake();
        seen = untaken.load(std::memory_order_acquire);
      }
      if (epoch_of(seen) != epoch_now) return false;
    }
    return true;
  }

  // Returns how long it has slept.
  std::chrono::nanoseconds walk_phases(uint32_t epoch_now, uint32_t member) {
    std::chrono::nanoseconds slept{0};
    Board* const shown = board.load(std::memory_order_acquire);
    const uint32_t count = shown->count.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < count; ++i) {
      if (!take_items(*shown, i, epoch_now, member)) break;
      Slot& slot = shown->slots[i];
      slept += wait([&] {
        const uint64_t seen = slot.undone.load(std::memory_order_seq_cst);
        return epoch_of(seen) != epoch_now || left_of(seen) == 0;
      });
    }
    return slept;
  }

  // The same, with an account of the time that there was no core for it.
  void walk(uint32_t epoch_now, uint32_t member) {
    const auto began = OverrunPolicy::Clock::now();
    const auto used = thread_cpu();
    const auto slept = walk_phases(epoch_now, member);
    const auto awake = OverrunPolicy::Clock::now() - began - slept;
    const auto lost = awake - (thread_cpu() - used);
    members[member].awake.fetch_add(awake.count(), std::memory_order_relaxed);
    if (lost.count() > 0) members[member].lost.fetch_add(lost.count(), std::memory_order_relaxed);
  }

  void serve(uint32_t member) {
    bind_to(domains[domain_of[member]].cpus);
    uint32_t known = 0;
    for (;;) {
      wait([&] { return stop.load(std::memory_order_acquire) || epoch.load(std::memory_order_seq_cst) != known; });
      if (stop.load(std::memory_order_acquire)) return;
      known = epoch.load(std::memory_order_acquire);
      walk(known, member);
      while (members[member].out.load(std::memory_order_acquire) == 1)
        futex(members[member].out, FUTEX_WAIT_PRIVATE, 1);
    }
  }

  static void call_in(Member& member) {
    if (member.out.exchange(0, std::memory_order_acq_rel) == 1) futex(member.out, FUTEX_WAKE_PRIVATE, 1);
  }

  // By member 0, between launches.
  void decide() {
    if (members[0].awake.load(std::memory_order_relaxed) < policy.settings().window.count()) return;
    std::vector<OverrunPolicy::Use> uses;
    for (Member& member : members)
      uses.push_back({std::chrono::nanoseconds(member.awake.exchange(0, std::memory_order_relaxed)),
                      std::chrono::nanoseconds(member.lost.exchange(0, std::memory_order_relaxed))});
    const int before = policy.active();
    policy.observe(OverrunPolicy::Clock::now(), uses);
    if (policy.active() != before)
      LOG_DEBUG("Compute team: ", policy.active(), " of ", members.size(), " threads compute; others use their cores");
    for (size_t i = 1; i < members.size(); ++i) {
      if (policy.sits_out(static_cast<int>(i))) {
        members[i].out.store(1, std::memory_order_release);
      } else {
        call_in(members[i]);
      }
    }
  }
};

ComputeTeam::ComputeTeam(int members, const Topology& topology, const OverrunPolicy::Settings& overrun)
    : state_(std::make_unique<State>(members, topology, overrun)) {
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

int ComputeTeam::active() const {
  return state_->policy.active();
}

void ComputeTeam::start(std::span<const Phase> phases) {
  if (state_->threads.empty()) {
    state_->alone = phases;
    return;
  }
  const std::vector<Domain>& domains = state_->domains;
  Board* board = state_->board.load(std::memory_order_relaxed);
  if (board == nullptr || board->slots.size() < phases.size()) {
    state_->boards.push_back(std::make_unique<Board>(std::max<size_t>(64, 2 * phases.size()), domains.size()));
    board = state_->boards.back().get();
  }
  uint32_t epoch = state_->epoch.load(std::memory_order_relaxed) + 1;
  if (epoch == 0) epoch = 1;  // 0 is what a new member knows
  const auto all = static_cast<uint32_t>(state_->members.size());
  for (size_t i = 0; i < phases.size(); ++i) {
    Slot& slot = board->slots[i];
    slot.phase = phases[i];
    slot.undone.store(counter(epoch, phases[i].items), std::memory_order_relaxed);
    for (size_t d = 0; d < domains.size(); ++d) {
      const uint32_t items = domains[d].end_item(phases[i].items, all) - domains[d].first_item(phases[i].items, all);
      board->untaken[i * domains.size() + d].value.store(counter(epoch, items), std::memory_order_release);
    }
  }
  board->count.store(static_cast<uint32_t>(phases.size()), std::memory_order_release);
  state_->board.store(board, std::memory_order_release);
  state_->epoch.store(epoch, std::memory_order_seq_cst);
  state_->wake();
}

void ComputeTeam::finish() {
  if (std::this_thread::get_id() != state_->caller) {
    state_->caller = std::this_thread::get_id();
    bind_to(state_->domains.front().cpus);
  }
  if (state_->threads.empty()) {
    for (const Phase& phase : state_->alone) {
      for (uint32_t item = 0; item < phase.items; ++item) phase.run(phase.context, item, 0);
    }
    return;
  }
  state_->walk(state_->epoch.load(std::memory_order_relaxed), 0);
  state_->decide();
}

}  // namespace gristmill
