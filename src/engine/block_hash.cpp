#include "engine/block_hash.h"

#include <bit>
#include <vector>

namespace gristmill::engine {
namespace {

constexpr std::array<uint32_t, 64> round_constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void compress(std::array<uint32_t, 8>& state, const uint8_t* block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) {
    w[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 | uint32_t{block[4 * i + 2]} << 8 |
           block[4 * i + 3];
  }
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t t1 =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + round_constants[i] + w[i];
    const uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> sum = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += sum[i];
}

}  // namespace

BlockHash sha256(std::span<const uint8_t> bytes) {
  std::array<uint32_t, 8> state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  size_t at = 0;
  for (; at + 64 <= bytes.size(); at += 64) compress(state, bytes.data() + at);
  std::array<uint8_t, 128> tail{};
  const size_t rest = bytes.size() - at;
  if (rest > 0) std::memcpy(tail.data(), bytes.data() + at, rest);
  tail[rest] = 0x80;
  const size_t tail_size = rest < 56 ? 64 : 128;
  const uint64_t bits = static_cast<uint64_t>(bytes.size()) * 8;
  for (size_t i = 0; i < 8; ++i) tail[tail_size - 1 - i] = static_cast<uint8_t>(bits >> (8 * i));
  for (size_t block = 0; block < tail_size; block += 64) compress(state, tail.data() + block);
  BlockHash hash;
  for (size_t i = 0; i < 32; ++i) hash[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  return hash;
}

uint64_t xxh64(std::span<const uint8_t> bytes, uint64_t seed) {
  constexpr uint64_t p1 = 11400714785074694791u, p2 = 14029467366897019727u, p3 = 1609587929392839161u,
                     p4 = 9650029242287828579u, p5 = 2870177450012600261u;
  const auto read64 = [](const uint8_t* at) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    return word;
  };
  const auto round = [](uint64_t sum, uint64_t word) { return std::rotl(sum + word * p2, 31) * p1; };
  const uint8_t* at = bytes.data();
  size_t left = bytes.size();
  uint64_t hash = seed + p5;
  if (left >= 32) {
    uint64_t lanes[4] = {seed + p1 + p2, seed + p2, seed, seed - p1};
    for (; left >= 32; left -= 32, at += 32) {
      for (size_t i = 0; i < 4; ++i) lanes[i] = round(lanes[i], read64(at + 8 * i));
    }
    hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
    for (const uint64_t lane : lanes) hash = (hash ^ round(0, lane)) * p1 + p4;
  }
  hash += bytes.size();
  for (; left >= 8; left -= 8, at += 8) hash = std::rotl(hash ^ round(0, read64(at)), 27) * p1 + p4;
  if (left >= 4) {
    uint32_t word = 0;
    std::memcpy(&word, at, sizeof word);
    hash = std::rotl(hash ^ (word * p1), 23) * p2 + p3;
    left -= 4, at += 4;
  }
  for (; left > 0; --left, ++at) hash = std::rotl(hash ^ (*at * p5), 11) * p1;
  hash = (hash ^ (hash >> 33)) * p2;
  hash = (hash ^ (hash >> 29)) * p3;
  return hash ^ (hash >> 32);
}

namespace {

BlockHash digest(HashAlgorithm algorithm, std::span<const uint8_t> bytes) {
  if (algorithm == HashAlgorithm::sha256) return sha256(bytes);
  const uint64_t words[2] = {xxh64(bytes, 0), xxh64(bytes, 0x9E3779B97F4A7C15u)};
  BlockHash hash{};
  std::memcpy(hash.data(), words, sizeof words);
  return hash;
}

}  // namespace

BlockHash root_hash(HashAlgorithm algorithm, std::span<const KeyPart> parts) {
  constexpr std::string_view name = "gristmill block chain 1";
  std::vector<uint8_t> bytes(name.begin(), name.end());
  for (const KeyPart& part : parts) {
    if (part.text.empty()) continue;
    bytes.push_back(static_cast<uint8_t>(part.source));
    const uint64_t length = part.text.size();
    for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<uint8_t>(length >> shift));
    bytes.insert(bytes.end(), part.text.begin(), part.text.end());
  }
  return digest(algorithm, bytes);
}

BlockHash block_hash(HashAlgorithm algorithm, const BlockHash& parent, std::span<const int32_t> tokens) {
  std::array<uint8_t, 32 + 256 * sizeof(int32_t)> bytes;  // blocks hold at most 256 tokens
  std::memcpy(bytes.data(), parent.data(), parent.size());
  std::memcpy(bytes.data() + parent.size(), tokens.data(), tokens.size_bytes());
  return digest(algorithm, {bytes.data(), parent.size() + tokens.size_bytes()});
}

}  // namespace gristmill::engine
