#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor.h"
#include "weights/mapped_file.h"

namespace gristmill::weights {

/// GGUF's types of metadata values.
enum class GgufType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
const char* name_of(GgufType type);

/// One key of the metadata. `value` are its bytes in the file: the scalar; a string's characters; an array's elements,
/// strings each behind their 64-bit length.
struct GgufKey {
  std::string_view name;
  GgufType type = GgufType::u8;
  GgufType element = GgufType::u8;  ///< of an array
  uint64_t count = 1;               ///< of an array
  std::span<const std::byte> value;
};

/// One file with its metadata and tensors, all of them views into the mapping and known to lie inside it.
struct GgufPart {
  std::unique_ptr<MappedFile> file;
  std::vector<GgufKey> keys;        ///< sorted by name
  std::vector<TensorView> tensors;  ///< in the file's order
};

/// Reads and checks everything but the tensors' contents: counts, lengths, types, offsets, duplicates, overlaps. Throws
/// Error naming the file and the key or tensor. Allocates no more than a small multiple of the bytes that it has read.
GgufPart parse_gguf(const std::string& path);

/// The key of that name, or null.
const GgufKey* find_key(const GgufPart& part, std::string_view name);

/// An integer or bool scalar or element at `bytes` of a checked key.
/// Returns false when the type is no integer or the value does not fit.
bool read_integer(GgufType type, const std::byte* bytes, int64_t* value);
/// A float or integer, widened.
bool read_number(GgufType type, const std::byte* bytes, double* value);
/// Bytes of one value of a fixed-size type; 0 for strings and arrays.
size_t size_of(GgufType type);

}  // namespace gristmill::weights
