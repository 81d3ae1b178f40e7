#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace gristmill::text {

/// Turns a growing list of token ids into text, never emitting half a character: bytes of an unfinished UTF-8 sequence
/// wait for the next token; bytes that can never become a character turn into U+FFFD, as Python's "replace" does.
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

/// Watches streamed text for stop strings. The first match to complete, character by character, wins; text that may yet
/// become a match is held back.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops, bool include_in_output = false);
  struct Result {
    std::string text;      ///< safe to emit now
    int matched = -1;      ///< index of the stop string that ended the text, or -1
  };
  Result push(std::string_view text);
  /// Whatever was held back, at the end of a stream without a match.
  std::string finish();

 private:
  std::vector<std::string> stops_;
  bool include_;
  std::string held_;
};

}  // namespace gristmill::text
