#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace gristmill::cli {

/// Reads single files out of a ZIP archive (PKWARE APPNOTE 6.3; stored or deflated, no ZIP64, no encryption), such as a
/// Python wheel. Every offset and length is checked against the file. All failures are Errors naming the archive.
class ZipArchive {
 public:
  explicit ZipArchive(const std::string& path);
  ~ZipArchive();
  ZipArchive(const ZipArchive&) = delete;
  ZipArchive& operator=(const ZipArchive&) = delete;

  using Sink = std::function<void(const uint8_t* data, size_t size)>;
  /// Passes the contents of `member` to `sink` piece by piece, and checks length and CRC-32 at the end.
  void extract(std::string_view member, const Sink& sink) const;
  /// The unpacked size of `member`.
  uint64_t size_of(std::string_view member) const;

 private:
  struct Member {
    uint16_t flags, method;
    uint32_t crc;
    uint64_t packed, unpacked, header;
  };
  Member find(std::string_view name) const;
  void read(uint64_t offset, void* out, size_t size) const;
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_;
  int file_ = -1;
  uint64_t size_ = 0;
  std::string directory_;  // the central directory
  uint64_t directory_offset_ = 0;
};

}  // namespace gristmill::cli
