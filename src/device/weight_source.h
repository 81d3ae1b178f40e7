#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace gristmill::device {

/// What the numbers of a weight are once its file format is forgotten. Every format of QuantScheme becomes one of
/// these, and a back end packs each for its instruction set.
enum class ComputeClass : uint8_t {
  f32,
  f16,
  bf16,
  i4_group,  ///< codes 0..15; w = scale_g * (code - zero) + min_g
  i8_group,  ///< codes -128..127; w = scale_g * code + min_g
  // The arithmetic of msmodelslim's W8A8 and W4A8 (docs/architecture.md, "Numbers"): float32 scales, activations
  // quantized to int8 per token, or with numbers known beforehand (StaticInput).
  i8_channel,  ///< codes -128..127; w = scale * code, one scale for a row, or for a group of its columns
  i4_channel,  ///< codes -8..7, likewise
  i8_float,    ///< codes -128..127, w = scale * code, one scale for a row; activations stay float (W8A16)
  f8_float,    ///< FP8 E4M3 codes, w = scale * code, one scale for a row, or for a group of its columns; likewise
};

constexpr const char* name_of(ComputeClass cls) {
  switch (cls) {
    case ComputeClass::f32:
      return "f32";
    case ComputeClass::f16:
      return "f16";
    case ComputeClass::bf16:
      return "bf16";
    case ComputeClass::i4_group:
      return "i4_group";
    case ComputeClass::i8_group:
      return "i8_group";
    case ComputeClass::i8_channel:
      return "i8_channel";
    case ComputeClass::i4_channel:
      return "i4_channel";
    case ComputeClass::i8_float:
      return "i8_float";
    case ComputeClass::f8_float:
      return "f8_float";
  }
  return "?";
}

/// Whether codes with a scale per row or group of float32 are multiplied by codes of the activations.
constexpr bool is_channel_class(ComputeClass cls) {
  return cls == ComputeClass::i8_channel || cls == ComputeClass::i4_channel;
}

/// Whether bytes with a scale per row or group of float32 are multiplied by activations that stay float.
constexpr bool is_byte_class(ComputeClass cls) {
  return cls == ComputeClass::i8_float || cls == ComputeClass::f8_float;
}

/// Activations x are quantized as clamp(round(x / scale + offset), -128, 127), ties to even.
struct StaticInput {
  float scale = 1;
  float offset = 0;  ///< whole, -128..127
  bool operator==(const StaticInput&) const = default;
};

struct Encoding {
  ComputeClass cls = ComputeClass::f32;
  int group = 0;         ///< columns that share a scale; 0 for the float classes and for one scale per row
  int zero = 0;          ///< i4_group: the code that stands for 0 (8 for Q4_0, 0 for Q4_1)
  bool has_min = false;  ///< a minimum per group is added
  std::optional<StaticInput> input{};  ///< i8_channel with one scale per row; then y = (sum + addend) * scale, where
                                       ///< the scale has the input's in it and the addend has bias and offset
  bool operator==(const Encoding&) const = default;
};

/// Scales of a row.
inline int64_t scales_of_row(const Encoding& encoding, int64_t columns) {
  return encoding.group == 0 ? 1 : (columns + encoding.group - 1) / encoding.group;
}

/// Room for the codes of some rows, given by the caller of WeightSource::read_codes.
struct CodeRows {
  uint8_t* codes = nullptr;         ///< [rows][columns]; but for i4_group and f8_float the bits of an int8
  uint16_t* scales = nullptr;       ///< [rows][columns / group], binary16; of the group classes
  uint16_t* mins = nullptr;         ///< the same shape; only when has_min
  float* channel_scales = nullptr;  ///< [rows][scales_of_row()]; of the channel and byte classes
  int32_t* addends = nullptr;       ///< [rows]; only with a static input

  /// The same room from another row on.
  CodeRows from(int64_t row, int64_t columns, const Encoding& encoding) const {
    const auto at = [](auto* base, int64_t offset) { return base == nullptr ? nullptr : base + offset; };
    const int64_t count = scales_of_row(encoding, columns);
    return {at(codes, row * columns), at(scales, row * count), at(mins, row * count), at(channel_scales, row * count),
            at(addends, row)};
  }
};

/// A weight matrix on its way into a back end: rows (outputs) x columns (inputs), read by rows. A vector (norm weight,
/// bias) has one row. Reading is thread safe and does not fail: everything was checked when the source was made.
class WeightSource {
 public:
  WeightSource(std::string name, int64_t rows, int64_t columns, Encoding encoding, size_t file_bytes)
      : name_(std::move(name)), rows_(rows), columns_(columns), encoding_(encoding), file_bytes_(file_bytes) {}
  virtual ~WeightSource() = default;

  const std::string& name() const { return name_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  const Encoding& encoding() const { return encoding_; }
  size_t file_bytes() const { return file_bytes_; }

  /// The exact values of rows [first, first + count) as float32, [count][columns].
  virtual void read_f32(int64_t first, int64_t count, float* out) const = 0;
  /// The 16-bit patterns of f16 and bf16 weights, [count][columns]; only for those classes.
  virtual void read_16(int64_t first, int64_t count, uint16_t* out) const = 0;
  /// Codes and what belongs to them; not for the float classes.
  virtual void read_codes(int64_t first, int64_t count, const CodeRows& out) const = 0;
  /// Says that the rows will not be read again, so that file pages may be dropped.
  virtual void release() const {}
  /// The same of rows [first, first + count) alone; a weight whose rows do not lie together waits for release().
  virtual void release_rows(int64_t first, int64_t count) const {
    static_cast<void>(first);
    static_cast<void>(count);
  }

 private:
  std::string name_;
  int64_t rows_, columns_;
  Encoding encoding_;
  size_t file_bytes_;
};

}  // namespace gristmill::device
