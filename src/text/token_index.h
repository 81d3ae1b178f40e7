#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace gristmill::text {

/// A 64-bit hash of short strings, for tables inside one process.
uint64_t hash_text(std::string_view text);

/// Looks tokens up by their text: a flat table of (part of the hash, id), 8 bytes a slot, that refers to the list of
/// texts it was built for. The list must outlive it and keep its order. Immutable after the last add().
class TokenIndex {
 public:
  TokenIndex() = default;
  explicit TokenIndex(const std::vector<std::string_view>& texts);
  /// Makes texts[id] findable. The first id of several with one text wins.
  void add(int32_t id);
  /// -1 when absent.
  int32_t find(std::string_view text) const;

 private:
  struct Slot {
    uint32_t tag;
    int32_t id;
  };
  size_t slot_of(uint64_t hash) const;

  const std::vector<std::string_view>* texts_ = nullptr;
  std::vector<Slot> slots_;
};

}  // namespace gristmill::text
