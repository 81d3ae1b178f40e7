#include "text/vocabulary.h"

#include <algorithm>

#include "base/error.h"
#include "text/byte_level.h"

namespace gristmill::text {
namespace {

int32_t hexadecimal(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

void append_sentencepiece(std::string& out, std::string_view text) {
  size_t from = 0;
  for (size_t at; (at = text.find(sentencepiece_space, from)) != std::string_view::npos;) {
    out.append(text, from, at - from);
    out.push_back(' ');
    from = at + sentencepiece_space.size();
  }
  out.append(text, from);
}

}  // namespace

int32_t spelled_byte(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int32_t high = hexadecimal(text[3]), low = hexadecimal(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

Vocabulary::Vocabulary(std::shared_ptr<const void> owner, std::vector<std::string_view> texts,
                       std::vector<TokenKind> kinds, Spelling spelling)
    : owner_(std::move(owner)), texts_(std::move(texts)), kinds_(std::move(kinds)) {
  if (texts_.size() != kinds_.size()) {
    throw Error(cat("vocabulary: ", texts_.size(), " tokens but ", kinds_.size(), " token types"));
  }
  if (texts_.size() > INT32_MAX / 2) throw Error(cat("vocabulary: ", texts_.size(), " tokens are too many"));
  uint64_t total = 0;
  for (const std::string_view text : texts_) total += text.size();
  if (total > INT32_MAX) throw Error(cat("vocabulary: ", total, " bytes of token texts are too many"));
  bytes_.reserve(total);
  ends_.reserve(texts_.size() + 1);
  ends_.push_back(0);
  for (size_t i = 0; i < texts_.size(); ++i) {
    const std::string_view text = texts_[i];
    switch (kinds_[i]) {
      case TokenKind::normal:
        if (spelling == Spelling::sentencepiece) {
          append_sentencepiece(bytes_, text);
        } else if (!append_byte_level_decoded(bytes_, text)) {
          bytes_.append(text);
        }
        break;
      case TokenKind::byte:
        if (const int32_t byte = spelled_byte(text); byte >= 0) {
          bytes_.push_back(static_cast<char>(byte));
        } else {
          bytes_.append(text);
        }
        break;
      case TokenKind::user_defined:
        if (spelling == Spelling::sentencepiece) {
          append_sentencepiece(bytes_, text);
        } else {
          bytes_.append(text);
        }
        break;
      case TokenKind::control:
      case TokenKind::unknown:
        bytes_.append(text);
        break;
      case TokenKind::unused:  // rows that pad the vocabulary: nothing to print
        break;
    }
    ends_.push_back(static_cast<uint32_t>(bytes_.size()));
    longest_ = std::max(longest_, static_cast<int32_t>(ends_[i + 1] - ends_[i]));
  }
  bytes_.shrink_to_fit();
}

}  // namespace gristmill::text
