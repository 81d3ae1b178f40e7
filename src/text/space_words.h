#pragma once
#include <bitset>
#include <cstdint>
#include <string_view>

#include "text/vocabulary.h"

namespace gristmill::text {

/// Where a text can be cut before SentencePiece's space so that the words between are encoded one by one: at the
/// beginning of a run of spaces, behind a byte that stands before a space in no token. Nothing ever merges across such
/// a place.
class SpaceWords {
 public:
  void add_token(std::string_view token) {
    for_each_run(token, [&](size_t at) { joined_.set(static_cast<uint8_t>(token[at - 1])); });
  }

  /// Calls word() with each piece of `text`, in order; together they are the text.
  template <class Word>
  void split(std::string_view text, Word word) const {
    size_t begin = 0;
    for_each_run(text, [&](size_t at) {
      if (joined_.test(static_cast<uint8_t>(text[at - 1]))) return;
      word(text.substr(begin, at - begin));
      begin = at;
    });
    if (begin < text.size()) word(text.substr(begin));
  }

 private:
  /// Calls run() with the position of each run of spaces that something else stands before.
  template <class Run>
  static void for_each_run(std::string_view text, Run run) {
    constexpr size_t kWidth = sentencepiece_space.size();
    for (size_t at = text.find(sentencepiece_space); at != std::string_view::npos;) {
      if (at > 0) run(at);
      do at += kWidth;
      while (text.substr(at, kWidth) == sentencepiece_space);
      at = text.find(sentencepiece_space, at);
    }
  }

  std::bitset<256> joined_;  ///< by the byte before the space
};

}  // namespace gristmill::text
