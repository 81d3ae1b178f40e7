#pragma once
#include <array>
#include <map>
#include <memory>
#include <vector>

#include "text/merge_table.h"
#include "text/pretokenizer.h"
#include "text/segment_tokenizer.h"
#include "text/token_index.h"
#include "text/word_borders.h"

namespace gristmill::text {

/// Metaspace's treatment of a segment: spaces become U+2581, and one is put in front of a segment that does not begin
/// with it.
enum class Metaspace : uint8_t {
  none,    ///< segments are left alone
  never,   ///< spaces are written so, and none is added
  first,   ///< only where the segment begins the text
  always,  ///< also behind added tokens
};

/// What makes a byte-pair tokenizer, whichever file it came from.
struct BpeParts {
  TokenizerParts common;
  MergeTable merges;
  Pretokenizer pretokenizer;
  Spelling spelling = Spelling::byte_level;
  bool ignore_merges = false;  ///< a word that is a token is taken whole
  Metaspace metaspace = Metaspace::none;
  bool add_prefix_space = false;  ///< ByteLevel's: a segment that does not begin with a space gets one
  bool byte_fallback = false;     ///< sentencepiece spelling: characters without a token become <0xNN> tokens
  bool fuse_unknown = false;      ///< neighbouring unknown characters become one unknown token
  int32_t unknown = -1;           ///< -1: characters without a token are dropped
  std::vector<bool> in_words;     ///< ids that may come out of words; one per id
};

/// Byte-pair encoding (Sennrich et al. 2016) by id: words start as one token per byte (byte-level spelling) or per
/// character (sentencepiece spelling), then merge in the order of the merge list.
class BpeTokenizer final : public SegmentTokenizer {
 public:
  explicit BpeTokenizer(BpeParts parts);

 protected:
  void encode_segment(std::string_view text, bool first, bool after_token, EncodingWork& work,
                      std::vector<int32_t>& ids) const override;

 private:
  /// Appends the token that has the word's text, if there is one.
  bool take_whole(std::string_view word, EncodingWork& work, std::vector<int32_t>& ids) const;
  void merge(std::string_view piece, EncodingWork& work, std::vector<int32_t>& ids) const;
  void start_from_bytes(std::string_view word, std::vector<int32_t>& symbols) const;
  void start_from_characters(std::string_view word, std::vector<int32_t>& symbols) const;
  void find_characters(const std::vector<bool>& in_words);
  /// The lowest rank of the merges that touch a part of a character, by the part.
  using PartRanks = std::map<WordBorders::End, uint32_t>;
  void find_characters_of_bytes(const PartRanks& backs, const PartRanks& fronts);
  void find_borders();

  MergeTable merges_;
  Pretokenizer pretokenizer_;
  Spelling spelling_;
  Metaspace metaspace_;
  bool ignore_merges_, add_prefix_space_, byte_fallback_, fuse_unknown_;
  int32_t unknown_;
  bool cuts_at_borders_ = false;
  WordBorders borders_;                     // where no merge crosses; only with cuts_at_borders_
  TokenIndex index_;                        // by text; only where words or characters are looked up
  std::vector<int32_t> characters_;         // below U+10000: the token that words may start from, or -1
  std::array<int32_t, 256> byte_tokens_{};  // the token of each byte, or -1
};

/// Adds the merge of the tokens `left` and `right` (by text) to `merges`. False when one of them or their joint text is
/// not in the vocabulary. `joint` is working memory.
bool add_merge(MergeTable& merges, const TokenIndex& index, std::string_view left, std::string_view right,
               std::string& joint);

}  // namespace gristmill::text
