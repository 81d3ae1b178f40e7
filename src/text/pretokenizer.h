#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace gristmill::text {

/// What becomes of the text between and inside the matches of a split.
enum class SplitBehavior : uint8_t { isolated, removed, merged_with_previous, merged_with_next, contiguous };

/// One split: pieces are cut at the matches of `pattern`; with `invert`, matches and gaps change roles.
struct SplitStep {
  Regex pattern;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;
};

/// Cuts text into words before the merges are applied: merges never cross a word's border. Steps run one after the
/// other, each on every piece of the step before as a text of its own. Immutable and thread safe.
class Pretokenizer {
 public:
  /// Gives the whole text as one word when there are no steps.
  explicit Pretokenizer(std::vector<SplitStep> steps = {}) : steps_(std::move(steps)) {}
  /// Calls `word` on views into `text`, in order, each non-empty.
  template <class Word>
  void split(std::string_view text, Word&& word) const {
    run(
        text, 0,
        [](void* sink, std::string_view piece) { (*static_cast<std::remove_reference_t<Word>*>(sink))(piece); }, &word);
  }

 private:
  using Sink = void (*)(void* context, std::string_view piece);
  void run(std::string_view text, size_t step, Sink sink, void* context) const;

  std::vector<SplitStep> steps_;
};

/// The splitting that a GGUF file asks for by `tokenizer.ggml.pre`, with what goes with it.
struct KnownPretokenizer {
  std::vector<std::string> patterns;  ///< isolated splits, in order
  bool nfc = false;                   ///< text is brought to normal form C first
  bool ignore_merges = false;         ///< words that are tokens are taken whole
  bool add_bos = false;               ///< when the file does not say
};

/// Throws Error naming `name` and all known names.
KnownPretokenizer known_pretokenizer(std::string_view name);

/// GPT-2's pattern, the default of byte-level pre-tokenizers.
extern const char* const gpt2_pattern;

}  // namespace gristmill::text
