#include "device/cpu/region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace gristmill::device::cpu {

Region::Region(size_t bytes, bool huge, const char* purpose) : bytes_(bytes) {
  if (bytes == 0) return;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(cat("cannot reserve ", bytes, " bytes for ", purpose, ": ", std::strerror(errno),
                    "; lower the limits of the step or the number of cache blocks"));
  }
  data_ = static_cast<std::byte*>(memory);
  if (huge) madvise(memory, bytes, MADV_HUGEPAGE);  // a hint: refusing it costs speed only
}

Region::Region(int file, size_t offset, size_t bytes, size_t align, const std::string& name) : bytes_(bytes) {
  if (bytes == 0) return;
  // Room for an aligned range is reserved first; what of it is left over on both sides is given back.
  const size_t room = bytes + align;
  void* const reserved = mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) throw Error(cat(name, ": cannot be mapped: ", std::strerror(errno)));
  auto* const first = static_cast<std::byte*>(reserved);
  const size_t before = (align - reinterpret_cast<uintptr_t>(first) % align) % align;
  void* const mapped = mmap(first + before, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) {
    const int error = errno;
    munmap(reserved, room);
    throw Error(cat(name, ": cannot be mapped: ", std::strerror(error)));
  }
  if (before > 0) munmap(reserved, before);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t used = before + (bytes + page - 1) / page * page;
  if (room > used) munmap(first + used, room - used);
  data_ = static_cast<std::byte*>(mapped);
  madvise(mapped, bytes, MADV_HUGEPAGE);  // as above; few file systems have them
}

Region::~Region() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace gristmill::device::cpu
