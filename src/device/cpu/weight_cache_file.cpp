#include "device/cpu/weight_cache_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/checksum.h"
#include "base/error.h"

namespace gristmill::device::cpu {
namespace {

struct Head {
  char magic[8];
  uint32_t format;
  uint32_t key_bytes;
  uint64_t payload_bytes;
  uint64_t payload_offset;
  uint64_t chunk_bytes;
  uint64_t checksum;
};
static_assert(sizeof(Head) == 48);
constexpr char kMagic[8] = {'G', 'R', 'S', 'T', 'W', 'G', 'H', 'T'};

constexpr size_t rounded_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

size_t header_bytes(const std::string& key, size_t payload_bytes) {
  return sizeof(Head) + rounded_up(key.size(), 8) + cache_chunks(payload_bytes) * sizeof(uint64_t);
}

Head head_of(const std::string& key, size_t payload_bytes) {
  Head head = {};
  std::copy(std::begin(kMagic), std::end(kMagic), head.magic);
  head.format = kCacheFormat;
  head.key_bytes = static_cast<uint32_t>(key.size());
  head.payload_bytes = payload_bytes;
  head.payload_offset = cache_payload_offset(key, payload_bytes);
  head.chunk_bytes = kCacheChunk;
  return head;
}

bool read_all(int file, std::byte* to, size_t bytes, size_t offset) {
  while (bytes > 0) {
    const ssize_t got = ::pread(file, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    bytes -= static_cast<size_t>(got);
    offset += static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

size_t cache_payload_offset(const std::string& key, size_t payload_bytes) {
  return rounded_up(header_bytes(key, payload_bytes), kPayloadAlign);
}

uint64_t chunk_checksum(std::span<const std::byte> chunk, size_t index) {
  return checksum(chunk, index + 1);  // so that chunks cannot stand in for each other
}

std::vector<std::byte> cache_header(const std::string& key, size_t payload_bytes, std::span<const uint64_t> checksums) {
  std::vector<std::byte> header(header_bytes(key, payload_bytes));
  Head head = head_of(key, payload_bytes);
  std::memcpy(header.data(), &head, sizeof head);
  std::memcpy(header.data() + sizeof head, key.data(), key.size());
  std::memcpy(header.data() + sizeof head + rounded_up(key.size(), 8), checksums.data(), checksums.size_bytes());
  head.checksum = checksum(header);
  std::memcpy(header.data(), &head, sizeof head);
  return header;
}

CachedWeights::CachedWeights(std::string path, int file, const std::string& key, size_t payload_bytes)
    : path_(std::move(path)), file_(file), payload_bytes_(payload_bytes) {
  const auto fail = [&](const std::string& what) {
    ::close(file_);
    throw Error(what);
  };
  struct stat info = {};
  if (::fstat(file_, &info) != 0) fail(cat("it cannot be read: ", std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) fail("it is not a regular file");
  Head head = {};
  if (!read_all(file_, reinterpret_cast<std::byte*>(&head), sizeof head, 0)) fail("it is too short for a header");
  const Head wanted = head_of(key, payload_bytes);
  if (std::memcmp(head.magic, wanted.magic, sizeof head.magic) != 0) fail("it holds something else");
  if (head.format != wanted.format) fail(cat("its format is version ", head.format, ", not ", wanted.format));
  if (head.payload_bytes != wanted.payload_bytes)
    fail(cat("its weights are said to take ", head.payload_bytes, " bytes, not ", wanted.payload_bytes));
  if (head.key_bytes != wanted.key_bytes || head.payload_offset != wanted.payload_offset ||
      head.chunk_bytes != wanted.chunk_bytes)
    fail("its header is of other weights");
  payload_offset_ = cache_payload_offset(key, payload_bytes);
  if (static_cast<uint64_t>(info.st_size) != payload_offset_ + payload_bytes)
    fail(cat("it has ", info.st_size, " bytes, not ", payload_offset_ + payload_bytes));
  std::vector<std::byte> header(header_bytes(key, payload_bytes));
  if (!read_all(file_, header.data(), header.size(), 0)) fail(cat("its header cannot be read: ", std::strerror(errno)));
  std::memcpy(&head, header.data(), sizeof head);
  const uint64_t sum = std::exchange(head.checksum, 0);
  std::memcpy(header.data(), &head, sizeof head);
  if (checksum(header) != sum) fail("its header is damaged");
  if (std::memcmp(header.data() + sizeof head, key.data(), key.size()) != 0) fail("its header is of other weights");
  checksums_.resize(cache_chunks(payload_bytes));
  std::memcpy(checksums_.data(), header.data() + header.size() - checksums_.size() * sizeof(uint64_t),
              checksums_.size() * sizeof(uint64_t));
}

CachedWeights::~CachedWeights() {
  ::close(file_);
}

size_t CachedWeights::chunk_bytes(size_t index) const {
  return std::min(kCacheChunk, payload_bytes_ - index * kCacheChunk);
}

Region CachedWeights::map() const {
  return Region(file_, payload_offset_, payload_bytes_, kPayloadAlign, path_);
}

bool CachedWeights::read_chunk(size_t index, std::byte* to) const {
  const size_t bytes = chunk_bytes(index);
  return read_all(file_, to, bytes, payload_offset_ + index * kCacheChunk) &&
         chunk_checksum({to, bytes}, index) == checksums_[index];
}

bool CachedWeights::check_chunk(size_t index, const std::byte* payload) const {
  return chunk_checksum({payload + index * kCacheChunk, chunk_bytes(index)}, index) == checksums_[index];
}

}  // namespace gristmill::device::cpu
