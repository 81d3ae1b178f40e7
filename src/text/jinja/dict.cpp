#include <algorithm>

#include "text/jinja/compare.h"
#include "text/jinja/value.h"

namespace gristmill::jinja {
namespace {

/// Below this a walk over the stored hashes is faster than a table.
constexpr size_t indexed_from = 9;

}  // namespace

Dict::Dict(std::initializer_list<std::pair<Value, Value>> entries) {
  for (const auto& [key, value] : entries) set(key, value);
}

template <class Matches>
size_t Dict::locate(uint64_t hash, const Matches& matches) const {
  if (slots_.empty()) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].hash == hash && matches(entries_[i].key)) return i;
    }
    return entries_.size();
  }
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const size_t i = slots_[slot] - 1;
    if (entries_[i].hash == hash && matches(entries_[i].key)) return i;
  }
  return entries_.size();
}

void Dict::index_entry(size_t entry) {
  const size_t mask = slots_.size() - 1;
  size_t slot = entries_[entry].hash & mask;
  while (slots_[slot] != 0) slot = (slot + 1) & mask;
  slots_[slot] = static_cast<uint32_t>(entry + 1);
}

void Dict::set(Value key, Value value) {
  const uint64_t hash = hash_of(key);
  const size_t at = locate(hash, [&](const Value& other) { return equal_keys(other, key); });
  if (at < entries_.size()) {
    entries_[at].value = std::move(value);
    return;
  }
  entries_.push_back({std::move(key), std::move(value), hash});
  if (entries_.size() < indexed_from) return;
  if (slots_.size() >= entries_.size() * 2) {
    index_entry(entries_.size() - 1);
    return;
  }
  slots_.assign(std::max<size_t>(32, slots_.size() * 2), 0);
  for (size_t i = 0; i < entries_.size(); ++i) index_entry(i);
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find_text(key.string());
  const size_t at = locate(hash_of(key), [&](const Value& other) { return equal_keys(other, key); });
  return at < entries_.size() ? &entries_[at].value : nullptr;
}

const Value* Dict::find_text(std::string_view key) const {
  const size_t at =
      locate(hash_of(key), [&](const Value& other) { return other.is_string() && other.string() == key; });
  return at < entries_.size() ? &entries_[at].value : nullptr;
}

}  // namespace gristmill::jinja
