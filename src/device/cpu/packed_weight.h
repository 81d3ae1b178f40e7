#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/weight_source.h"

namespace gristmill::device::cpu {

/// Columns of a scale group, of weights and of quantized activations.
inline constexpr int kGroup = 32;
/// Outputs of a panel of the float classes.
inline constexpr int kFloatPanel = 32;

/// A weight matrix in the order in which the kernels read it: panels of `panel` outputs, the last one padded with
/// zeros.
///
/// i4_group, i8_group: a panel is a list of blocks, one per 32 inputs: codes, then `panel` scales (binary16), then with
/// has_min `panel` minima. Codes of i8: [8 steps][panel][4 inputs] bytes; of i4: [4][panel][4] bytes, low nibble =
/// steps 0..3, high nibble = steps 4..7. f32, f16: [inputs][32]. bf16: [inputs / 2, rounded up][32][2].
struct PackedWeight {
  ComputeClass cls = ComputeClass::f32;
  bool has_min = false;
  bool biased = false;  ///< i8_group: 128 is added to the codes, which are unsigned then
  float zero = 0;
  int panel = kFloatPanel;
  int64_t outputs = 0;
  int64_t inputs = 0;
  size_t block_bytes = 0;  ///< of one block of a coded class
  size_t panel_bytes = 0;
  size_t panel_stride = 0;  ///< from panel to panel: more than panel_bytes where two matrices take turns
  const std::byte* data = nullptr;

  bool coded() const { return cls == ComputeClass::i4_group || cls == ComputeClass::i8_group; }
  int64_t panels() const { return (outputs + panel - 1) / panel; }
  size_t bytes() const { return static_cast<size_t>(panels()) * panel_bytes; }
  const std::byte* panel_data(int64_t index) const { return data + static_cast<size_t>(index) * panel_stride; }
};

struct Kernels;

/// The form that `source` takes for these kernels; `exact` reads every class as f32. A coded class whose groups are not
/// 32 columns is kept as f32 too: slow, but right.
PackedWeight packed_form(const WeightSource& source, const Kernels& kernels, bool exact);

/// Writes panels [first, first + count) of `source` to `data`, where panel 0 goes.
void pack_panels(const WeightSource& source, const PackedWeight& form, int64_t first, int64_t count, std::byte* data);

/// The values of output row `row` (of an embedding), [inputs].
void read_packed_row(const PackedWeight& weight, int64_t row, float* out);

}  // namespace gristmill::device::cpu
