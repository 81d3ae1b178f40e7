#pragma once
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace gristmill::text {

/// Writes a GGUF file of metadata only, key by key, and removes it at the end.
class GgufFixture {
 public:
  void string(const std::string& key, const std::string& value) {
    entry(key, 8);
    put_string(body_, value);
  }
  void boolean(const std::string& key, bool value) {
    entry(key, 7);
    body_.push_back(value ? 1 : 0);
  }
  void unsigned32(const std::string& key, uint32_t value) {
    entry(key, 4);
    put(body_, value);
  }
  void strings(const std::string& key, const std::vector<std::string>& values) {
    array(key, 8, values.size());
    for (const std::string& value : values) put_string(body_, value);
  }
  void integers(const std::string& key, const std::vector<int32_t>& values) {
    array(key, 5, values.size());
    for (const int32_t value : values) put(body_, value);
  }
  void numbers(const std::string& key, const std::vector<float>& values) {
    array(key, 6, values.size());
    for (const float value : values) put(body_, value);
  }

  std::string write() {
    char name[] = "/tmp/gristmill_gguf_XXXXXX";
    const int file = mkstemp(name);
    if (file >= 0) close(file);
    path_ = name;
    std::string all = "GGUF";
    put(all, uint32_t{3});
    put(all, uint64_t{0});
    put(all, entries_);
    all += body_;
    all.resize((all.size() + 31) / 32 * 32);
    std::ofstream(path_, std::ios::binary) << all;
    return path_;
  }
  GgufFixture() = default;
  GgufFixture(const GgufFixture&) = delete;
  GgufFixture& operator=(const GgufFixture&) = delete;
  ~GgufFixture() {
    if (!path_.empty()) std::remove(path_.c_str());
  }

 private:
  template <class T>
  static void put(std::string& out, T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out.append(bytes, sizeof(T));
  }
  static void put_string(std::string& out, const std::string& value) {
    put(out, static_cast<uint64_t>(value.size()));
    out += value;
  }
  void entry(const std::string& key, uint32_t type) {
    ++entries_;
    put_string(body_, key);
    put(body_, type);
  }
  void array(const std::string& key, uint32_t element, size_t count) {
    entry(key, 9);
    put(body_, element);
    put(body_, static_cast<uint64_t>(count));
  }

  std::string body_, path_;
  uint64_t entries_ = 0;
};

}  // namespace gristmill::text
