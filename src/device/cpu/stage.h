#pragma once
// A compiled Program is a list of stages; a step runs each as one phase of the compute team.
#include <memory>
#include <vector>

#include "device/backend.h"
#include "device/cpu/kernels.h"

namespace gristmill::device::cpu {

/// What the stages of one Executable share: its memory, and the step in flight.
struct Frame {
  const Kernels* kernels = nullptr;
  int members = 1;
  std::byte* scratch = nullptr;
  size_t member_offset = 0;  ///< of member 0's own working memory in the scratch
  size_t member_bytes = 0;
  std::byte* cache = nullptr;
  size_t num_blocks = 0;
  size_t group_bytes = 0;  ///< of a group of cache blocks (KvLayout), all layers
  int group_blocks = 0;
  std::byte* states = nullptr;  ///< slots of recurrent state
  size_t num_states = 0;

  StepInputs inputs;
  int tokens = 0;
  std::vector<int32_t> sequence_of;  ///< per row: index into inputs.sequences
  std::vector<int32_t> position_of;  ///< per row

  std::byte* working_memory(uint32_t member) const { return scratch + member_offset + member * member_bytes; }
};

/// Rows of float32 in the scratch. The stride is padded to whole float panels, so that kernels may write their padding.
struct Rows {
  size_t offset = 0;
  int64_t stride = 0;
  int width = 0;

  float* row(const Frame& frame, int64_t index) const {
    return reinterpret_cast<float*>(frame.scratch + offset) + index * stride;
  }
};

/// Rows of quantized activations in the scratch, in blocks of kRowBlock rows (QuantizedBlock).
struct CodedRows {
  size_t codes = 0;
  size_t scales = 0;
  int64_t groups = 0;

  static int block_rows(int rows, int block) {
    const int left = rows - block * kRowBlock;
    return left < kRowBlock ? left : kRowBlock;
  }
  QuantizedBlock block(const Frame& frame, int rows, int index) const {
    return {codes_at(frame, index), scales_at(frame, index), block_rows(rows, index)};
  }
  /// Quantizes groups [first, first + count) of row `row` of `rows`.
  void quantize(const Frame& frame, int rows, int row, const float* x, int64_t first, int64_t count) const {
    const int index = row / kRowBlock, inside = row % kRowBlock, height = block_rows(rows, index);
    frame.kernels->quantize(x, count, codes_at(frame, index) + (first * height + inside) * kGroup,
                            static_cast<int64_t>(height) * kGroup, scales_at(frame, index) + first * height + inside,
                            height);
  }

 private:
  int8_t* codes_at(const Frame& frame, int index) const {
    return reinterpret_cast<int8_t*>(frame.scratch + codes) + static_cast<int64_t>(index) * kRowBlock * groups * kGroup;
  }
  GroupScale* scales_at(const Frame& frame, int index) const {
    return reinterpret_cast<GroupScale*>(frame.scratch + scales) + static_cast<int64_t>(index) * kRowBlock * groups;
  }
};

/// One phase. `items` may depend on the step; run() is called once per item, by any member, in any order.
class Stage {
 public:
  virtual ~Stage() = default;
  virtual uint32_t items(const Frame& frame) const = 0;
  virtual void run(const Frame& frame, uint32_t item, uint32_t member) const = 0;
  /// Bytes of working memory that run() uses per member.
  virtual size_t working_bytes() const { return 0; }
};

/// A range of rows that is one item of a stage which goes over rows.
struct RowRange {
  int first = 0, end = 0;
};
/// Items small enough to share `rows` rows evenly, large enough to be worth taking.
inline int rows_per_item(const Frame& frame, int rows) {
  const int even = rows / (4 * frame.members);
  return even < 1 ? 1 : even > 16 ? 16 : even;
}
inline uint32_t row_items(const Frame& frame, int rows) {
  const int per = rows_per_item(frame, rows);
  return static_cast<uint32_t>((rows + per - 1) / per);
}
inline RowRange row_range(const Frame& frame, int rows, uint32_t item) {
  const int per = rows_per_item(frame, rows), first = static_cast<int>(item) * per;
  return {first, first + per < rows ? first + per : rows};
}

}  // namespace gristmill::device::cpu
