#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace gristmill::text {

/// Turns a growing list of token ids into text, never emitting half a character: bytes of an unfinished UTF-8 sequence
/// wait for the next token; bytes that can never become a character turn into U+FFFD, as Python's "replace" does. The
/// pieces joined are Tokenizer::decode() of all ids (but for the leading space that decode() may take back).
/// One stream, one thread; the tokenizer must outlive it.
class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special) : tokenizer_(tokenizer), skip_special_(skip_special) {}
  /// The text that `id` completes; may be empty.
  std::string push(int32_t id);
  /// The rest, at the end of the stream: an unfinished sequence becomes one U+FFFD.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string pending_;
};

/// Watches streamed text for stop strings. The first match to complete, character by character, wins; of several that
/// complete with the same character, the first in the list. Text that may yet become a match is held back, and nothing
/// more than that. Empty stop strings never match. Aho and Corasick's automaton (1975): the work is linear in the text,
/// whatever the number of stop strings. One stream, one thread.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops, bool include_in_output = false);
  struct Result {
    std::string text;  ///< safe to emit now
    int matched = -1;  ///< index of the stop string that ended the text, or -1
  };
  /// After a match the stream is over: further text is dropped.
  Result push(std::string_view text);
  /// Whatever was held back, at the end of a stream without a match.
  std::string finish();

 private:
  struct Node {
    uint32_t first_child = 0, sibling = 0;  // 0: none, as the root is nobody's child
    uint32_t fallback = 0;                  // the longest proper suffix that is also in the trie
    uint32_t depth = 0;
    int32_t stop = -1;  // the lowest index of the stop strings that end here
    uint8_t byte = 0;
  };
  uint32_t child(uint32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;
  std::vector<uint32_t> lengths_;
  bool include_;
  bool stopped_ = false;
  uint32_t state_ = 0;
  std::string held_;  // nodes_[state_].depth bytes, between calls
};

}  // namespace gristmill::text
