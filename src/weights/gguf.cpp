#include "weights/gguf.h"

#include <cstdio>
#include <cstring>
#include <map>

#include "base/error.h"
#include "weights/gguf_parse.h"

namespace gristmill::weights {
namespace {

constexpr int64_t kMostParts = 99999;  // five digits in the names of the parts

/// "-00001-of-00003.gguf"
std::string part_suffix(int64_t index, int64_t count) {
  char text[32];
  std::snprintf(text, sizeof text, "-%05d-of-%05d.gguf", static_cast<int>(index + 1), static_cast<int>(count));
  return text;
}

[[noreturn]] void fail(const GgufPart& part, std::string_view key, const std::string& what) {
  throw Error(cat(part.file->path(), ": key ", quoted(key), ": ", what));
}

const GgufKey& required(const GgufPart& part, std::string_view name) {
  const GgufKey* const key = find_key(part, name);
  if (key == nullptr) fail(part, name, "is missing");
  return *key;
}

std::string type_text(const GgufKey& key) {
  return key.type == GgufType::array ? cat("an array of ", name_of(key.element)) : std::string(name_of(key.type));
}

int64_t integer_of(const GgufPart& part, const GgufKey& key) {
  int64_t value = 0;
  if (key.type == GgufType::array || !read_integer(key.type, key.value.data(), &value))
    fail(part, key.name,
         key.type == GgufType::u64 ? "is out of range" : cat("is ", type_text(key), ", not an integer"));
  return value;
}

const GgufKey& array_of(const GgufPart& part, std::string_view name) {
  const GgufKey& key = required(part, name);
  if (key.type != GgufType::array) fail(part, name, cat("is ", type_text(key), ", not an array"));
  return key;
}

int64_t optional_integer(const GgufPart& part, std::string_view name, int64_t otherwise) {
  const GgufKey* const key = find_key(part, name);
  return key == nullptr ? otherwise : integer_of(part, *key);
}

/// All parts of the model that `path` belongs to, in order.
std::vector<GgufPart> open_parts(const std::string& path) {
  GgufPart opened = parse_gguf(path);
  const int64_t count = optional_integer(opened, "split.count", 1);
  std::vector<GgufPart> parts;
  if (count == 0 || count == 1) {
    parts.push_back(std::move(opened));
    return parts;
  }
  if (count < 0 || count > kMostParts) fail(opened, "split.count", cat(count, " parts are out of range"));
  const int64_t own = integer_of(opened, required(opened, "split.no"));
  if (own < 0 || own >= count) fail(opened, "split.no", cat("part ", own, " of ", count, " does not exist"));
  const std::string suffix = part_suffix(own, count);
  if (!path.ends_with(suffix))
    fail(opened, "split.no",
         cat("is part ", own + 1, " of ", count, ", whose name must end in ", suffix,
             "; give the parts their names back"));
  const std::string stem = path.substr(0, path.size() - suffix.size());

  int64_t tensors = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i == own) {
      parts.push_back(std::move(opened));  // NOLINT(bugprone-use-after-move): comes once
    } else {
      try {
        parts.push_back(parse_gguf(stem + part_suffix(i, count)));
      } catch (const Error& error) {
        throw Error(cat(error.what(), " (part ", i + 1, " of ", count, " of the model)"));
      }
    }
    const GgufPart& part = parts.back();
    const int64_t part_count = integer_of(part, required(part, "split.count"));
    const int64_t part_no = integer_of(part, required(part, "split.no"));
    if (part_count != count || part_no != i)
      fail(part, "split.no", cat("says part ", part_no, " of ", part_count, ", its name part ", i, " of ", count));
    tensors += static_cast<int64_t>(part.tensors.size());
  }
  const int64_t expected = optional_integer(parts.front(), "split.tensors.count", tensors);
  if (expected != tensors)
    fail(parts.front(), "split.tensors.count", cat("promises ", expected, " tensors, the parts hold ", tensors));
  return parts;
}

}  // namespace

struct GgufFile::Impl {
  std::string path;
  std::vector<GgufPart> parts;
  std::map<std::string_view, const TensorView*, std::less<>> tensors;

  const GgufPart& metadata() const { return parts.front(); }
};

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GgufFile::~GgufFile() = default;

std::shared_ptr<const GgufFile> GgufFile::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->parts = open_parts(path);
  for (const GgufPart& part : impl->parts)
    for (const TensorView& tensor : part.tensors)
      if (!impl->tensors.emplace(tensor.name, &tensor).second)
        throw Error(cat(part.file->path(), ": tensor ", quoted(tensor.name), ": is in another part of the model too"));
  return std::shared_ptr<const GgufFile>(new GgufFile(std::move(impl)));
}

std::string GgufFile::path() const {
  return impl_->path;
}

std::string GgufFile::identity() const {
  std::string all;
  for (const GgufPart& part : impl_->parts) all += cat("file ", part.file->identity(), "\n");
  return all;
}

bool GgufFile::contains(std::string_view name) const {
  return impl_->tensors.contains(name);
}

TensorView GgufFile::tensor(std::string_view name) const {
  const auto at = impl_->tensors.find(name);
  if (at == impl_->tensors.end()) throw Error(cat(impl_->path, ": tensor ", quoted(name), ": is missing"));
  return *at->second;
}

std::vector<std::string> GgufFile::names() const {
  std::vector<std::string> names;
  for (const GgufPart& part : impl_->parts)
    for (const TensorView& tensor : part.tensors) names.push_back(tensor.name);
  return names;
}

bool GgufFile::has(std::string_view key) const {
  return find_key(impl_->metadata(), key) != nullptr;
}

int64_t GgufFile::integer(std::string_view key, std::optional<int64_t> otherwise) const {
  if (otherwise && !has(key)) return *otherwise;
  return integer_of(impl_->metadata(), required(impl_->metadata(), key));
}

double GgufFile::number(std::string_view key, std::optional<double> otherwise) const {
  if (otherwise && !has(key)) return *otherwise;
  const GgufKey& found = required(impl_->metadata(), key);
  double value = 0;
  if (found.type == GgufType::array || !read_number(found.type, found.value.data(), &value))
    fail(impl_->metadata(), key, cat("is ", type_text(found), ", not a number"));
  return value;
}

bool GgufFile::boolean(std::string_view key, std::optional<bool> otherwise) const {
  if (otherwise && !has(key)) return *otherwise;
  const GgufKey& found = required(impl_->metadata(), key);
  if (found.type != GgufType::boolean) fail(impl_->metadata(), key, cat("is ", type_text(found), ", not a bool"));
  return integer_of(impl_->metadata(), found) != 0;
}

std::string_view GgufFile::string(std::string_view key) const {
  const GgufKey& found = required(impl_->metadata(), key);
  if (found.type != GgufType::string) fail(impl_->metadata(), key, cat("is ", type_text(found), ", not a string"));
  return {reinterpret_cast<const char*>(found.value.data()), found.value.size()};
}

std::string_view GgufFile::string(std::string_view key, std::string_view otherwise) const {
  return has(key) ? string(key) : otherwise;
}

std::vector<std::string_view> GgufFile::strings(std::string_view key) const {
  const GgufKey& found = array_of(impl_->metadata(), key);
  if (found.element != GgufType::string) fail(impl_->metadata(), key, cat("is ", type_text(found), ", not of strings"));
  std::vector<std::string_view> all;
  all.reserve(found.count);
  const std::byte* at = found.value.data();
  for (uint64_t i = 0; i < found.count; ++i) {
    uint64_t length = 0;
    std::memcpy(&length, at, sizeof length);
    all.emplace_back(reinterpret_cast<const char*>(at + sizeof length), length);
    at += sizeof length + length;
  }
  return all;
}

std::vector<int64_t> GgufFile::integers(std::string_view key) const {
  const GgufKey& found = array_of(impl_->metadata(), key);
  std::vector<int64_t> all(found.count);
  for (uint64_t i = 0; i < found.count; ++i)
    if (!read_integer(found.element, found.value.data() + i * size_of(found.element), &all[i]))
      fail(impl_->metadata(), key,
           found.element == GgufType::u64 ? cat("element ", i, " is out of range")
                                          : cat("is ", type_text(found), ", not of integers"));
  return all;
}

std::vector<float> GgufFile::numbers(std::string_view key) const {
  const GgufKey& found = array_of(impl_->metadata(), key);
  std::vector<float> all(found.count);
  for (uint64_t i = 0; i < found.count; ++i) {
    double value = 0;
    if (!read_number(found.element, found.value.data() + i * size_of(found.element), &value))
      fail(impl_->metadata(), key, cat("is ", type_text(found), ", not of numbers"));
    all[i] = static_cast<float>(value);
  }
  return all;
}

bool GgufFile::is_array(std::string_view key) const {
  const GgufKey* const found = find_key(impl_->metadata(), key);
  return found != nullptr && found->type == GgufType::array;
}

void GgufFile::drop_pages() const {
  for (const GgufPart& part : impl_->parts) part.file->drop_pages(part.file->bytes());
}

void GgufFile::drop_pages(std::span<const std::byte> bytes) const {
  for (const GgufPart& part : impl_->parts) part.file->drop_pages(bytes);
}

}  // namespace gristmill::weights
