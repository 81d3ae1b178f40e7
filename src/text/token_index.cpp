#include "text/token_index.h"

#include <cstring>

#include "text/wide_multiply.h"

namespace gristmill::text {

uint64_t hash_text(std::string_view text) {
  uint64_t state = text.size() * 0x9E3779B97F4A7C15u;
  const char* at = text.data();
  size_t left = text.size();
  uint64_t word = 0;
  for (; left >= 8; left -= 8, at += 8) {
    std::memcpy(&word, at, 8);
    state = multiply_fold(state ^ word, 0xD6E8FEB86659FD93u);
  }
  word = 0;
  if (left != 0) std::memcpy(&word, at, left);
  return multiply_fold(state ^ word, 0xA0761D6478BD642Fu);
}

TokenIndex::TokenIndex(const std::vector<std::string_view>& texts)
    : texts_(&texts), slots_(texts.size() + texts.size() / 2 + 8, Slot{0, -1}) {}

size_t TokenIndex::slot_of(uint64_t hash) const {
  return static_cast<size_t>(multiply_high(hash, slots_.size()));
}

void TokenIndex::add(int32_t id) {
  const std::string_view text = (*texts_)[static_cast<size_t>(id)];
  const uint64_t hash = hash_text(text);
  const uint32_t tag = static_cast<uint32_t>(hash);
  size_t at = slot_of(hash);
  while (slots_[at].id >= 0) {
    if (slots_[at].tag == tag && (*texts_)[static_cast<size_t>(slots_[at].id)] == text) return;
    if (++at == slots_.size()) at = 0;
  }
  slots_[at] = {tag, id};
}

int32_t TokenIndex::find(std::string_view text) const {
  if (slots_.empty()) return -1;
  const uint64_t hash = hash_text(text);
  const uint32_t tag = static_cast<uint32_t>(hash);
  size_t at = slot_of(hash);
  while (slots_[at].id >= 0) {
    if (slots_[at].tag == tag && (*texts_)[static_cast<size_t>(slots_[at].id)] == text) return slots_[at].id;
    if (++at == slots_.size()) at = 0;
  }
  return -1;
}

}  // namespace gristmill::text
