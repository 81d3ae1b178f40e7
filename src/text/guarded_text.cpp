#include "text/guarded_text.h"

namespace gristmill::text {

UnguardedText take_marks(std::string_view guarded) {
  UnguardedText plain;
  plain.text.reserve(guarded.size());
  size_t from = 0;
  for (size_t at; (at = guarded.find(guard_mark, from)) != std::string_view::npos;) {
    plain.text.append(guarded, from, at - from);
    from = at + guard_mark.size();
    if (guarded.substr(from).starts_with(guard_mark)) {
      plain.text += guard_mark;
      from += guard_mark.size();
    } else {
      plain.marks.push_back(plain.text.size());
    }
  }
  plain.text.append(guarded, from);
  return plain;
}

}  // namespace gristmill::text
