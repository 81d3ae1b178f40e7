#include "config/suggest.h"

#include <algorithm>

namespace gristmill::config {
namespace {

/// Edits (insert, delete, replace, swap of neighbours) between two words.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

}  // namespace

std::string closest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t least = word.size() / 3 + 1;
  for (const std::string& candidate : candidates) {
    const size_t edits = distance(word, candidate);
    if (edits <= least && (best.empty() || edits < least)) {
      least = edits;
      best = candidate;
    }
  }
  if (!best.empty()) return best;
  // A forgotten beginning or end: "--max-len" for "--max-model-len" has too many edits, but all its words.
  for (const std::string& candidate : candidates) {
    if (word.size() > 6 && (candidate.starts_with(word) || candidate.ends_with(word.substr(2)))) return candidate;
  }
  return {};
}

}  // namespace gristmill::config
