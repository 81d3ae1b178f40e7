#include "sample/ranking.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "sample/vector_math.h"

namespace gristmill {
namespace {

// Bins of 1/8 cover scores within 31.875 of the maximum; the last bin takes the rest. Monotonic in `score`.
inline int bin_of(float score, float maximum) {
  const float distance = (maximum - score) * 8.0f;
  return distance < 255.0f ? static_cast<int>(distance) : 255;
}

constexpr float lowest = -std::numeric_limits<float>::infinity();

}  // namespace

void Ranking::collect(std::span<const float> scores, float maximum, int last_bin) {
  ids_.clear();
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > lowest && bin_of(scores[i], maximum) <= last_bin) ids_.push_back(static_cast<int32_t>(i));
  }
}

std::span<const int32_t> Ranking::best(std::span<const float> scores, int32_t count) {
  const float maximum = max_value(scores);
  std::array<int32_t, bins> sizes{};
  for (const float score : scores) {
    if (score > lowest) ++sizes[static_cast<size_t>(bin_of(score, maximum))];
  }
  int last = 0;
  for (int32_t seen = sizes[0]; seen < count && last + 1 < bins;) seen += sizes[static_cast<size_t>(++last)];
  collect(scores, maximum, last);
  const auto before = [&](int32_t a, int32_t b) {
    const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const size_t kept = std::min(ids_.size(), static_cast<size_t>(std::max(count, 0)));
  std::partial_sort(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(kept), ids_.end(), before);
  return {ids_.data(), kept};
}

std::span<const int32_t> Ranking::nucleus(std::span<const float> scores, std::span<const float> weights, double total,
                                          double share) {
  const float maximum = max_value(scores);
  std::array<double, bins> mass{};
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > lowest) mass[static_cast<size_t>(bin_of(scores[i], maximum))] += static_cast<double>(weights[i]);
  }
  const double wanted = share * total;
  // One bin further than the sum asks for: the bins' sums and the sum along the ranking round differently.
  int last = 0;
  for (double seen = mass[0]; seen < wanted && last + 1 < bins;) seen += mass[static_cast<size_t>(++last)];
  collect(scores, maximum, std::min(last + 1, bins - 1));
  std::sort(ids_.begin(), ids_.end(), [&](int32_t a, int32_t b) {
    const float x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  size_t kept = 0;
  for (double seen = 0; kept < ids_.size() && (kept == 0 || seen < wanted); ++kept) {
    seen += static_cast<double>(weights[static_cast<size_t>(ids_[kept])]);
  }
  return {ids_.data(), kept};
}

}  // namespace gristmill
