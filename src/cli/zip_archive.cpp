#include "cli/zip_archive.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace gristmill::cli {
namespace {

constexpr uint32_t end_signature = 0x06054B50, entry_signature = 0x02014B50, local_signature = 0x04034B50;
constexpr size_t end_size = 22, entry_size = 46, local_size = 30;
constexpr uint64_t most_directory_bytes = 16 << 20;
constexpr size_t chunk = 256 << 10;

uint16_t u16(const void* at) {
  const auto* bytes = static_cast<const uint8_t*>(at);
  return static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
}

uint32_t u32(const void* at) {
  return u16(at) | static_cast<uint32_t>(u16(static_cast<const uint8_t*>(at) + 2)) << 16;
}

}  // namespace

ZipArchive::ZipArchive(const std::string& path) : path_(path), file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (file_ < 0) fail(cat("cannot be opened: ", std::strerror(errno)));
  struct stat status{};
  if (fstat(file_, &status) != 0) fail(cat("cannot be read: ", std::strerror(errno)));
  size_ = static_cast<uint64_t>(status.st_size);
  // The end record has a comment of up to 65,535 bytes behind it, which must reach to the end of the file.
  const size_t tail_size = static_cast<size_t>(std::min<uint64_t>(size_, end_size + 65535));
  std::string tail(tail_size, '\0');
  read(size_ - tail_size, tail.data(), tail_size);
  for (size_t at = tail_size < end_size ? 0 : tail_size - end_size + 1; at-- > 0;) {
    const char* record = tail.data() + at;
    if (u32(record) != end_signature || at + end_size + u16(record + 20) != tail_size) continue;
    const uint64_t end_offset = size_ - tail_size + at;
    const uint64_t bytes = u32(record + 12);
    directory_offset_ = u32(record + 16);
    if (u16(record + 4) != 0 || u16(record + 6) != 0) fail("is a part of a split archive");
    if (bytes > most_directory_bytes || directory_offset_ > end_offset || bytes > end_offset - directory_offset_) {
      fail("has a broken directory");
    }
    directory_.resize(bytes);
    read(directory_offset_, directory_.data(), directory_.size());
    return;
  }
  fail("is not a ZIP archive");
}

ZipArchive::~ZipArchive() {
  if (file_ >= 0) close(file_);
}

void ZipArchive::fail(const std::string& what) const {
  throw Error(cat(path_, ": ", what));
}

void ZipArchive::read(uint64_t offset, void* out, size_t size) const {
  auto* to = static_cast<uint8_t*>(out);
  while (size > 0) {
    const ssize_t got = pread(file_, to, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(cat("cannot be read: ", std::strerror(errno)));
    if (got == 0) fail("ends early");
    to += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
}

ZipArchive::Member ZipArchive::find(std::string_view name) const {
  for (size_t at = 0; at + entry_size <= directory_.size();) {
    const char* entry = directory_.data() + at;
    if (u32(entry) != entry_signature) fail("has a broken directory");
    const size_t name_size = u16(entry + 28);
    const size_t next = at + entry_size + name_size + u16(entry + 30) + u16(entry + 32);
    if (next > directory_.size()) fail("has a broken directory");
    if (std::string_view(entry + entry_size, name_size) == name) {
      return {u16(entry + 8), u16(entry + 10), u32(entry + 16), u32(entry + 20), u32(entry + 24), u32(entry + 42)};
    }
    at = next;
  }
  fail(cat("holds no ", name));
}

uint64_t ZipArchive::size_of(std::string_view member) const {
  return find(member).unpacked;
}

void ZipArchive::extract(std::string_view name, const Sink& sink) const {
  const Member member = find(name);
  if (member.flags & 1) fail(cat(name, " is encrypted"));
  if (member.method != 0 && member.method != 8)
    fail(cat(name, " is packed by method ", member.method, "; 0 and 8 are known"));
  if (member.header > directory_offset_ || directory_offset_ - member.header < local_size)
    fail(cat(name, " lies outside"));
  std::array<uint8_t, local_size> local{};
  read(member.header, local.data(), local.size());
  const uint64_t begin = member.header + local_size + u16(local.data() + 26) + u16(local.data() + 28);
  if (u32(local.data()) != local_signature || begin > directory_offset_ || member.packed > directory_offset_ - begin) {
    fail(cat(name, " lies outside"));
  }

  uint32_t crc = static_cast<uint32_t>(crc32(0, nullptr, 0));
  uint64_t unpacked = 0;
  const auto emit = [&](const uint8_t* data, size_t size) {
    unpacked += size;
    if (unpacked > member.unpacked) fail(cat(name, " is longer than its entry says"));
    crc = static_cast<uint32_t>(crc32(crc, data, static_cast<uInt>(size)));
    sink(data, size);
  };
  std::string in(chunk, '\0'), out(chunk, '\0');
  z_stream stream{};
  if (member.method == 8 && inflateInit2(&stream, -MAX_WBITS) != Z_OK) fail("cannot be unpacked: out of memory");
  struct End {
    z_stream* stream;
    ~End() {
      if (stream != nullptr) inflateEnd(stream);
    }
  } end{member.method == 8 ? &stream : nullptr};
  bool ended = member.method == 0;
  for (uint64_t done = 0; done < member.packed;) {
    const size_t size = static_cast<size_t>(std::min<uint64_t>(chunk, member.packed - done));
    read(begin + done, in.data(), size);
    done += size;
    if (member.method == 0) {
      emit(reinterpret_cast<const uint8_t*>(in.data()), size);
      continue;
    }
    if (ended) fail(cat(name, " goes on behind its end"));
    stream.next_in = reinterpret_cast<Bytef*>(in.data());
    stream.avail_in = static_cast<uInt>(size);
    do {
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      const int result = inflate(&stream, Z_NO_FLUSH);
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) fail(cat(name, " is damaged"));
      emit(reinterpret_cast<const uint8_t*>(out.data()), out.size() - stream.avail_out);
      ended = result == Z_STREAM_END;
    } while (stream.avail_out == 0 && !ended);
  }
  if (!ended || unpacked != member.unpacked) fail(cat(name, " ends early"));
  if (crc != member.crc) fail(cat(name, " is damaged (CRC-32)"));
}

}  // namespace gristmill::cli
