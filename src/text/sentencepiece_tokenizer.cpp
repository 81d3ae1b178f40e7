#include "text/sentencepiece_tokenizer.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "text/utf8.h"

namespace gristmill::text {
namespace {

// Orders floats from high to low as unsigned numbers, below no_merge.
uint32_t rank_of_score(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score == 0 ? 0.0f : score);
  const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return std::min(~ascending, no_merge - 1);
}

}  // namespace

SentencepieceTokenizer::SentencepieceTokenizer(TokenizerParts common, std::vector<float> scores, bool add_space_prefix,
                                               int32_t unknown)
    : SegmentTokenizer(std::move(common)),
      scores_(std::move(scores)),
      add_space_prefix_(add_space_prefix),
      unknown_(unknown) {
  const Vocabulary& vocabulary = parts().vocabulary;
  if (scores_.size() != vocabulary.texts().size()) {
    throw Error(cat("vocabulary: ", vocabulary.size(), " tokens but ", scores_.size(), " scores"));
  }
  byte_tokens_.fill(-1);
  index_ = TokenIndex(vocabulary.texts());
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const TokenKind kind = vocabulary.kind(id);
    if (kind == TokenKind::byte) {
      if (const int32_t byte = spelled_byte(vocabulary.text(id)); byte >= 0)
        byte_tokens_[static_cast<size_t>(byte)] = id;
    } else if (kind == TokenKind::normal || kind == TokenKind::user_defined) {
      index_.add(id);
      if (find_invalid_utf8(vocabulary.text(id)) == std::string_view::npos) borders_.join_all(vocabulary.text(id));
      longest_text_ = std::max(longest_text_, vocabulary.text(id).size());
    }
  }
}

void SentencepieceTokenizer::encode_segment(std::string_view text, bool first, bool after_token, EncodingWork& work,
                                            std::vector<int32_t>& ids) const {
  std::string& spelled = work.spelled;
  spelled.clear();
  if (add_space_prefix_ && (first || after_token)) spelled += sentencepiece_space;
  for (const char c : text) {
    if (c == ' ') {
      spelled += sentencepiece_space;
    } else {
      spelled += c;
    }
  }
  borders_.split(spelled, [&](std::string_view word) {
    work.cache.append(word, true, ids, [&] { encode_word(word, work, ids); });
  });
}

void SentencepieceTokenizer::encode_word(std::string_view word, EncodingWork& work, std::vector<int32_t>& ids) const {
  std::vector<uint32_t>& begins = work.begins;
  MergeList& list = work.merging.list;
  begins.clear();
  for (size_t at = 0; at < word.size(); next_code_point(word, at)) begins.push_back(static_cast<uint32_t>(at));
  const size_t count = begins.size();
  begins.push_back(static_cast<uint32_t>(word.size()));

  const auto end_of = [&](size_t position) {
    const int32_t next = list.next(position);
    return begins[next < 0 ? count : static_cast<size_t>(next)];
  };
  list.run(
      count,
      [&](size_t left, size_t right) {
        const size_t length = end_of(right) - begins[left];
        if (length > longest_text_) return Merge{no_merge, -1};
        const int32_t id = index_.find(word.substr(begins[left], length));
        return id < 0 ? Merge{no_merge, -1} : Merge{rank_of_score(scores_[static_cast<size_t>(id)]), id};
      },
      [](size_t, size_t, int32_t) {});

  for (int32_t at = count == 0 ? -1 : 0; at >= 0; at = list.next(static_cast<size_t>(at))) {
    const size_t begin = begins[static_cast<size_t>(at)], end = end_of(static_cast<size_t>(at));
    const std::string_view symbol = word.substr(begin, end - begin);
    if (const int32_t id = index_.find(symbol); id >= 0) {
      ids.push_back(id);
      continue;
    }
    for (const char byte : symbol) {
      const int32_t id = byte_tokens_[static_cast<uint8_t>(byte)];
      if (id >= 0 || unknown_ >= 0) ids.push_back(id >= 0 ? id : unknown_);
    }
  }
}

}  // namespace gristmill::text
