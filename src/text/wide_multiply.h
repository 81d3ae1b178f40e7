#pragma once
#include <cstdint>

namespace gristmill::text {

/// The upper 64 bits of a * b. With a well-mixed `a` this is a fair index below `b` (Lemire 2019, "Fast random integer
/// generation in an interval"), so tables need not have a power of two of slots.
inline uint64_t multiply_high(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(a) * b) >> 64);
}

/// Both halves of a * b, xored: one multiplication mixes all bits of `a`.
inline uint64_t multiply_fold(uint64_t a, uint64_t b) {
  return multiply_high(a, b) ^ (a * b);
}

}  // namespace gristmill::text
