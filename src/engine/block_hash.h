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

/// The parent of a sequence's first block. Tokens computed under different salts never share blocks.
BlockHash root_hash(std::string_view salt);

BlockHash block_hash(const BlockHash& parent, std::span<const int32_t> tokens);

/// SHA-256 (FIPS 180-4).
BlockHash sha256(std::span<const uint8_t> bytes);

}  // namespace gristmill::engine
