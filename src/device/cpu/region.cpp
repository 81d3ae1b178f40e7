#include "device/cpu/region.h"

#include <sys/mman.h>

#include <cerrno>
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

Region::~Region() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace gristmill::device::cpu
