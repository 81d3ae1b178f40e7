#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>

namespace gristmill::engine {

/// Names the contents of a full cache block: its tokens and everything before them (chained).
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

/// With SHA-256 nobody can make two prompts collide. XXH64 (two seeds, 128 bits) is faster and for servers whose
/// clients trust each other.
enum class HashAlgorithm : uint8_t { sha256, xxhash };

/// The parent of a sequence's first block; empty parts count as absent. Sequences with different parts never share
/// blocks.
BlockHash root_hash(HashAlgorithm algorithm, std::span<const KeyPart> parts);

BlockHash block_hash(HashAlgorithm algorithm, const BlockHash& parent, std::span<const int32_t> tokens);

/// SHA-256 (FIPS 180-4).
BlockHash sha256(std::span<const uint8_t> bytes);

/// XXH64 (the xxHash specification, version 0.1.1).
uint64_t xxh64(std::span<const uint8_t> bytes, uint64_t seed);

}  // namespace gristmill::engine
