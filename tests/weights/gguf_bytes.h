#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace gristmill::testing {

/// Bytes of a GGUF file, written field by field so that a test can get any of them wrong.
struct GgufBytes {
  std::string bytes;

  template <class T>
  GgufBytes& put(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof value);
    bytes.append(raw, sizeof value);
    return *this;
  }
  GgufBytes& text(std::string_view value) {
    put<uint64_t>(value.size());
    bytes += value;
    return *this;
  }
  GgufBytes& header(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    bytes += "GGUF";
    return put(version).put(tensors).put(keys);
  }
  template <class T>
  GgufBytes& key(std::string_view name, uint32_t type, T value) {
    return text(name).put(type).put(value);
  }
  GgufBytes& string_key(std::string_view name, std::string_view value) {
    return text(name).put<uint32_t>(8).text(value);
  }
  GgufBytes& array_key(std::string_view name, uint32_t element, uint64_t count) {
    return text(name).put<uint32_t>(9).put(element).put(count);
  }
  GgufBytes& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    text(name).put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) put(dim);
    return put(type).put(offset);
  }
  /// Pads to the alignment and adds `size` bytes of data.
  GgufBytes& data(size_t size, size_t alignment = 32) {
    bytes.append((alignment - bytes.size() % alignment) % alignment, '\0');
    for (size_t i = 0; i < size; ++i) bytes += static_cast<char>(i * 37 + 11);
    return *this;
  }
};

/// A folder in memory where there is one (some tests write thousands of files), removed with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const std::filesystem::path memory = "/dev/shm";
    const std::filesystem::path parent =
        std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
    std::string pattern = (parent / "gristmill-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::filesystem::filesystem_error("mkdtemp", std::error_code());
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string write(const std::string& name, std::string_view bytes) const {
    const std::string path = (path_ / name).string();
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
  }
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// Sets every byte behind the header of a safetensors file to 0xff: all its floats become not-a-number.
inline void fill_with_nan(const std::string& path) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  uint64_t header = 0;
  for (int byte = 0; byte < 8; ++byte) header |= static_cast<uint64_t>(file.get() & 0xff) << (8 * byte);
  const uint64_t begin = 8 + header, size = std::filesystem::file_size(path);
  file.seekp(static_cast<std::streamoff>(begin));
  const std::string ones(size - begin, '\xff');
  file.write(ones.data(), static_cast<std::streamsize>(ones.size()));
}

/// The message of the Error that `call` throws; empty when it throws none.
template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace gristmill::testing
