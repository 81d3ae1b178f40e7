#include "weights/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "weights/gguf_blocks.h"
#include "weights/mapped_file.h"

namespace gristmill::weights {
namespace {

constexpr uint64_t kLongestHeader = 100'000'000;  // the format's own limit

StorageType storage_type(const JsonReader& reader, std::string_view dtype) {
  static constexpr std::pair<std::string_view, StorageType> kTypes[] = {
      {"F32", StorageType::f32},      {"F16", StorageType::f16},         {"BF16", StorageType::bf16},
      {"F64", StorageType::f64},      {"I8", StorageType::i8},           {"U8", StorageType::u8},
      {"I16", StorageType::i16},      {"I32", StorageType::i32},         {"I64", StorageType::i64},
      {"BOOL", StorageType::boolean}, {"F8_E4M3", StorageType::fp8_e4m3}};
  for (const auto& [name, type] : kTypes)
    if (name == dtype) return type;
  reader.fail(cat("dtype ", quoted(dtype), " is not supported"));
}

std::vector<uint64_t> read_integers(JsonReader& reader) {
  std::vector<uint64_t> all;
  reader.array([&] { all.push_back(reader.whole_number()); });
  return all;
}

struct Entry {
  TensorView view;
  uint64_t begin = 0;
  uint64_t end = 0;
};

Entry read_entry(JsonReader& reader, const std::string& name) {
  reader.set_context(cat("tensor ", quoted(name)));
  Entry entry;
  entry.view.name = name;
  std::optional<StorageType> type;
  std::optional<std::vector<uint64_t>> shape, offsets;
  reader.object([&](const std::string& key) {
    if (key == "dtype" && !type) {
      type = storage_type(reader, reader.string());
    } else if (key == "shape" && !shape) {
      shape = read_integers(reader);
    } else if (key == "data_offsets" && !offsets) {
      offsets = read_integers(reader);
    } else {
      reader.fail(cat("unexpected member ", quoted(key)));
    }
  });
  if (!type || !shape || !offsets) reader.fail("dtype, shape and data_offsets are all needed");
  if (offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) reader.fail("data_offsets must be a begin and an end");
  entry.view.type = *type;
  entry.begin = (*offsets)[0];
  entry.end = (*offsets)[1];
  uint64_t elements = 1;
  uint64_t bound = 1;  // the product without zeros, since any dimensions may stand beside one
  for (const uint64_t dim : *shape) {
    constexpr uint64_t kMost = uint64_t{1} << 60;
    if (dim > kMost / bound) reader.fail("the shape is out of range");
    bound *= std::max<uint64_t>(dim, 1);
    elements *= dim;
    entry.view.shape.push_back(static_cast<int64_t>(dim));
  }
  const auto size = static_cast<uint64_t>(layout_of(*type).bytes);
  if (elements * size != entry.end - entry.begin)
    reader.fail(cat("its shape asks for ", elements, " elements of ", size, " bytes, its offsets hold ",
                    entry.end - entry.begin, " bytes"));
  reader.set_context("");
  return entry;
}

}  // namespace

struct SafetensorsFile::Impl {
  explicit Impl(const std::string& path) : file(path) {}

  MappedFile file;
  std::map<std::string, TensorView, std::less<>> tensors;
  std::map<std::string, std::string, std::less<>> metadata;
};

SafetensorsFile::SafetensorsFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsFile::~SafetensorsFile() = default;

std::shared_ptr<const SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  auto impl = std::make_unique<Impl>(path);
  const std::span<const std::byte> bytes = impl->file.bytes();
  uint64_t header_size = 0;
  if (bytes.size() < sizeof header_size) throw Error(cat(path, ": is too short for a safetensors file"));
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  if (header_size > kLongestHeader || header_size > bytes.size() - sizeof header_size)
    throw Error(
        cat(path, ": a header of ", header_size, " bytes does not fit; the file is truncated or no safetensors"));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data() + sizeof header_size), header_size);
  const std::span<const std::byte> data = bytes.subspan(sizeof header_size + header_size);

  JsonReader reader(path, text);
  std::vector<Entry> entries;
  bool has_metadata = false;
  reader.object([&](const std::string& name) {
    if (name != "__metadata__") {
      entries.push_back(read_entry(reader, name));
      return;
    }
    if (has_metadata) reader.fail("__metadata__ occurs twice");
    has_metadata = true;
    reader.object([&](const std::string& key) {
      if (!impl->metadata.emplace(key, reader.string()).second) reader.fail(cat(quoted(key), " occurs twice"));
    });
  });
  reader.expect_end();

  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  uint64_t end = 0;
  for (Entry& entry : entries) {
    reader.set_context(cat("tensor ", quoted(entry.view.name)));
    if (entry.begin != end) reader.fail(cat("begins at ", entry.begin, " where the tensor before ends at ", end));
    if (entry.end > data.size()) reader.fail("reaches beyond the end of the file; it is truncated or corrupt");
    end = entry.end;
    entry.view.bytes = data.subspan(entry.begin, entry.end - entry.begin);
    const std::string name = entry.view.name;
    if (!impl->tensors.emplace(name, std::move(entry.view)).second) reader.fail("occurs twice");
  }
  if (end != data.size())
    throw Error(cat(path, ": ", data.size() - end, " bytes behind the last tensor belong to none"));
  return std::shared_ptr<const SafetensorsFile>(new SafetensorsFile(std::move(impl)));
}

std::string SafetensorsFile::path() const {
  return impl_->file.path();
}

bool SafetensorsFile::contains(std::string_view name) const {
  return impl_->tensors.contains(name);
}

TensorView SafetensorsFile::tensor(std::string_view name) const {
  const auto at = impl_->tensors.find(name);
  if (at == impl_->tensors.end()) throw Error(cat(path(), ": tensor ", quoted(name), ": is missing"));
  return at->second;
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : impl_->tensors) names.push_back(name);
  return names;
}

std::string SafetensorsFile::identity() const {
  return cat("file ", impl_->file.identity(), "\n");
}

void SafetensorsFile::drop_pages(std::span<const std::byte> bytes) const {
  impl_->file.drop_pages(bytes);
}

const std::map<std::string, std::string, std::less<>>& SafetensorsFile::metadata() const {
  return impl_->metadata;
}

}  // namespace gristmill::weights
