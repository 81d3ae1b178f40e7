#pragma once
#include <array>
#include <vector>

#include "text/segment_tokenizer.h"
#include "text/token_index.h"
#include "text/word_borders.h"

namespace gristmill::text {

/// SentencePiece's BPE with scores (Kudo and Richardson 2018), GGUF's "llama" model: text is not cut into words; of all
/// neighbours whose joint text is a token, those with the highest score join first; what is left without a token is
/// spelled in byte tokens. Where the vocabulary lets nothing join, the words between are taken one by one, which gives
/// the same ids sooner.
class SentencepieceTokenizer final : public SegmentTokenizer {
 public:
  /// `scores` has one entry per id. `add_space_prefix`: the first segment, and each one behind an added token, begins
  /// with a space.
  SentencepieceTokenizer(TokenizerParts parts, std::vector<float> scores, bool add_space_prefix, int32_t unknown);

 protected:
  void encode_segment(std::string_view text, bool first, bool after_token, EncodingWork& work,
                      std::vector<int32_t>& ids) const override;

 private:
  void encode_word(std::string_view word, EncodingWork& work, std::vector<int32_t>& ids) const;

  std::vector<float> scores_;
  bool add_space_prefix_;
  int32_t unknown_;
  size_t longest_text_ = 0;
  WordBorders borders_;
  TokenIndex index_;
  std::array<int32_t, 256> byte_tokens_{};
};

}  // namespace gristmill::text
