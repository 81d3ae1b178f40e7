#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gristmill::text {

/// What a token is, with the numbers of `tokenizer.ggml.token_type`.
enum class TokenKind : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

/// How the text of a normal token spells its bytes.
enum class Spelling : uint8_t {
  byte_level,     ///< GPT-2's characters (text/byte_level.h)
  sentencepiece,  ///< U+2581 is a space, <0x0A> a byte
};

inline constexpr std::string_view sentencepiece_space = "\xE2\x96\x81";

/// The byte that `<0xNN>` spells, or -1.
int32_t spelled_byte(std::string_view text);

/// The tokens of a model: text, kind and the bytes they stand for. Texts are views that `owner` keeps alive; bytes are
/// stored here, end to end. Immutable and thread safe.
class Vocabulary {
 public:
  Vocabulary() = default;
  /// `texts` and `kinds` have one entry per id.
  Vocabulary(std::shared_ptr<const void> owner, std::vector<std::string_view> texts, std::vector<TokenKind> kinds,
             Spelling spelling);

  int32_t size() const { return static_cast<int32_t>(texts_.size()); }
  bool contains(int32_t id) const { return id >= 0 && id < size(); }
  std::string_view text(int32_t id) const { return texts_[static_cast<size_t>(id)]; }
  TokenKind kind(int32_t id) const { return kinds_[static_cast<size_t>(id)]; }
  std::string_view bytes(int32_t id) const {
    const size_t at = static_cast<size_t>(id);
    return std::string_view(bytes_).substr(ends_[at], ends_[at + 1] - ends_[at]);
  }
  int32_t longest() const { return longest_; }
  const std::vector<std::string_view>& texts() const { return texts_; }

 private:
  std::shared_ptr<const void> owner_;
  std::vector<std::string_view> texts_;
  std::vector<TokenKind> kinds_;
  std::string bytes_;
  std::vector<uint32_t> ends_;  // token i has bytes ends_[i] .. ends_[i + 1]
  int32_t longest_ = 0;
};

}  // namespace gristmill::text
