#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gristmill::text {

/// Text of somebody who must not write control tokens is guarded before it is put between other text: a mark stands
/// inside each control token that it spells, and no control token is found across a mark. The mark is U+FDD0, a code
/// point that no text is made of (Unicode 15, section 23.7); one that a text has nevertheless is doubled.
inline constexpr std::string_view guard_mark = "\xEF\xB7\x90";

struct UnguardedText {
  std::string text;           ///< without marks
  std::vector<size_t> marks;  ///< where they stood, ascending
};
UnguardedText take_marks(std::string_view guarded);

}  // namespace gristmill::text
