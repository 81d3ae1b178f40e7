#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>

namespace gristmill::engine {

/// Names the contents of a full cache block: its tokens and everything before them (chained), SHA-256 so that nobody
/// can make two prompts collide.
using BlockHash = std::array<uint8_t, 32>;

struct BlockHashKey {
  size_t operator()(const BlockHash& hash) const {
    size_t word = 0;
    std::memcpy(&word, hash.data(), sizeof word);
    return word;
  }
};

/// What else than tokens decides the K/V of a sequence. Every source has its own tag and length in the hash, so none
/// can pass for another.
enum class KeySource : uint8_t { salt = 1, adapter = 2, media = 3 };
struct KeyPart {
  KeySource source;
  std::string_view text;
};

/// The parent of a sequence's first block; empty parts count as absent. Sequences with different parts never share
/// blocks.
BlockHash root_hash(std::span<const KeyPart> parts);

BlockHash block_hash(const BlockHash& parent, std::span<const int32_t> tokens);

/// SHA-256 (FIPS 180-4).
BlockHash sha256(std::span<const uint8_t> bytes);

}  // namespace gristmill::engine
