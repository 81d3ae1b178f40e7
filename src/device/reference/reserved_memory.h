#pragma once
#include <cstddef>
#include <string>

namespace gristmill::device::reference {

/// Zeroed, page-aligned address space: reserved when made, its pages are committed on first use.
class ReservedMemory {
 public:
  ReservedMemory() = default;
  /// Throws Error naming `purpose` and the size.
  ReservedMemory(size_t bytes, const char* purpose);
  ~ReservedMemory();
  ReservedMemory(ReservedMemory&& other) noexcept;
  ReservedMemory& operator=(ReservedMemory&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace gristmill::device::reference
