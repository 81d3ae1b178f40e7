#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "device/weight_source.h"

namespace gristmill::device::cpu {

/// Columns of a scale group, of weights and of quantized activations.
inline constexpr int kGroup = 32;
/// Outputs of a panel of the float classes.
inline constexpr int kFloatPanel = 32;

/// Raised with every change of what the bytes of packed weights are: those kept on disk by another version are not
/// read.
inline constexpr int kPackingVersion = 2;

/// A weight matrix in the order in which the kernels read it: panels of `panel` outputs, the last one padded with
/// zeros.
///
/// i4_group, i8_group: a panel is a list of blocks, one per 32 inputs: codes, then `panel` scales (binary16), then with
/// has_min `panel` minima. Codes of i8: [8 steps][panel][4 inputs] bytes; of i4: [4][panel][4] bytes, low nibble =
/// steps 0..3, high nibble = steps 4..7. f32, f16: [inputs][32]. bf16: [inputs / 2, rounded up][32][2]. i8_float,
/// f8_float: [inputs, rounded up to even][32] bytes, then float32 scales [groups][32], those of f8_float times 256, as
/// the kernels' codes are 2^-8 of E4M3.
///
/// i8_channel, i4_channel: blocks of codes as above without scales, the last one filled up with codes of 0 (i4 codes
/// are stored with 8 added), then float32 scales [groups][panel]; with one scale per output, int32 addends [panel]
/// follow, which the sums of products start from.
struct PackedWeight {
  ComputeClass cls = ComputeClass::f32;
  bool has_min = false;
  bool biased = false;       ///< of 8-bit codes: 128 is added to them, and they are unsigned then
  bool complements = false;  ///< i8_channel: the addends hold the sum of the sizes of negative codes besides
  float zero = 0;
  int panel = kFloatPanel;
  int64_t outputs = 0;
  int64_t inputs = 0;
  int group = 0;                     ///< channel and byte classes: inputs that share a scale; 0: all
  std::optional<StaticInput> input;  ///< channel classes: how activations are quantized, if known beforehand
  size_t block_bytes = 0;            ///< of one block of codes
  size_t panel_bytes = 0;
  size_t panel_stride = 0;  ///< from panel to panel: more than panel_bytes where two matrices take turns
  const std::byte* data = nullptr;

  /// Codes in groups of 32 with scales beside them; activations are quantized per 32 inputs.
  bool coded() const { return cls == ComputeClass::i4_group || cls == ComputeClass::i8_group; }
  /// Codes with float32 scales behind them; activations are quantized per row.
  bool channel() const { return is_channel_class(cls); }
  int64_t blocks() const { return (inputs + kGroup - 1) / kGroup; }
  int64_t scale_groups() const { return group == 0 ? 1 : (inputs + group - 1) / group; }
  /// Bytes with float32 scales behind them; activations stay float.
  bool bytes_of_float() const { return is_byte_class(cls); }
  /// Of a channel or byte class: scales of a panel, and of the former its addends.
  const float* scales(const std::byte* panel_start) const {
    const size_t code_bytes = channel() ? static_cast<size_t>(blocks()) * block_bytes
                                        : static_cast<size_t>((inputs + 1) / 2 * 2) * kFloatPanel;
    return reinterpret_cast<const float*>(panel_start + code_bytes);
  }
  const int32_t* addends(const std::byte* panel_start) const {
    return reinterpret_cast<const int32_t*>(scales(panel_start) + scale_groups() * panel);
  }
  int64_t panels() const { return (outputs + panel - 1) / panel; }
  size_t bytes() const { return static_cast<size_t>(panels()) * panel_bytes; }
  const std::byte* panel_data(int64_t index) const { return data + static_cast<size_t>(index) * panel_stride; }
};

/// Code of output `column` of a panel for input k; of a channel class.
inline int channel_code(const PackedWeight& w, const std::byte* panel, int column, int64_t k) {
  const auto* const block = reinterpret_cast<const uint8_t*>(panel + static_cast<size_t>(k / kGroup) * w.block_bytes);
  const auto inside = static_cast<int>(k % kGroup);
  if (w.cls == ComputeClass::i8_channel)
    return static_cast<int8_t>(block[(inside / 4 * w.panel + column) * 4 + inside % 4] ^ (w.biased ? 0x80 : 0));
  constexpr int kHalf = kGroup / 2;
  const uint8_t byte = block[(inside % kHalf / 4 * w.panel + column) * 4 + inside % 4];
  return (inside < kHalf ? byte & 0x0f : byte >> 4) - 8;
}

struct Kernels;

/// The form that `source` takes for these kernels; `exact` reads every class as f32. A coded class whose groups are not
/// 32 columns is kept as f32 too: slow, but right. Throws Error for a static input that is read as f32: its bias would
/// be lost.
PackedWeight packed_form(const WeightSource& source, const Kernels& kernels, bool exact);

/// Writes panels [first, first + count) of `source` to `data`, where panel 0 goes.
void pack_panels(const WeightSource& source, const PackedWeight& form, int64_t first, int64_t count, std::byte* data);

/// The values of output row `row` (of an embedding), [inputs].
void read_packed_row(const PackedWeight& weight, int64_t row, float* out);

}  // namespace gristmill::device::cpu
