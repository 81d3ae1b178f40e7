#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/token_index.h"

namespace gristmill::text {

/// Words seen before in one text, with where in the output their ids stand: a repeated word is a copy. One slot per
/// hash; a newer word takes the place of an older one.
class WordCache {
 public:
  /// Longer words are not worth keeping.
  static constexpr size_t longest_word = 64;
  /// Shorter texts have too few repetitions.
  static constexpr size_t shortest_text = 512;

  explicit WordCache(size_t text_bytes) {
    size_t slots = 16;
    while (slots < 8192 && slots * 16 < text_bytes) slots *= 2;
    slots_.resize(slots);
  }

  /// Appends the ids of `word` to `ids`: those of its last occurrence, or those that encode() appends. The word's text
  /// must stay where it is as long as the cache.
  template <class Encode>
  void append(std::string_view word, std::vector<int32_t>& ids, Encode encode) {
    if (word.size() > longest_word) return encode();
    Slot& slot = slots_[hash_text(word) & (slots_.size() - 1)];
    if (slot.word != nullptr && std::string_view(slot.word, slot.length) == word) {
      for (uint32_t i = slot.ids_begin; i < slot.ids_end; ++i) ids.push_back(ids[i]);
      return;
    }
    const auto begin = static_cast<uint32_t>(ids.size());
    encode();
    slot = {word.data(), static_cast<uint32_t>(word.size()), begin, static_cast<uint32_t>(ids.size())};
  }

 private:
  struct Slot {
    const char* word = nullptr;
    uint32_t length = 0;
    uint32_t ids_begin = 0, ids_end = 0;
  };
  std::vector<Slot> slots_;
};

}  // namespace gristmill::text
