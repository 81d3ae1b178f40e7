#include "text/segment_tokenizer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/guarded_text.h"
#include "text/utf8.h"

namespace gristmill::text {

std::string SegmentTokenizer::guarded(std::string_view text) const {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    do ++at;  // valid UTF-8 or not: bytes that continue a character belong to it
    while (at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80);
    const std::string_view character = text.substr(begin, at - begin);
    out += character;
    if (character == guard_mark || parts_.added.control_at(text, begin) ||
        parts_.normalized_added.control_at(text, begin)) {
      out += guard_mark;
    }
  }
  return out;
}

std::vector<int32_t> SegmentTokenizer::encode_guarded(std::string_view text, bool add_special) const {
  if (text.find(guard_mark) == std::string_view::npos) return encode(text, add_special, true);
  const UnguardedText plain = take_marks(text);
  return encode(plain.text, add_special, true, plain.marks);
}

std::vector<int32_t> SegmentTokenizer::encode(std::string_view text, bool add_special, bool parse_special,
                                              std::span<const size_t> marks) const {
  if (text.size() > INT32_MAX / 8)
    throw RequestError("", cat("a text of ", text.size(), " bytes is too long to encode"));
  if (const size_t at = find_invalid_utf8(text); at != std::string_view::npos) {
    throw RequestError("", cat("the text is not valid UTF-8 at byte ", at));
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + parts_.prefix.size() + parts_.suffix.size());
  if (add_special) ids.assign(parts_.prefix.begin(), parts_.prefix.end());
  EncodingWork work(text.size());
  bool first = true, after_token = false;
  std::string storage;
  // Calls `segment` on the text between the tokens that `added` finds, and puts the tokens' ids between.
  const auto split = [&](const AddedTokens& added, std::string_view whole, bool special_too,
                         std::span<const size_t> guards, const auto& segment) {
    size_t at = 0;
    AddedTokens::Hit hit{};
    while (added.find(whole, at, special_too, hit, guards)) {
      segment(whole.substr(at, hit.begin - at));
      ids.push_back(hit.id);
      after_token = true;
      at = hit.end;
    }
    segment(whole.substr(at));
  };
  split(parts_.added, text, parse_special, marks, [&](std::string_view raw) {
    if (raw.empty()) return;
    const std::string_view normal = parts_.normalizer.apply(raw, storage);
    // Normalizing moves what lies behind: a stretch with a mark has no normalized control tokens at all.
    const auto begin = static_cast<size_t>(raw.data() - text.data());
    const auto mark = std::upper_bound(marks.begin(), marks.end(), begin);
    const bool guarded = mark != marks.end() && *mark < begin + raw.size();
    split(parts_.normalized_added, normal, parse_special && !guarded, {}, [&](std::string_view segment) {
      if (segment.empty()) return;
      encode_segment(segment, first, after_token, work, ids);
      first = after_token = false;
    });
  });
  if (add_special) ids.insert(ids.end(), parts_.suffix.begin(), parts_.suffix.end());
  return ids;
}

std::string_view SegmentTokenizer::token_bytes(int32_t id, bool skip_special) const {
  if (!parts_.vocabulary.contains(id) || (skip_special && is_special(id))) return {};
  return parts_.vocabulary.bytes(id);
}

std::string SegmentTokenizer::decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::string bytes;
  for (const int32_t id : ids) bytes += token_bytes(id, skip_special);
  std::string text;
  text.reserve(bytes.size());
  if (append_decoded(text, bytes) < bytes.size()) text += replacement_character;
  if (parts_.strip_leading_space && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::string_view SegmentTokenizer::token_text(int32_t id) const {
  return parts_.vocabulary.contains(id) ? parts_.vocabulary.text(id) : std::string_view();
}

bool SegmentTokenizer::is_special(int32_t id) const {
  if (!parts_.vocabulary.contains(id)) return false;
  const TokenKind kind = parts_.vocabulary.kind(id);
  return kind == TokenKind::control || kind == TokenKind::unknown;
}

std::vector<int32_t> find_end_ids(const Vocabulary& vocabulary, const std::vector<int32_t>& named) {
  static constexpr std::array<std::string_view, 14> usual = {"<|im_end|>",
                                                             "<|endoftext|>",
                                                             "<|eot_id|>",
                                                             "<|eom_id|>",
                                                             "<|end_of_text|>",
                                                             "<end_of_turn>",
                                                             "<|return|>",
                                                             "<｜end▁of▁sentence｜>",
                                                             "<|call|>",
                                                             "<|eot|>",
                                                             "<EOT>",
                                                             "</s>",
                                                             "[e~[",
                                                             "<|end|>"};
  std::vector<int32_t> ids;
  const auto add = [&](int32_t id) {
    if (vocabulary.contains(id) && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  };
  for (const int32_t id : named) add(id);
  bool harmony = false;  // there <|end|> ends a message inside the turn, and <|return|> the turn
  std::vector<int32_t> found;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.kind(id) != TokenKind::control) continue;
    const std::string_view text = vocabulary.text(id);
    if (std::find(usual.begin(), usual.end(), text) != usual.end()) found.push_back(id);
    harmony |= text == "<|return|>";
  }
  for (const int32_t id : found) {
    if (!harmony || vocabulary.text(id) != "<|end|>") add(id);
  }
  return ids;
}

}  // namespace gristmill::text
