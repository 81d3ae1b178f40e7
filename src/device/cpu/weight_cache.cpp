#include "device/cpu/weight_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "base/log.h"

namespace gristmill::device::cpu {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".weights", kUnfinished = ".weights.part";
constexpr size_t kNameDigits = 32;
// What is always left free on the disk: a cache shall not be what fills it.
constexpr uint64_t kLeaveFree = 1ULL << 30;
// Bytes between two waits for the disk: dirty pages stay few, and a writer that is told to stop does so soon.
constexpr size_t kSyncBytes = 64 << 20;

std::string path_of(const WeightCacheOptions& options, const std::string& key) {
  return (fs::path(options.directory) / (digest(key) + std::string(kEnding))).string();
}

/// Whether a file is one of ours: the folder may hold others.
bool is_named(const fs::path& path, std::string_view ending) {
  const std::string name = path.filename().string();
  return name.size() == kNameDigits + ending.size() && name.ends_with(ending) &&
         name.find_first_not_of("0123456789abcdef") == kNameDigits;
}

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw Error(cat(path, ": ", what, ": ", std::strerror(errno)));
}

/// A file under its unfinished name, locked for as long as it is open.
class UnfinishedFile {
 public:
  explicit UnfinishedFile(std::string path) : path_(std::move(path)) {
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (file_ < 0) fail(path_, "cannot be written");
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0) return;
    // Between opening and locking another process may have finished the file, or removed it as left behind.
    struct stat open_one = {}, named = {};
    locked_ = ::fstat(file_, &open_one) == 0 && ::stat(path_.c_str(), &named) == 0 && open_one.st_ino == named.st_ino &&
              open_one.st_dev == named.st_dev;
  }
  ~UnfinishedFile() {
    if (locked_ && !finished_) ::unlink(path_.c_str());
    ::close(file_);
  }
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  /// False: another process writes it, or just has.
  bool locked() const { return locked_; }
  int descriptor() const { return file_; }
  void finish(const std::string& path) {
    if (::fsync(file_) != 0) fail(path_, "cannot be written");
    if (::rename(path_.c_str(), path.c_str()) != 0) fail(path_, "cannot be renamed");
    finished_ = true;
    const int folder = ::open(fs::path(path).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
      ::fsync(folder);
      ::close(folder);
    }
  }

 private:
  std::string path_;
  int file_ = -1;
  bool locked_ = false, finished_ = false;
};

void remove_left_behind(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (!is_named(at->path(), kUnfinished)) continue;
    try {
      UnfinishedFile(at->path().string());  // is removed again if nobody else holds it
    } catch (const Error&) {
      continue;  // somebody else's
    }
  }
}

/// Removes the least recently used files until `needed` more bytes keep the folder within its size and fit the disk.
void make_room(const WeightCacheOptions& options, uint64_t needed) {
  struct Kept {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<Kept> files;
  uint64_t total = 0;
  std::error_code error;
  for (fs::directory_iterator at(options.directory, error), end; !error && at != end; at.increment(error)) {
    std::error_code time_error, size_error;
    if (!is_named(at->path(), kEnding)) continue;
    files.push_back({at->last_write_time(time_error), at->file_size(size_error), at->path()});
    if (time_error || size_error) {
      files.pop_back();
    } else {
      total += files.back().bytes;
    }
  }
  std::sort(files.begin(), files.end(), [](const Kept& a, const Kept& b) { return a.used < b.used; });
  const auto free_bytes = [&] {
    struct statvfs disk = {};
    if (::statvfs(options.directory.c_str(), &disk) != 0) fail(options.directory, "cannot be read");
    return static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  };
  for (const Kept& file : files) {
    if (total + needed <= options.most_bytes && free_bytes() >= needed + kLeaveFree) return;
    LOG_INFO("Weight cache: ", file.path.string(), " makes room for others");
    fs::remove(file.path, error);
    total -= file.bytes;
  }
  if (const uint64_t left = free_bytes(); left < needed + kLeaveFree)
    throw Error(cat(options.directory, ": ", needed, " bytes are needed and ", kLeaveFree,
                    " are to stay free, but the disk has ", left));
}

void write_all(const std::string& path, int file, std::span<const std::byte> bytes, size_t offset) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail(path, "cannot be written");
    bytes = bytes.subspan(static_cast<size_t>(put));
    offset += static_cast<size_t>(put);
  }
}

/// False when told to stop.
bool write_weights(const std::string& path, int file, const std::string& key, std::span<const std::byte> weights,
                   const std::atomic<bool>& stop) {
  const size_t start = cache_payload_offset(key, weights.size());
  if (::ftruncate(file, 0) != 0) fail(path, "cannot be written");  // what a killed writer left
  // Room is taken at once where the file system can: otherwise a full disk shows later.
  if (::fallocate(file, 0, 0, static_cast<off_t>(start + weights.size())) != 0 && errno != EOPNOTSUPP &&
      errno != ENOSYS && errno != EINTR)
    fail(path, "cannot be written");
  std::vector<uint64_t> checksums;
  for (size_t at = 0, synced = 0; at < weights.size(); at += kCacheChunk) {
    if (stop.load(std::memory_order_relaxed)) return false;
    const std::span<const std::byte> chunk = weights.subspan(at, std::min(kCacheChunk, weights.size() - at));
    checksums.push_back(chunk_checksum(chunk, at / kCacheChunk));
    write_all(path, file, chunk, start + at);
    if (at + chunk.size() - synced < kSyncBytes) continue;
    ::sync_file_range(file, static_cast<off_t>(start + synced), static_cast<off_t>(at + chunk.size() - synced),
                      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    synced = at + chunk.size();
  }
  write_all(path, file, cache_header(key, weights.size(), checksums), 0);
  return true;
}

}  // namespace

std::unique_ptr<CachedWeights> find_cached_weights(const WeightCacheOptions& options, const std::string& key,
                                                   size_t payload_bytes) {
  const std::string path = path_of(options, key);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    if (errno != ENOENT) LOG_WARNING("Weight cache: ", path, ": cannot be opened: ", std::strerror(errno));
    return nullptr;
  }
  try {
    auto found = std::make_unique<CachedWeights>(path, file, key, payload_bytes);
    ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now; without the right to say so it ages
    return found;
  } catch (const Error& error) {
    drop_cached_weights(path, error.what());
    return nullptr;
  }
}

void drop_cached_weights(const std::string& path, const std::string& why) {
  LOG_WARNING("Weight cache: ", path, " is removed: ", why);
  ::unlink(path.c_str());
}

void keep_weights(const WeightCacheOptions& options, const std::string& key, std::span<const std::byte> weights,
                  const std::atomic<bool>& stop) {
  const std::string path = path_of(options, key);
  const uint64_t needed = cache_payload_offset(key, weights.size()) + weights.size();
  if (needed > options.most_bytes) {
    LOG_INFO("Weight cache: the packed weights take ", needed, " bytes and are not kept; --weight-cache-size is ",
             options.most_bytes);
    return;
  }
  try {
    std::error_code error;
    fs::create_directories(options.directory, error);
    if (error) throw Error(cat(options.directory, ": cannot be made: ", error.message()));
    remove_left_behind(options.directory);
    UnfinishedFile file(path + std::string(kUnfinished.substr(kEnding.size())));
    if (!file.locked() || ::access(path.c_str(), F_OK) == 0) return;
    make_room(options, needed);
    if (!write_weights(path, file.descriptor(), key, weights, stop)) return;
    file.finish(path);
    LOG_INFO("Weight cache: the packed weights are kept in ", path);
  } catch (const Error& error) {
    LOG_WARNING("Weight cache: the packed weights are not kept: ", error.what(),
                "; name another folder with --weight-cache-dir, or none with --no-weight-cache");
  }
}

void run_in_background() {
  // A tenth of what a serving thread gets where there is no core to spare: leaving it what others leave (SCHED_IDLE)
  // would mean never on a machine that is always busy.
  constexpr int kNice = 10;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNice);
  constexpr int kWhoProcess = 1, kIdleClass = 3 << 13;  // linux/ioprio.h
  ::syscall(SYS_ioprio_set, kWhoProcess, 0, kIdleClass);
}

}  // namespace gristmill::device::cpu
