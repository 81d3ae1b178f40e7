#include "text/bpe_tokenizer.h"

#include "text/byte_level.h"
#include "text/utf8.h"
#include "text/word_cache.h"

namespace gristmill::text {
struct BpeTokenizer::Work {
  std::vector<int32_t> symbols;
  MergeTable::Scratch scratch;
  std::string spelled;
};

BpeTokenizer::BpeTokenizer(BpeParts parts)
    : SegmentTokenizer(std::move(parts.common)),
      merges_(std::move(parts.merges)),
      pretokenizer_(std::move(parts.pretokenizer)),
      spelling_(parts.spelling),
      ignore_merges_(parts.ignore_merges),
      add_prefix_space_(parts.add_prefix_space),
      byte_fallback_(parts.byte_fallback),
      fuse_unknown_(parts.fuse_unknown),
      unknown_(parts.unknown) {
  byte_tokens_.fill(-1);
  const Vocabulary& vocabulary = this->parts().vocabulary;
  const bool keep_index = ignore_merges_ || spelling_ == Spelling::sentencepiece;
  if (keep_index) index_ = TokenIndex(vocabulary.texts());
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!parts.in_words[static_cast<size_t>(id)]) continue;
    const std::string_view text = vocabulary.text(id), bytes = vocabulary.bytes(id);
    const bool is_byte =
        spelling_ == Spelling::byte_level ? vocabulary.kind(id) == TokenKind::normal : spelled_byte(text) >= 0;
    if (is_byte && bytes.size() == 1) {
      int32_t& token = byte_tokens_[static_cast<uint8_t>(bytes[0])];
      if (token < 0) token = id;
    }
    if (keep_index) index_.add(id);
    space_words_.add_token(text);
  }
  // An unknown space could join an unknown token before it; a whole word that is a token must stay whole.
  splits_at_spaces_ = spelling_ == Spelling::sentencepiece && !ignore_merges_ && index_.find(sentencepiece_space) >= 0;
}

void BpeTokenizer::start_from_bytes(std::string_view word, std::vector<int32_t>& symbols) const {
  for (const char byte : word) {
    const int32_t id = byte_tokens_[static_cast<uint8_t>(byte)];
    if (id >= 0) {
      symbols.push_back(id);
    } else if (unknown_ >= 0 && !(fuse_unknown_ && !symbols.empty() && symbols.back() == unknown_)) {
      symbols.push_back(unknown_);
    }
  }
}

void BpeTokenizer::start_from_characters(std::string_view word, std::vector<int32_t>& symbols) const {
  for (size_t at = 0; at < word.size();) {
    const size_t begin = at;
    next_code_point(word, at);
    const std::string_view character = word.substr(begin, at - begin);
    const int32_t id = index_.find(character);
    if (id >= 0) {
      symbols.push_back(id);
      continue;
    }
    bool all_bytes = byte_fallback_;
    for (const char byte : character) all_bytes = all_bytes && byte_tokens_[static_cast<uint8_t>(byte)] >= 0;
    if (all_bytes) {
      for (const char byte : character) symbols.push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
    } else if (unknown_ >= 0 && !(fuse_unknown_ && !symbols.empty() && symbols.back() == unknown_)) {
      symbols.push_back(unknown_);
    }
  }
}

void BpeTokenizer::encode_word(std::string_view word, Work& work, std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    std::string_view spelled = word;
    if (spelling_ == Spelling::byte_level) {
      work.spelled.clear();
      append_byte_level(work.spelled, word);
      spelled = work.spelled;
    }
    if (const int32_t id = index_.find(spelled); id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  work.symbols.clear();
  if (spelling_ == Spelling::byte_level) {
    start_from_bytes(word, work.symbols);
  } else {
    start_from_characters(word, work.symbols);
  }
  merges_.apply(work.symbols, work.scratch);
  ids.insert(ids.end(), work.symbols.begin(), work.symbols.end());
}

void BpeTokenizer::encode_segment(std::string_view text, bool, bool, std::vector<int32_t>& ids) const {
  std::string prefixed;
  if (add_prefix_space_ && text.front() != ' ') {
    prefixed = ' ';
    prefixed += text;
    text = prefixed;
  }
  Work work;
  const auto words = [&](auto word) {
    pretokenizer_.split(text, [&](std::string_view piece) {
      if (splits_at_spaces_) {
        space_words_.split(piece, word);
      } else {
        word(piece);
      }
    });
  };
  if (text.size() < WordCache::shortest_text) {
    words([&](std::string_view word) { encode_word(word, work, ids); });
    return;
  }
  WordCache cache(text.size());
  ids.reserve(ids.size() + text.size() / 3);
  words([&](std::string_view word) { cache.append(word, ids, [&] { encode_word(word, work, ids); }); });
}

bool add_merge(MergeTable& merges, const TokenIndex& index, std::string_view left, std::string_view right,
               std::string& joint) {
  joint.assign(left);
  joint.append(right);
  const int32_t a = index.find(left), b = index.find(right), result = index.find(joint);
  if (a < 0 || b < 0 || result < 0) return false;
  merges.add(a, b, result);
  return true;
}

}  // namespace gristmill::text
