#include "base/compute_team.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <thread>
#include <vector>

#include "base/error.h"
#include "sanitizers.h"

namespace gristmill {
namespace {

// Every item adds to cells that the phase before has written, so that a lost, repeated or early item changes the sum.
struct Chain {
  std::vector<uint64_t> before, after;
  std::vector<uint32_t> runs;
  std::atomic<int> foreign_members{0};
  uint32_t members = 1;

  static void run(void* context, uint32_t item, uint32_t member) {
    auto& self = *static_cast<Chain*>(context);
    if (member >= self.members) self.foreign_members.fetch_add(1);
    uint64_t sum = 0;
    for (uint64_t value : self.before) sum += value;
    self.after[item] = sum + item;
    ++self.runs[item];
  }
  static void turn(void* context, uint32_t, uint32_t) {
    auto& self = *static_cast<Chain*>(context);
    self.before.swap(self.after);
  }
};

struct Shape {
  int members = 1;
  int domains = 1;
  bool restless = false;  ///< members are sent out and called in again all the time
};
std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.members << " members in " << shape.domains << " domains" << (shape.restless ? ", restless" : "");
}

class TeamOf : public testing::TestWithParam<Shape> {
 protected:
  TeamOf() {
    for (int d = 0; d < GetParam().domains; ++d) topology_.domains.push_back({d, d + 1, {}});
    if (GetParam().restless)
      overrun_ = {std::chrono::nanoseconds(0), 0, 0, std::chrono::nanoseconds(0), std::chrono::nanoseconds(0)};
  }
  Topology topology_;
  OverrunPolicy::Settings overrun_;
};

TEST_P(TeamOf, RunsEveryItemOnceAndPhasesInOrder) {
  constexpr uint32_t kItems = 13;
  constexpr int kPhases = 60, kLaunches = 30;
  ComputeTeam team(GetParam().members, topology_, overrun_);
  EXPECT_EQ(team.size(), GetParam().members);
  Chain chain{
      std::vector<uint64_t>(kItems, 1), std::vector<uint64_t>(kItems, 0), std::vector<uint32_t>(kItems, 0), {}, 0};
  chain.members = static_cast<uint32_t>(GetParam().members);
  std::vector<Phase> phases;
  for (int i = 0; i < kPhases; ++i) {
    phases.push_back({Chain::run, &chain, kItems});
    phases.push_back({Chain::turn, &chain, 1});
    phases.push_back({Chain::run, &chain, 0});
  }
  for (int i = 0; i < kLaunches; ++i) team.run(phases);

  std::vector<uint64_t> expected(kItems, 1);
  for (int i = 0; i < kPhases * kLaunches; ++i) {
    uint64_t sum = 0;
    for (uint64_t value : expected) sum += value;
    for (uint32_t item = 0; item < kItems; ++item) expected[item] = sum + item;
  }
  EXPECT_EQ(chain.before, expected);
  EXPECT_EQ(chain.runs, std::vector<uint32_t>(kItems, kPhases * kLaunches));
  EXPECT_EQ(chain.foreign_members.load(), 0);
}

TEST_P(TeamOf, TakesLaunchesOfAnyLengthOneAfterTheOther) {
  ComputeTeam team(GetParam().members, topology_, overrun_);
  std::atomic<uint64_t> done{0};
  auto count = [](void* context, uint32_t, uint32_t) {
    static_cast<std::atomic<uint64_t>*>(context)->fetch_add(1, std::memory_order_relaxed);
  };
  uint64_t expected = 0;
  for (uint32_t length : {0u, 1u, 500u, 3u, 1200u, 1u}) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      const std::vector<Phase> phases(length, Phase{count, &done, 1 + length % 3});
      team.run(phases);
      expected += static_cast<uint64_t>(length) * (1 + length % 3);
      ASSERT_EQ(done.load(), expected);
    }
  }
}

TEST_P(TeamOf, WakesAfterASleep) {
  ComputeTeam team(GetParam().members, topology_, overrun_);
  std::atomic<int> done{0};
  auto count = [](void* context, uint32_t, uint32_t) { static_cast<std::atomic<int>*>(context)->fetch_add(1); };
  const std::vector<Phase> phases(4, Phase{count, &done, 8});
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    team.run(phases);
  }
  EXPECT_EQ(done.load(), 5 * 4 * 8);
}

INSTANTIATE_TEST_SUITE_P(Members, TeamOf,
                         testing::Values(Shape{1}, Shape{2}, Shape{3}, Shape{5}, Shape{8}, Shape{1, 3}, Shape{2, 2},
                                         Shape{5, 3}, Shape{8, 2}, Shape{4, 1, true}, Shape{5, 3, true}));

TEST(ComputeTeam, ADomainTakesItsOwnShareFirstAndHelpsOthersThen) {
  // One member in each of two domains: the second one holds its first item until all others are done.
  const Topology topology{{{0, 1, {}}, {1, 1, {}}}, false};
  struct Shared {
    std::vector<std::atomic<int>> by = std::vector<std::atomic<int>>(16);
    std::atomic<int> done{0};
    std::atomic<bool> held{false};
  } shared;
  auto run = [](void* context, uint32_t item, uint32_t member) {
    auto& state = *static_cast<Shared*>(context);
    state.by[item] = static_cast<int>(member) + 1;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    if (member == 1 && !state.held.exchange(true)) {
      while (state.done.load() < 15 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    } else if (member == 0) {
      while (!state.held.load() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    }
    state.done.fetch_add(1);
  };
  ComputeTeam team(2, topology);
  const Phase phase{run, &shared, 16};
  team.run({&phase, 1});
  for (int item = 0; item < 16; ++item)
    EXPECT_EQ(shared.by[static_cast<size_t>(item)].load(), item == 8 ? 2 : 1) << item;
}

TEST(ComputeTeam, MembersStayOnTheCpusOfTheirDomainWhenBound) {
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mine)) cpus.push_back(cpu);
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU";
  const Topology topology{{{0, 1, {cpus[0]}}, {1, 1, {cpus[1]}}}, true};
  struct Shared {
    std::atomic<int> masks[2] = {-1, -1};
  } shared;
  auto run = [](void* context, uint32_t, uint32_t member) {
    cpu_set_t mask;
    sched_getaffinity(0, sizeof mask, &mask);
    int only = -2;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &mask)) only = only == -2 ? cpu : -3;
    static_cast<Shared*>(context)->masks[member] = only;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // so that both get items
  };
  std::thread([&] {  // member 0 is bound too
    ComputeTeam team(2, topology);
    const Phase phase{run, &shared, 32};
    for (int i = 0; i < 50 && (shared.masks[0] == -1 || shared.masks[1] == -1); ++i) team.run({&phase, 1});
  })
      .join();
  EXPECT_EQ(shared.masks[0].load(), cpus[0]);
  EXPECT_EQ(shared.masks[1].load(), cpus[1]);
  std::thread([&] {
    ComputeTeam alone(1, {{{0, 1, {cpus[1]}}}, true});
    const Phase phase{run, &shared, 1};
    alone.run({&phase, 1});
  }).join();
  EXPECT_EQ(shared.masks[0].load(), cpus[1]) << "a member alone stays there too";
}

TEST(ComputeTeam, MoreMembersThanCoresShrinkToThem) {
  const int members = 4 * usable_cores();
  if (members > 64) GTEST_SKIP() << "a machine of many cores";
  ComputeTeam team(members);
  auto work = [](void*, uint32_t, uint32_t) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(500);
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  const Phase phase{work, nullptr, static_cast<uint32_t>(8 * members)};
  EXPECT_EQ(team.active(), members);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (team.active() > members / 2 && std::chrono::steady_clock::now() < limit) team.run({&phase, 1});
  EXPECT_LE(team.active(), members / 2);
}

TEST(ComputeTeam, AMemberHeldInOneItemDoesNotKeepTheOthersFromTheRest) {
  ComputeTeam team(2);
  struct Shared {
    std::atomic<int> others{0};
    std::atomic<bool> timed_out{false};
  } shared;
  // Item 0 ends only when all the other items have been run by somebody else.
  auto run = [](void* context, uint32_t item, uint32_t) {
    auto& state = *static_cast<Shared*>(context);
    if (item != 0) {
      state.others.fetch_add(1);
      return;
    }
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (state.others.load() < 63) {
      if (std::chrono::steady_clock::now() > limit) {
        state.timed_out = true;
        return;
      }
      std::this_thread::yield();
    }
  };
  const Phase phase{run, &shared, 64};
  team.run({&phase, 1});
  EXPECT_FALSE(shared.timed_out.load());
  EXPECT_EQ(shared.others.load(), 63);
}

TEST(ComputeTeam, IsRightWhileNeighboursBurnTheCores) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> neighbours;
  for (int i = 0; i < 2; ++i) {
    neighbours.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  {
    ComputeTeam team(4);
    std::atomic<uint64_t> sum{0};
    auto add = [](void* context, uint32_t item, uint32_t) {
      static_cast<std::atomic<uint64_t>*>(context)->fetch_add(item, std::memory_order_relaxed);
    };
    const std::vector<Phase> phases(50, Phase{add, &sum, 16});
    for (int i = 0; i < 10; ++i) team.run(phases);
    EXPECT_EQ(sum.load(), 10u * 50u * 120u);
  }
  stop = true;
  for (std::thread& neighbour : neighbours) neighbour.join();
}

TEST(ComputeTeam, MembersThatHaveNothingToDoSleep) {
  ComputeTeam team(4);
  auto nothing = [](void*, uint32_t, uint32_t) {};
  const Phase phase{nothing, nullptr, 4};
  team.run({&phase, 1});
  timespec before{}, after{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double used =
      static_cast<double>(after.tv_sec - before.tv_sec) + 1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(used, 0.02);
}

// Thread stacks are address space; sanitizers and emulators need or ignore limits of it.
#if defined(__x86_64__) && !defined(GRISTMILL_SANITIZED)
TEST(ComputeTeam, ThreadsThatTheSystemRefusesAreAnError) {
  const auto start_too_many = [] {
    const rlimit limit{rlim_t{512} << 20, rlim_t{512} << 20};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(2);
    try {
      const ComputeTeam team(4096);
    } catch (const Error& error) {
      std::fputs(error.what(), stderr);
      std::_Exit(3);
    }
    std::_Exit(4);
  };
  EXPECT_EXIT(start_too_many(), testing::ExitedWithCode(3), "cannot start 4096 threads: .*lower --threads");
}
#endif

}  // namespace
}  // namespace gristmill
