#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gristmill::weights {

/// A whole file, mapped read only. Opening reads nothing: pages come in as they are touched.
class MappedFile {
 public:
  /// Throws Error naming the file and the system's reason; only regular files that are not empty are
  /// taken, and nothing else is waited for.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }
  /// Names the contents wherever the file lies: its size, when it was last written, and a digest of samples of it. Two
  /// files of the same identity hold the same bytes unless somebody took pains.
  std::string identity() const;
  bool holds(std::span<const std::byte> part) const;
  /// Drops the pages that lie wholly inside `part` from this process; they are read again when touched. Thread safe.
  void drop_pages(std::span<const std::byte> part) const;

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
  int64_t written_seconds_ = 0, written_nanoseconds_ = 0;
};

/// A name read from a file, made fit for a one-line message: quoted, control bytes escaped, shortened.
std::string quoted(std::string_view name);

}  // namespace gristmill::weights
