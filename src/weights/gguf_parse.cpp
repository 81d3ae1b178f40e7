#include "weights/gguf_parse.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "weights/gguf_blocks.h"

namespace gristmill::weights {
namespace {

constexpr uint32_t kLastType = static_cast<uint32_t>(GgufType::f64);
constexpr size_t kLongestTensorName = 63;
constexpr uint32_t kMostDims = 4;

template <class T>
T load(const std::byte* bytes) {
  static_assert(std::endian::native == std::endian::little, "GGUF files are little endian");
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

/// Walks the header. `context` is what is being read, for messages.
class Cursor {
 public:
  explicit Cursor(const MappedFile& file) : file_(file), bytes_(file.bytes()) {}

  std::string context = "header";

  [[noreturn]] void fail(const std::string& what) const { throw Error(cat(file_.path(), ": ", context, ": ", what)); }

  size_t position() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  std::span<const std::byte> take(uint64_t count) {
    if (count > left())
      fail(cat("the file ends here (", count, " bytes needed at offset ", at_, ", ", left(),
               " left); it is truncated or corrupt"));
    const auto part = bytes_.subspan(at_, count);
    at_ += count;
    return part;
  }
  std::span<const std::byte> since(size_t start) const { return bytes_.subspan(start, at_ - start); }
  template <class T>
  T read() {
    return load<T>(take(sizeof(T)).data());
  }
  std::string_view read_string() {
    const auto length = read<uint64_t>();
    const auto part = take(length);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  GgufType read_type(const char* role) {
    const auto type = read<uint32_t>();
    if (type > kLastType) fail(cat("unknown ", role, " ", type));
    return static_cast<GgufType>(type);
  }

 private:
  const MappedFile& file_;
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

/// A count is believed only if the file has room for that many of the smallest entries.
void check_count(const Cursor& cursor, uint64_t count, size_t smallest, const char* what) {
  if (count > cursor.left() / smallest)
    cursor.fail(cat(count, " ", what, " do not fit into the ", cursor.left(),
                    " bytes that follow; the file is truncated or corrupt"));
}

struct Header {
  uint64_t tensors;
  uint64_t keys;
};

Header read_header(Cursor& cursor) {
  if (cursor.left() < 4 || std::memcmp(cursor.take(4).data(), "GGUF", 4) != 0)
    cursor.fail("is not a GGUF file (it does not start with \"GGUF\")");
  const auto version = cursor.read<uint32_t>();
  if (version == 1) cursor.fail("GGUF version 1 is not supported; convert the model again to version 3");
  if (version != 2 && version != 3) {
    if ((version & 0xffffu) == 0 && version != 0)
      cursor.fail("is a big-endian GGUF file, which is not supported; convert the model again for little-endian");
    cursor.fail(cat("GGUF version ", version, " is not known; versions 2 and 3 are supported"));
  }
  Header header{};
  header.tensors = cursor.read<uint64_t>();
  header.keys = cursor.read<uint64_t>();
  check_count(cursor, header.keys, 8 + 4 + 1, "keys");
  check_count(cursor, header.tensors, 8 + 4 + 8 + 4 + 8, "tensors");
  return header;
}

GgufKey read_key(Cursor& cursor) {
  cursor.context = "metadata";
  GgufKey key;
  key.name = cursor.read_string();
  cursor.context = cat("key ", quoted(key.name));
  key.type = cursor.read_type("value type");
  if (key.type == GgufType::string) {
    const std::string_view text = cursor.read_string();
    key.value = std::as_bytes(std::span(text));
  } else if (key.type != GgufType::array) {
    key.value = cursor.take(size_of(key.type));
  } else {
    key.element = cursor.read_type("element type");
    key.count = cursor.read<uint64_t>();
    if (key.element == GgufType::array) cursor.fail("arrays of arrays are not supported");
    const bool strings = key.element == GgufType::string;
    const size_t smallest = strings ? 8 : size_of(key.element);
    check_count(cursor, key.count, smallest, "array elements");
    if (strings) {
      const size_t start = cursor.position();
      for (uint64_t i = 0; i < key.count; ++i) cursor.read_string();
      key.value = cursor.since(start);
    } else {
      key.value = cursor.take(key.count * smallest);
    }
  }
  return key;
}

std::vector<GgufKey> read_keys(Cursor& cursor, uint64_t count) {
  std::vector<GgufKey> keys;
  for (uint64_t i = 0; i < count; ++i) keys.push_back(read_key(cursor));
  std::sort(keys.begin(), keys.end(), [](const GgufKey& a, const GgufKey& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(keys.begin(), keys.end(), [](const GgufKey& a, const GgufKey& b) { return a.name == b.name; });
  if (twice != keys.end()) {
    cursor.context = cat("key ", quoted(twice->name));
    cursor.fail("occurs twice");
  }
  return keys;
}

/// ggml's numbers of tensor types (GGUF v3); the message names those that exist but are not supported.
StorageType read_storage_type(Cursor& cursor) {
  const auto id = cursor.read<uint32_t>();
  switch (id) {
    case 0:
      return StorageType::f32;
    case 1:
      return StorageType::f16;
    case 2:
      return StorageType::q4_0;
    case 3:
      return StorageType::q4_1;
    case 6:
      return StorageType::q5_0;
    case 7:
      return StorageType::q5_1;
    case 8:
      return StorageType::q8_0;
    case 10:
      return StorageType::q2_k;
    case 11:
      return StorageType::q3_k;
    case 12:
      return StorageType::q4_k;
    case 13:
      return StorageType::q5_k;
    case 14:
      return StorageType::q6_k;
    case 20:
      return StorageType::iq4_nl;
    case 23:
      return StorageType::iq4_xs;
    case 24:
      return StorageType::i8;
    case 25:
      return StorageType::i16;
    case 26:
      return StorageType::i32;
    case 27:
      return StorageType::i64;
    case 28:
      return StorageType::f64;
    case 30:
      return StorageType::bf16;
    case 39:
      return StorageType::mxfp4;
    default:
      break;
  }
  static constexpr std::pair<uint32_t, const char*> kRefused[] = {
      {4, "Q4_2"},        {5, "Q4_3"},      {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"},    {17, "IQ2_XS"},
      {18, "IQ3_XXS"},    {19, "IQ1_S"},    {21, "IQ3_S"}, {22, "IQ2_S"}, {29, "IQ1_M"},      {31, "Q4_0_4_4"},
      {32, "Q4_0_4_8"},   {33, "Q4_0_8_8"}, {34, "TQ1_0"}, {35, "TQ2_0"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"},
      {38, "IQ4_NL_8_8"}, {40, "NVFP4"},    {41, "Q1_0"},  {42, "Q2_0"}};
  for (const auto& [refused, name] : kRefused)
    if (id == refused)
      cursor.fail(cat("type ", name,
                      " is not supported; use a file in Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, a K-quant, IQ4_NL, "
                      "IQ4_XS, MXFP4, F16, BF16 or F32"));
  cursor.fail(cat("unknown tensor type ", id));
}

struct TensorInfo {
  TensorView view;
  uint64_t offset = 0;  ///< from the start of the data
  uint64_t size = 0;
};

TensorInfo read_tensor_info(Cursor& cursor, uint64_t alignment) {
  cursor.context = "tensors";
  const std::string_view name = cursor.read_string();
  cursor.context = cat("tensor ", quoted(name));
  if (name.empty() || name.size() > kLongestTensorName)
    cursor.fail(cat("a name of ", name.size(), " bytes; 1 to ", kLongestTensorName, " are allowed"));
  TensorInfo info;
  info.view.name = name;
  const auto dims = cursor.read<uint32_t>();
  if (dims < 1 || dims > kMostDims) cursor.fail(cat(dims, " dimensions; 1 to ", kMostDims, " are allowed"));
  info.view.shape.resize(dims);
  uint64_t elements = 1;
  for (uint32_t i = 0; i < dims; ++i) {  // the file has the fastest dimension first
    const auto dim = cursor.read<uint64_t>();
    constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
    if (dim < 1 || dim > kMost / elements) cursor.fail(cat("dimension ", i, " of ", dim, " is out of range"));
    elements *= dim;
    info.view.shape[dims - 1 - i] = static_cast<int64_t>(dim);
  }
  info.view.type = read_storage_type(cursor);
  const BlockLayout layout = layout_of(info.view.type);
  if (info.view.columns() % layout.elements != 0)
    cursor.fail(cat(info.view.columns(), " columns are not a multiple of the ", layout.elements, " of a ", layout.name,
                    " block"));
  info.offset = cursor.read<uint64_t>();
  if (info.offset % alignment != 0)
    cursor.fail(cat("offset ", info.offset, " is not a multiple of the alignment ", alignment));
  const uint64_t blocks = elements / static_cast<uint64_t>(layout.elements);
  if (blocks > std::numeric_limits<uint64_t>::max() / static_cast<uint64_t>(layout.bytes))
    cursor.fail("is larger than any file");
  info.size = blocks * static_cast<uint64_t>(layout.bytes);
  return info;
}

uint64_t alignment_of(Cursor& cursor, const GgufPart& part) {
  const GgufKey* const key = find_key(part, "general.alignment");
  if (key == nullptr) return 32;
  cursor.context = "key \"general.alignment\"";
  int64_t value = 0;
  if (key->type == GgufType::array || !read_integer(key->type, key->value.data(), &value))
    cursor.fail(cat("is of type ", name_of(key->type), ", not an integer"));
  if (value < 1 || !std::has_single_bit(static_cast<uint64_t>(value)))
    cursor.fail(cat("must be a power of two, not ", value));
  return static_cast<uint64_t>(value);
}

void check_tensors(Cursor& cursor, const std::vector<TensorInfo>& infos, uint64_t room) {
  std::vector<size_t> order(infos.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto named = [&](size_t i) { cursor.context = cat("tensor ", quoted(infos[i].view.name)); };

  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return infos[a].view.name < infos[b].view.name; });
  for (size_t i = 1; i < order.size(); ++i)
    if (infos[order[i]].view.name == infos[order[i - 1]].view.name) {
      named(order[i]);
      cursor.fail("occurs twice");
    }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return infos[a].offset < infos[b].offset; });
  for (size_t i = 0; i < order.size(); ++i) {
    const TensorInfo& info = infos[order[i]];
    named(order[i]);
    if (info.offset > room || info.size > room - info.offset)
      cursor.fail(cat("its ", info.size, " bytes at data offset ", info.offset,
                      " reach beyond the end of the file; it is truncated or corrupt"));
    if (i == 0) continue;
    const TensorInfo& before = infos[order[i - 1]];
    if (before.offset + before.size > info.offset) cursor.fail(cat("overlaps tensor ", quoted(before.view.name)));
  }
}

}  // namespace

const char* name_of(GgufType type) {
  static constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

size_t size_of(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    case GgufType::string:
    case GgufType::array:
      break;
  }
  return 0;
}

bool read_integer(GgufType type, const std::byte* bytes, int64_t* value) {
  switch (type) {
    case GgufType::u8:
      *value = load<uint8_t>(bytes);
      return true;
    case GgufType::i8:
      *value = int64_t{load<int8_t>(bytes)};  // NOLINT(bugprone-signed-char-misuse): a number, not a character
      return true;
    case GgufType::u16:
      *value = load<uint16_t>(bytes);
      return true;
    case GgufType::i16:
      *value = load<int16_t>(bytes);
      return true;
    case GgufType::u32:
      *value = load<uint32_t>(bytes);
      return true;
    case GgufType::i32:
      *value = load<int32_t>(bytes);
      return true;
    case GgufType::i64:
      *value = load<int64_t>(bytes);
      return true;
    case GgufType::boolean:
      *value = load<uint8_t>(bytes) != 0 ? 1 : 0;
      return true;
    case GgufType::u64: {
      const auto wide = load<uint64_t>(bytes);
      if (wide > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
      *value = static_cast<int64_t>(wide);
      return true;
    }
    case GgufType::f32:
    case GgufType::f64:
    case GgufType::string:
    case GgufType::array:
      break;
  }
  return false;
}

bool read_number(GgufType type, const std::byte* bytes, double* value) {
  if (type == GgufType::f32) {
    *value = static_cast<double>(load<float>(bytes));
    return true;
  }
  if (type == GgufType::f64) {
    *value = load<double>(bytes);
    return true;
  }
  int64_t integer = 0;
  if (type == GgufType::boolean || !read_integer(type, bytes, &integer)) return false;
  *value = static_cast<double>(integer);
  return true;
}

const GgufKey* find_key(const GgufPart& part, std::string_view name) {
  const auto at = std::lower_bound(part.keys.begin(), part.keys.end(), name,
                                   [](const GgufKey& key, std::string_view wanted) { return key.name < wanted; });
  return at != part.keys.end() && at->name == name ? &*at : nullptr;
}

GgufPart parse_gguf(const std::string& path) {
  GgufPart part;
  part.file = std::make_unique<MappedFile>(path);
  Cursor cursor(*part.file);
  const Header header = read_header(cursor);
  part.keys = read_keys(cursor, header.keys);
  const uint64_t alignment = alignment_of(cursor, part);
  std::vector<TensorInfo> infos;
  for (uint64_t i = 0; i < header.tensors; ++i) infos.push_back(read_tensor_info(cursor, alignment));

  const std::span<const std::byte> bytes = part.file->bytes();
  const uint64_t header_end = cursor.position();
  // A file of metadata alone may end before its padding does.
  const uint64_t padding = (alignment - header_end % alignment) % alignment;
  const uint64_t data_start = padding > bytes.size() - header_end ? bytes.size() : header_end + padding;
  check_tensors(cursor, infos, bytes.size() - data_start);
  for (TensorInfo& info : infos) {
    info.view.bytes = bytes.subspan(data_start + info.offset, info.size);
    part.tensors.push_back(std::move(info.view));
  }
  return part;
}

}  // namespace gristmill::weights
