#pragma once
#include <span>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/encoding_work.h"
#include "text/normalizer.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace gristmill::text {

/// What every kind of tokenizer has.
struct TokenizerParts {
  Vocabulary vocabulary;
  AddedTokens added;             ///< found in the text as given
  AddedTokens normalized_added;  ///< found in normalized text between those
  Normalizer normalizer;
  std::vector<int32_t> prefix, suffix;  ///< put around the ids with add_special
  int32_t bos = -1, eos = -1;
  std::vector<int32_t> end_ids;
  bool strip_leading_space = false;  ///< decode() takes back the space that encode() puts in front
};

/// The part that all tokenizers share: added tokens cut the text into segments; what lies between is normalized and
/// encoded by the derived class.
class SegmentTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, bool add_special, bool parse_special) const override {
    return encode(text, add_special, parse_special, {});
  }
  std::string guarded(std::string_view text) const override;
  std::vector<int32_t> encode_guarded(std::string_view text, bool add_special) const override;
  std::string_view token_bytes(int32_t id, bool skip_special) const override;
  std::string decode(const std::vector<int32_t>& ids, bool skip_special) const override;
  int32_t vocabulary() const override { return parts_.vocabulary.size(); }
  int32_t bos() const override { return parts_.bos; }
  int32_t eos() const override { return parts_.eos; }
  const std::vector<int32_t>& end_ids() const override { return parts_.end_ids; }
  std::string_view token_text(int32_t id) const override;
  bool is_special(int32_t id) const override;
  int32_t longest_token() const override { return parts_.vocabulary.longest(); }

 protected:
  explicit SegmentTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {}
  /// Appends the ids of one segment of normalized text. `after_token`: an added token stands right before it.
  virtual void encode_segment(std::string_view text, bool first, bool after_token, EncodingWork& work,
                              std::vector<int32_t>& ids) const = 0;
  const TokenizerParts& parts() const { return parts_; }

 private:
  std::vector<int32_t> encode(std::string_view text, bool add_special, bool parse_special,
                              std::span<const size_t> marks) const;

  TokenizerParts parts_;
};

/// Ids of the tokens that end a turn: `named` (-1 left out) and those control tokens that carry one of the usual names.
std::vector<int32_t> find_end_ids(const Vocabulary& vocabulary, const std::vector<int32_t>& named);

}  // namespace gristmill::text
