#pragma once
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace gristmill {

/// Which members of a compute team sit out because others use their cores.
///
/// A member that waits for a core in the middle of an item holds up the whole team: n members of which one loses the
/// share s of its time compute like n (1 - s) in the worst case, and n - 1 without it, so leaving it out pays from
/// about s = 1 / n on, and earlier where memory is what limits. Who loses more than a limit of that kind in two windows
/// in a row sits out, as many as cores are missing; for a while that doubles when it was too short, and they come back
/// one by one. Results do not depend on it (ComputeTeam).
class OverrunPolicy {
 public:
  using Clock = std::chrono::steady_clock;
  struct Settings {
    std::chrono::nanoseconds window = std::chrono::milliseconds(100);  ///< of member 0's time between decisions
    double most_lost = 0.6;    ///< divided by the active members: share of its time that one may wait for a core ...
    double least_lost = 0.05;  ///< ... but no less than this
    std::chrono::nanoseconds first_pause = std::chrono::milliseconds(500);
    std::chrono::nanoseconds longest_pause = std::chrono::seconds(8);
  };
  /// Time a member spent working or ready to, and how much of it without a core.
  struct Use {
    std::chrono::nanoseconds awake{0}, lost{0};
  };

  OverrunPolicy(int members, const Settings& settings);

  const Settings& settings() const { return settings_; }
  /// Takes what each member did since the last call. Members whose awake time is less than a quarter of the window
  /// say nothing.
  void observe(Clock::time_point now, std::span<const Use> uses);
  int active() const;  ///< members that do not sit out
  /// Never true of member 0, which is the caller's thread.
  bool sits_out(int member) const { return members_[static_cast<size_t>(member)].out; }

 private:
  struct Member {
    bool out = false;
    int strikes = 0;  ///< windows in a row in which it lost too much
    std::chrono::nanoseconds pause{0};
    Clock::time_point until{};  ///< while out
    Clock::time_point since{};  ///< while in
  };
  static bool came_back_lately(const Member& member, Clock::time_point now);
  void send_out(Member& member, Clock::time_point now);

  Settings settings_;
  std::vector<Member> members_;
};

}  // namespace gristmill
