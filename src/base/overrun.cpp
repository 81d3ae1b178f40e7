#include "base/overrun.h"

#include <algorithm>
#include <cmath>

namespace gristmill {

OverrunPolicy::OverrunPolicy(int members, const Settings& settings)
    : settings_(settings), members_(static_cast<size_t>(members)) {}

int OverrunPolicy::active() const {
  return static_cast<int>(
      std::count_if(members_.begin(), members_.end(), [](const Member& member) { return !member.out; }));
}

bool OverrunPolicy::came_back_lately(const Member& member, Clock::time_point now) {
  return member.pause.count() > 0 && now - member.since < member.pause;
}

void OverrunPolicy::send_out(Member& member, Clock::time_point now) {
  member.pause =
      came_back_lately(member, now) ? std::min(2 * member.pause, settings_.longest_pause) : settings_.first_pause;
  member.out = true;
  member.strikes = 0;
  member.until = now + member.pause;
}

void OverrunPolicy::observe(Clock::time_point now, std::span<const Use> uses) {
  struct Loss {
    size_t member;
    double share;
  };
  std::vector<Loss> losses;
  double cores = 0;  // that the active members got together
  const int before = active();
  const double limit = std::max(settings_.least_lost, settings_.most_lost / before);
  bool overrun = false, struck = false;
  for (size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    if (member.out) continue;
    const bool heard = uses[i].awake * 4 >= settings_.window && uses[i].awake.count() > 0;
    const double share =
        heard ? std::min(1.0, static_cast<double>(uses[i].lost.count()) / static_cast<double>(uses[i].awake.count()))
              : 0;
    cores += 1 - share;
    member.strikes = share > limit ? member.strikes + 1 : 0;
    overrun = overrun || member.strikes > 0;
    struck = struck || member.strikes >= (came_back_lately(member, now) ? 1 : 2);
    if (i > 0) losses.push_back({i, share});
  }
  if (struck) {
    // Where member 0 is overrun itself, another that sits out leaves a core for it. Among equals, whoever came last.
    std::sort(losses.begin(), losses.end(), [&](const Loss& a, const Loss& b) {
      if (a.share != b.share) return a.share > b.share;
      if (members_[a.member].since != members_[b.member].since)
        return members_[a.member].since > members_[b.member].since;
      return a.member > b.member;
    });
    const int wanted = std::max(1, static_cast<int>(std::floor(cores)));
    int left = before;
    for (const Loss& loss : losses) {
      if (left <= wanted || (loss.share <= limit && left < before)) break;
      send_out(members_[loss.member], now);
      --left;
    }
  }
  if (overrun) return;
  Member* next = nullptr;
  for (Member& member : members_)
    if (member.out && member.until <= now && (next == nullptr || member.until < next->until)) next = &member;
  if (next == nullptr) return;
  next->out = false;
  next->since = now;
}

}  // namespace gristmill
