#pragma once
#include <cstddef>
#include <string>
#include <utility>

namespace gristmill::device::cpu {

/// A range of address space of its own: zeroed memory whose pages are committed when they are first touched, or a part
/// of a file. Throws Error when there is no address space.
class Region {
 public:
  Region() = default;
  /// `huge` asks for huge pages. `purpose` is for the message.
  Region(size_t bytes, bool huge, const char* purpose);
  /// `bytes` of `file` from `offset` on, to be read only; shared with whoever else maps it. The address is a multiple
  /// of `align`, a power of two of at least a page, which divides `offset`. The file may be closed afterwards. `name`
  /// is for the message.
  Region(int file, size_t offset, size_t bytes, size_t align, const std::string& name);
  ~Region();
  Region(Region&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Region& operator=(Region&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Lays pieces out one after the other before there is memory for them.
class Layout {
 public:
  /// Offset of a new piece, a multiple of 64.
  size_t add(size_t bytes) {
    const size_t offset = size_;
    size_ += (bytes + 63) / 64 * 64;
    return offset;
  }
  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

}  // namespace gristmill::device::cpu
