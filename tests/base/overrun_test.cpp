#include "base/overrun.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace gristmill {
namespace {

using namespace std::chrono_literals;
using Use = OverrunPolicy::Use;

class Overrun : public testing::Test {
 protected:
  /// Windows in which each member was awake for their length and lost that share.
  void windows(int count, const std::vector<double>& lost) {
    for (int i = 0; i < count; ++i) {
      now_ += 100ms;
      std::vector<Use> uses;
      for (const double share : lost)
        uses.push_back({100ms, std::chrono::nanoseconds(static_cast<int64_t>(share * 1e8))});
      policy_.observe(now_, uses);
    }
  }
  std::string sitting() const {
    std::string out;
    for (int i = 0; i < 4; ++i) out += policy_.sits_out(i) ? '-' : 'x';
    return out;
  }
  OverrunPolicy policy_{4, {}};
  OverrunPolicy::Clock::time_point now_{};
};

TEST_F(Overrun, MembersThatHaveTheirCoresStay) {
  windows(10, {0.1, 0.14, 0.12, 0});
  EXPECT_EQ(sitting(), "xxxx");
}

TEST_F(Overrun, TheOneThatLosesHalfItsTimeTwiceInARowSitsOut) {
  for (int i = 0; i < 5; ++i) {
    windows(1, {0, 0, 0.5, 0.05});
    windows(1, {0, 0, 0, 0.05});
  }
  EXPECT_EQ(sitting(), "xxxx");
  windows(2, {0, 0, 0.5, 0.05});
  EXPECT_EQ(sitting(), "xx-x");
}

TEST_F(Overrun, ALargeTeamLeavesOutSoonerThanASmallOne) {
  const auto left_out = [&](int members) {
    OverrunPolicy policy(members, {});
    std::vector<Use> uses(static_cast<size_t>(members), Use{100ms, 0ms});
    uses.back().lost = 20ms;
    for (int i = 1; i <= 4; ++i) policy.observe(now_ + i * 100ms, uses);
    return members - policy.active();
  };
  EXPECT_EQ(left_out(2), 0);
  EXPECT_EQ(left_out(4), 1);
  EXPECT_EQ(left_out(64), 1);
}

TEST_F(Overrun, AsManySitOutAsCoresAreMissing) {
  windows(2, {0.4, 0.4, 0.4, 0.4});  // four members on 2.4 cores
  EXPECT_EQ(sitting(), "xx--");
  windows(3, {0.1, 0.1, 0, 0});
  EXPECT_EQ(sitting(), "xx--");
}

TEST_F(Overrun, AnotherMakesRoomForMember0) {
  windows(2, {0.5, 0, 0, 0});
  EXPECT_EQ(sitting(), "xxx-");
}

TEST_F(Overrun, Member0IsNeverLeftOut) {
  windows(8, {0.9, 0.9, 0.9, 0.9});
  EXPECT_EQ(sitting(), "x---");
}

TEST_F(Overrun, WhoSatOutComesBackAndItsPauseDoublesWhileThatIsTooEarly) {
  std::vector<int> windows_out;
  int out = 0;
  for (int i = 0; i < 600 && windows_out.size() < 6; ++i) {
    const bool was_out = policy_.sits_out(3);
    windows(1, {0, 0, 0, was_out ? 0 : 0.6});
    if (was_out) ++out;
    if (was_out && !policy_.sits_out(3)) windows_out.push_back(std::exchange(out, 0));
  }
  EXPECT_EQ(windows_out, (std::vector<int>{5, 10, 20, 40, 80, 80}));  // of 100 ms: 0.5 to 8 s
}

TEST_F(Overrun, APauseIsShortAgainAfterAQuietTime) {
  windows(2, {0, 0, 0, 0.6});
  windows(30, {0, 0, 0, 0});
  EXPECT_EQ(sitting(), "xxxx");
  windows(1, {0, 0, 0, 0.6});
  EXPECT_EQ(sitting(), "xxxx");
  windows(1, {0, 0, 0, 0.6});
  int count = 0;
  for (; policy_.sits_out(3); ++count) windows(1, {0, 0, 0, 0});
  EXPECT_EQ(count, 5);
}

TEST_F(Overrun, NobodyComesBackWhileOthersAreOverrun) {
  windows(2, {0, 0, 0.9, 0.9});
  EXPECT_EQ(sitting(), "xx--");
  windows(4, {0, 0, 0, 0});
  windows(1, {0, 0.5, 0, 0});
  EXPECT_EQ(sitting(), "xx--");
  windows(1, {0, 0.5, 0, 0});
  EXPECT_EQ(sitting(), "x---");
}

TEST_F(Overrun, WhoHardlyWorkedSaysNothing) {
  for (int i = 1; i < 5; ++i)
    policy_.observe(now_ + i * 100ms, std::vector<Use>{{100ms, 0ms}, {10ms, 10ms}, {0ms, 0ms}, {24ms, 24ms}});
  EXPECT_EQ(sitting(), "xxxx");
}

}  // namespace
}  // namespace gristmill
