#pragma once
// The form of a file of packed weights, as on disk, little-endian:
//
//   0   "GRSTWGHT"
//   8   u32 format version
//   12  u32 bytes of the key
//   16  u64 bytes of the payload
//   24  u64 offset of the payload: the first multiple of kPayloadAlign behind the header
//   32  u64 bytes of a chunk (kCacheChunk)
//   40  u64 checksum of the header, computed with 0 in this place
//   48  the key, a text, filled up with zeros to a multiple of 8
//       u64 [chunks] checksums of the payload's chunks; the last chunk may be shorter
//
// The payload is the region of weights byte for byte. Where each matrix lies in it follows from the program, which the
// key pins down; nothing in the file is an offset that is followed.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/cpu/region.h"

namespace gristmill::device::cpu {

inline constexpr uint32_t kCacheFormat = 1;
inline constexpr size_t kCacheChunk = 1 << 20;
/// The size of a huge page: file and address space are aligned alike.
inline constexpr size_t kPayloadAlign = 2 << 20;

inline size_t cache_chunks(size_t payload_bytes) {
  return (payload_bytes + kCacheChunk - 1) / kCacheChunk;
}
/// Where the payload of a file with this key begins.
size_t cache_payload_offset(const std::string& key, size_t payload_bytes);
/// The header with the chunks' checksums.
std::vector<std::byte> cache_header(const std::string& key, size_t payload_bytes, std::span<const uint64_t> checksums);
uint64_t chunk_checksum(std::span<const std::byte> chunk, size_t index);

/// An open file whose header was found to be in order. Thread safe.
class CachedWeights {
 public:
  /// Takes over `file`. Throws Error that says what is wrong with the file: anything but a header for exactly this key
  /// and size, and a file of exactly the length that follows from them. The payload is not read.
  CachedWeights(std::string path, int file, const std::string& key, size_t payload_bytes);
  ~CachedWeights();
  CachedWeights(const CachedWeights&) = delete;
  CachedWeights& operator=(const CachedWeights&) = delete;

  const std::string& path() const { return path_; }
  size_t chunks() const { return checksums_.size(); }
  size_t chunk_bytes(size_t index) const;
  /// The payload in place.
  Region map() const;
  /// Reads a chunk to `to`; false when it cannot be read or is not what was written.
  bool read_chunk(size_t index, std::byte* to) const;
  /// The same of a chunk of the mapping.
  bool check_chunk(size_t index, const std::byte* payload) const;

 private:
  std::string path_;
  int file_;
  size_t payload_offset_, payload_bytes_;
  std::vector<uint64_t> checksums_;
};

}  // namespace gristmill::device::cpu
