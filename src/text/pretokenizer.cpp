#include "text/pretokenizer.h"

namespace gristmill::text {

void Pretokenizer::run(std::string_view text, size_t step, Sink sink, void* context) const {
  if (text.empty()) return;
  if (step == steps_.size()) {
    sink(context, text);
    return;
  }
  const SplitStep& split = steps_[step];
  const auto emit = [&](size_t begin, size_t end) {
    if (end > begin) run(text.substr(begin, end - begin), step + 1, sink, context);
  };
  // Walks the alternating pieces of the text; `hit` says whether a piece counts as a match. `open` is where the piece
  // begins that has not been passed on yet (for the behaviours that join pieces).
  size_t open = 0;
  bool previous_hit = false;
  const auto piece = [&](size_t begin, size_t end, bool hit) {
    if (begin == end) return;
    switch (split.behavior) {
      case SplitBehavior::isolated:
        emit(begin, end);
        break;
      case SplitBehavior::removed:
        if (!hit) emit(begin, end);
        break;
      case SplitBehavior::contiguous:
        if (begin != 0 && hit != previous_hit) {
          emit(open, begin);
          open = begin;
        }
        break;
      case SplitBehavior::merged_with_previous:  // a match ends the piece it is joined to
        if (hit) {
          emit(open, end);
          open = end;
        }
        break;
      case SplitBehavior::merged_with_next:  // a match begins the piece it is joined to
        if (hit) {
          emit(open, begin);
          open = begin;
        }
        break;
    }
    previous_hit = hit;
  };
  size_t at = 0;
  Regex::Match match{};
  while (at < text.size() && split.pattern.find(text, at, match)) {
    piece(at, match.begin, split.invert);
    piece(match.begin, match.end, !split.invert);
    at = match.end;
  }
  piece(at, text.size(), split.invert);
  if (split.behavior != SplitBehavior::isolated && split.behavior != SplitBehavior::removed) emit(open, text.size());
}

}  // namespace gristmill::text
