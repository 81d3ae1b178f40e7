#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gristmill::text {

/// A token that is found in the text as it stands, before words are split and merged.
struct AddedToken {
  std::string text;
  int32_t id = -1;
  bool special = false;      ///< a control token: found only when asked for
  bool single_word = false;  ///< only where no word character touches it
  bool lstrip = false;       ///< takes white space on its left with it
  bool rstrip = false;
};

/// Finds added tokens: the leftmost, and of those that begin there the longest. A trie over bytes with the children of
/// a node side by side; text without a first byte of some token is passed over at memory speed. Immutable, thread safe.
class AddedTokens {
 public:
  AddedTokens() = default;
  /// Tokens of empty text are ignored; of several with the same text the lowest id counts.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Hit {
    size_t begin, end;  ///< including stripped white space
    int32_t id;
  };
  /// The first token at or behind `from`; white space before `from` is not taken. `text` is valid UTF-8.
  /// No control token is found across one of the ascending positions `marks`.
  bool find(std::string_view text, size_t from, bool special_too, Hit& hit, std::span<const size_t> marks = {}) const;
  /// Whether some control token begins at `at`.
  bool control_at(std::string_view text, size_t at) const;
  bool empty() const { return nodes_.empty(); }

 private:
  struct Node {
    uint32_t first_child = 0;
    uint16_t children = 0;
    uint8_t byte = 0;
    int32_t token = -1;  // index in tokens_ of the token that ends here
  };
  /// The longest token at `at`; control tokens only if they end at or before `special_end`.
  int32_t longest_at(std::string_view text, size_t at, size_t special_end) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<uint32_t, 256> roots_{};  // node of the first byte, or 0: node 0 is the root
};

}  // namespace gristmill::text
