#pragma once
#include <string_view>

#include "text/vocabulary.h"

namespace gristmill::text {

/// Whether a token's text has SentencePiece's space behind something else than a space. Where no token has, nothing
/// ever merges across the beginning of a run of spaces, and a text falls into words that can be encoded one by one.
inline bool has_inner_space(std::string_view token) {
  for (size_t at = token.find(sentencepiece_space, 1); at != std::string_view::npos;
       at = token.find(sentencepiece_space, at + 1)) {
    const size_t width = sentencepiece_space.size();
    if (at < width || token.substr(at - width, width) != sentencepiece_space) return true;
  }
  return false;
}

/// Calls word() with each run of spaces and what follows it, in order; together they are the text.
template <class Word>
void split_at_spaces(std::string_view text, Word word) {
  constexpr size_t kWidth = sentencepiece_space.size();
  size_t begin = 0;
  for (size_t at = text.find(sentencepiece_space, 1); at != std::string_view::npos;) {
    if (at >= kWidth && text.substr(at - kWidth, kWidth) == sentencepiece_space) {
      at = text.find(sentencepiece_space, at + kWidth);  // inside a run
      continue;
    }
    word(text.substr(begin, at - begin));
    begin = at;
    at = text.find(sentencepiece_space, at + kWidth);
  }
  if (begin < text.size()) word(text.substr(begin));
}

}  // namespace gristmill::text
