#include "base/checksum.h"

#include <bit>
#include <cstring>

namespace gristmill {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as the machine stores numbers");

constexpr int kLanes = 8;
// Odd numbers without structure: the fractional digits of square roots of 2, 3 and 5.
constexpr uint64_t kStep = 0x6a09e667f3bcc909, kSpread = 0xbb67ae8584caa73b, kFinish = 0x3c6ef372fe94f82b;

// One multiplication would leave a flip of the highest bit a single flip, which one in the next word takes back. The
// second one spreads it over the upper half with carries that depend on all that came before.
uint64_t step(uint64_t lane, uint64_t word) {
  return std::rotl((lane ^ word) * kStep, 32) * kSpread;
}

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 31)) * kSpread;
  x = (x ^ (x >> 29)) * kFinish;
  return x ^ (x >> 32);
}

}  // namespace

uint64_t checksum(std::span<const std::byte> bytes, uint64_t seed) {
  uint64_t lanes[kLanes];
  for (uint64_t i = 0; i < kLanes; ++i) lanes[i] = mix(seed + kSpread * (i + 1));
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= sizeof lanes; left -= sizeof lanes, at += sizeof lanes) {
    uint64_t words[kLanes];
    std::memcpy(words, at, sizeof words);
    for (int i = 0; i < kLanes; ++i) lanes[i] = step(lanes[i], words[i]);
  }
  uint64_t tail[kLanes] = {};
  if (left > 0) std::memcpy(tail, at, left);
  for (int i = 0; i < kLanes; ++i) lanes[i] = step(lanes[i], tail[i]);
  uint64_t sum = mix(bytes.size() ^ seed);
  for (const uint64_t lane : lanes) sum = mix(sum ^ lane) + kStep;
  return sum;
}

std::string digest(std::string_view text) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  std::string out;
  for (const uint64_t seed : {uint64_t{1}, uint64_t{2}}) {
    const uint64_t half = checksum(bytes, seed);
    for (int shift = 60; shift >= 0; shift -= 4) out += "0123456789abcdef"[half >> shift & 15];
  }
  return out;
}

}  // namespace gristmill
