#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace gristmill {

/// Token ids in order of falling score, ties by rising id, found without sorting the whole vocabulary: scores are
/// counted into bins by their distance from the maximum, and only the bins that matter are sorted.
class Ranking {
 public:
  /// The `count` best ids (fewer when there are not so many above -inf).
  std::span<const int32_t> best(std::span<const float> scores, int32_t count);
  /// The shortest prefix of the ranking whose weights add up to at least `share` of `total`; at least one id. `weights`
  /// must fall with `scores` (they are exp of them).
  std::span<const int32_t> nucleus(std::span<const float> scores, std::span<const float> weights, double total,
                                   double share);

 private:
  static constexpr int bins = 256;
  /// Ids of all scores in the first `last_bin + 1` bins, sorted.
  void collect(std::span<const float> scores, float maximum, int last_bin);
  std::vector<int32_t> ids_;
};

}  // namespace gristmill
