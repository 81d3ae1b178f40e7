#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gristmill {

/// A 64-bit checksum against damage, not against an adversary: every change that is confined to 8 aligned bytes is
/// found, any other is missed by chance only. Eight 64-bit lanes, each step of which is a bijection of the lane and
/// of the word that it takes in; runs at the speed of memory. The value is the same on every machine and version.
uint64_t checksum(std::span<const std::byte> bytes, uint64_t seed = 0);

/// 128 bits of the text as 32 hexadecimal digits: a name for it.
std::string digest(std::string_view text);

}  // namespace gristmill
