#include "device/reference/reserved_memory.h"

#include <sys/mman.h>

#include <utility>

#include "base/error.h"

namespace gristmill::device::reference {

ReservedMemory::ReservedMemory(size_t bytes, const char* purpose) : size_(bytes) {
  if (bytes == 0) return;
  void* const address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) throw Error(cat("cannot reserve ", bytes, " bytes for ", purpose));
  data_ = static_cast<std::byte*>(address);
}

ReservedMemory::~ReservedMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

ReservedMemory::ReservedMemory(ReservedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

ReservedMemory& ReservedMemory::operator=(ReservedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace gristmill::device::reference
