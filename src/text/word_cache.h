#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "text/token_index.h"

namespace gristmill::text {

/// Words seen before while one text is encoded, with where in the output their ids stand: a repeated word is a copy.
/// One slot per hash, which holds the word itself; a newer word takes the place of an older one.
class WordCache {
 public:
  /// Longer words are not worth keeping.
  static constexpr size_t longest_word = 34;

  explicit WordCache(size_t text_bytes) {
    size_t slots = 16;
    while (slots < 8192 && slots * 16 < text_bytes) slots *= 2;
    slots_.resize(slots);
  }

  /// Appends the ids of `word` to `ids`: those of its last occurrence, or those that encode() appends, at most one for
  /// each byte. `ids` is the same each time and only grows. Words with and without `whole` are different words.
  template <class Encode>
  void append(std::string_view word, bool whole, std::vector<int32_t>& ids, Encode encode) {
    if (word.size() > longest_word) return encode();
    const auto key = static_cast<uint8_t>(word.size() * 2 + (whole ? 1 : 0));
    Slot& slot = slots_[(hash_text(word) + (whole ? 1 : 0)) & (slots_.size() - 1)];
    if (slot.key == key && std::memcmp(slot.word.data(), word.data(), word.size()) == 0) {
      ids.resize(ids.size() + slot.ids);
      std::copy_n(ids.begin() + slot.first_id, slot.ids, ids.end() - slot.ids);
      return;
    }
    const size_t begin = ids.size();
    encode();
    slot.first_id = static_cast<uint32_t>(begin);
    slot.ids = static_cast<uint8_t>(ids.size() - begin);
    slot.key = key;
    word.copy(slot.word.data(), word.size());
  }

 private:
  struct Slot {
    uint32_t first_id = 0;
    uint8_t ids = 0;
    uint8_t key = 0;  ///< twice the length, and whether it is whole; 0: empty
    std::array<char, longest_word> word{};
  };
  std::vector<Slot> slots_;
};

}  // namespace gristmill::text
