#include "weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <system_error>

#include "base/checksum.h"
#include "base/error.h"

namespace gristmill::weights {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw Error(cat(path, ": ", what, ": ", std::generic_category().message(error)));
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a FIFO would wait for a writer. It has no effect on regular files.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail(path, "cannot be opened", errno);
  struct stat info = {};
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    fail(path, "cannot be read", error);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    throw Error(cat(path, S_ISDIR(info.st_mode) ? ": is not a file but a folder; name the file itself"
                                                : ": is not a regular file; only those are read"));
  }
  if (info.st_size == 0) {
    ::close(fd);
    throw Error(cat(path, ": is empty"));
  }
  const auto size = static_cast<size_t>(info.st_size);
  written_seconds_ = info.st_mtim.tv_sec;
  written_nanoseconds_ = info.st_mtim.tv_nsec;
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  ::close(fd);
  if (address == MAP_FAILED) fail(path, "cannot be mapped", error);
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::string MappedFile::identity() const {
  // The beginning, where containers keep their tables, and pages evenly spread over the rest, the last one among them.
  constexpr size_t kBeginning = 64 << 10, kSample = 4 << 10, kSamples = 16;
  uint64_t sum = checksum(bytes_.first(std::min(bytes_.size(), kBeginning)));
  if (bytes_.size() > kBeginning) {
    const size_t last = bytes_.size() - std::min(bytes_.size() - kBeginning, kSample);
    for (size_t i = 0; i < kSamples; ++i) {
      const size_t offset = kBeginning + (last - kBeginning) / (kSamples - 1) * i;
      sum = checksum(bytes_.subspan(offset, std::min(kSample, bytes_.size() - offset)), sum);
    }
    sum = checksum(bytes_.subspan(last), sum);
  }
  return cat(bytes_.size(), " bytes written ", written_seconds_, ".", written_nanoseconds_, " sampled ", sum);
}

bool MappedFile::holds(std::span<const std::byte> part) const {
  const std::less_equal<const std::byte*> not_after;
  return not_after(bytes_.data(), part.data()) && not_after(part.data() + part.size(), bytes_.data() + bytes_.size());
}

void MappedFile::drop_pages(std::span<const std::byte> part) const {
  if (!holds(part)) return;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<size_t>(part.data() - bytes_.data());
  const size_t first = (offset + page - 1) / page * page;
  // The last page of the file belongs to a part that reaches the end of it.
  const size_t end = offset + part.size() == bytes_.size() ? bytes_.size() : (offset + part.size()) / page * page;
  if (first < end) ::madvise(const_cast<std::byte*>(bytes_.data() + first), end - first, MADV_DONTNEED);
}

std::string quoted(std::string_view name) {
  constexpr size_t kLongest = 80;
  std::string out = "\"";
  for (const char c : name.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\') {
      out += c;
    } else {
      static constexpr char kHex[] = "0123456789abcdef";
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  if (name.size() > kLongest) out += "...";
  return out + '"';
}

}  // namespace gristmill::weights
