#include "text/bpe_tokenizer.h"

#include <algorithm>

#include "text/byte_level.h"
#include "text/utf8.h"

namespace gristmill::text {

BpeTokenizer::BpeTokenizer(BpeParts parts)
    : SegmentTokenizer(std::move(parts.common)),
      merges_(std::move(parts.merges)),
      pretokenizer_(std::move(parts.pretokenizer)),
      spelling_(parts.spelling),
      metaspace_(parts.metaspace),
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
  }
  if (spelling_ == Spelling::sentencepiece) find_characters(parts.in_words);
  find_borders();
}

void BpeTokenizer::find_characters(const std::vector<bool>& in_words) {
  const Vocabulary& vocabulary = parts().vocabulary;
  characters_.assign(0x10000, -1);
  for (int32_t id = vocabulary.size(); id-- > 0;) {  // the first of several with one text wins
    const std::string_view text = vocabulary.text(id);
    if (!in_words[static_cast<size_t>(id)] || text.empty() || text.size() > 3) continue;
    if (find_invalid_utf8(text) != std::string_view::npos) continue;
    size_t end = 0;
    const uint32_t character = next_code_point(text, end);
    if (end == text.size()) characters_[character] = id;
  }
}

/// Where every character has symbols of its own, nothing reaches across a border that no merge crosses.
void BpeTokenizer::find_borders() {
  const Vocabulary& vocabulary = parts().vocabulary;
  const bool bytes = spelling_ == Spelling::byte_level;
  const bool bytes_spell_all =
      (bytes || byte_fallback_) && std::find(byte_tokens_.begin(), byte_tokens_.end(), -1) == byte_tokens_.end();
  // What has no token would vanish, or become one token with its neighbours.
  if (!bytes_spell_all && (unknown_ < 0 || fuse_unknown_)) return;
  // The whole text would have to be looked up as a token.
  if (!bytes && ignore_merges_) return;
  struct Ends {
    WordBorders::End front = WordBorders::no_end, back = WordBorders::no_end;
    bool plain = true;
  };
  std::vector<Ends> ends(static_cast<size_t>(vocabulary.size()));
  std::string decoded;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    std::string_view symbol = vocabulary.text(id);
    Ends& own = ends[static_cast<size_t>(id)];
    if (bytes) {
      decoded.clear();
      if (!append_byte_level_decoded(decoded, symbol)) continue;  // never comes out of bytes
      symbol = decoded;
    }
    own = {WordBorders::front_of(symbol), WordBorders::back_of(symbol), true};
    // The text of a byte token is not what it stands for.
    if (!bytes) own.plain = id != unknown_ && !(byte_fallback_ && spelled_byte(symbol) >= 0);
  }
  cuts_at_borders_ = true;
  PartRanks backs, fronts;
  const auto lower = [](PartRanks& ranks, WordBorders::End end, uint32_t rank) {
    if (end == WordBorders::no_end || !WordBorders::is_partial(end)) return;
    uint32_t& least = ranks.emplace(end, rank).first->second;
    least = std::min(least, rank);
  };
  merges_.for_each([&](int32_t left, int32_t right, uint32_t rank) {
    const Ends &a = ends[static_cast<size_t>(left)], &b = ends[static_cast<size_t>(right)];
    cuts_at_borders_ = cuts_at_borders_ && a.plain && b.plain;
    borders_.join(a.back, b.front);
    lower(backs, a.back, rank);
    lower(fronts, b.front, rank);
  });
  if (bytes) find_characters_of_bytes(backs, fronts);
}

/// Characters whose bytes become one token before anything else can touch one of them: words start from that token.
void BpeTokenizer::find_characters_of_bytes(const PartRanks& backs, const PartRanks& fronts) {
  const auto least = [](const PartRanks& ranks, std::string_view part) {
    WordBorders::End end = 0;
    for (const char byte : part) end = end << 8 | static_cast<uint8_t>(byte);
    const auto found = ranks.find(end);
    return found == ranks.end() ? no_merge : found->second;
  };
  characters_.assign(0x10000, -1);
  std::string bytes;
  std::vector<int32_t> symbols;
  for (uint32_t character = 0x80; character < 0x10000; ++character) {
    if (character >= 0xD800 && character < 0xE000) continue;
    bytes.clear();
    append_utf8(bytes, character);
    symbols.clear();
    for (const char byte : bytes) symbols.push_back(byte_tokens_[static_cast<uint8_t>(byte)]);
    uint32_t highest = 0;
    while (symbols.size() > 1) {
      size_t best = 0;
      for (size_t i = 1; i + 1 < symbols.size(); ++i) {
        if (merges_.find(symbols[i], symbols[i + 1]).rank < merges_.find(symbols[best], symbols[best + 1]).rank)
          best = i;
      }
      const Merge merge = merges_.find(symbols[best], symbols[best + 1]);
      if (merge.rank == no_merge) break;
      highest = std::max(highest, merge.rank);
      symbols[best] = merge.result;
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    bool first = symbols.size() == 1;
    for (size_t i = 1; i < bytes.size(); ++i) {
      first = first && least(fronts, std::string_view(bytes).substr(0, i)) > highest &&
              least(backs, std::string_view(bytes).substr(i)) > highest;
    }
    if (first) characters_[character] = symbols[0];
  }
}

void BpeTokenizer::start_from_bytes(std::string_view word, std::vector<int32_t>& symbols) const {
  for (size_t at = 0; at < word.size(); ++at) {
    if (static_cast<uint8_t>(word[at]) >= 0xC0 && !characters_.empty()) {
      size_t end = at;
      const uint32_t character = next_code_point(word, end);
      if (character < characters_.size() && characters_[character] >= 0) {
        symbols.push_back(characters_[character]);
        at = end - 1;
        continue;
      }
    }
    const int32_t id = byte_tokens_[static_cast<uint8_t>(word[at])];
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
    const uint32_t code_point = next_code_point(word, at);
    const std::string_view character = word.substr(begin, at - begin);
    const int32_t id = code_point < characters_.size() ? characters_[code_point] : index_.find(character);
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

bool BpeTokenizer::take_whole(std::string_view word, EncodingWork& work, std::vector<int32_t>& ids) const {
  std::string_view spelled = word;
  if (spelling_ == Spelling::byte_level) {
    work.spelled.clear();
    append_byte_level(work.spelled, word);
    spelled = work.spelled;
  }
  const int32_t id = index_.find(spelled);
  if (id >= 0) ids.push_back(id);
  return id >= 0;
}

void BpeTokenizer::merge(std::string_view piece, EncodingWork& work, std::vector<int32_t>& ids) const {
  work.symbols.clear();
  if (spelling_ == Spelling::byte_level) {
    start_from_bytes(piece, work.symbols);
  } else {
    start_from_characters(piece, work.symbols);
  }
  merges_.apply(work.symbols, work.merging);
  ids.insert(ids.end(), work.symbols.begin(), work.symbols.end());
}

void BpeTokenizer::encode_segment(std::string_view text, bool first, bool after_token, EncodingWork& work,
                                  std::vector<int32_t>& ids) const {
  std::string spaced;
  if (metaspace_ != Metaspace::none) {
    const bool prefix = metaspace_ == Metaspace::always || (metaspace_ == Metaspace::first && first && !after_token);
    if (prefix && text.front() != ' ' && !text.starts_with(sentencepiece_space)) spaced = sentencepiece_space;
    for (const char c : text) {
      if (c == ' ') {
        spaced += sentencepiece_space;
      } else {
        spaced += c;
      }
    }
    text = spaced;
  }
  std::string prefixed;
  if (add_prefix_space_ && text.front() != ' ') {
    prefixed = ' ';
    prefixed += text;
    text = prefixed;
  }
  // Shorter words are hardly ever cut.
  const size_t shortest_cut = !cuts_at_borders_ ? SIZE_MAX : spelling_ == Spelling::byte_level ? 24 : 0;
  pretokenizer_.split(text, [&](std::string_view word) {
    if (word.size() < shortest_cut) {
      return work.cache.append(word, ignore_merges_, ids, [&] {
        if (!ignore_merges_ || !take_whole(word, work, ids)) merge(word, work, ids);
      });
    }
    if (ignore_merges_ && take_whole(word, work, ids)) return;
    borders_.split(
        word, [&](std::string_view piece) { work.cache.append(piece, false, ids, [&] { merge(piece, work, ids); }); });
  });
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
