#pragma once
// A compiled Program is a list of stages; a step runs each as one phase of the compute team.
#include <cstring>
#include <memory>
#include <optional>
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

/// Rows of activations quantized as a whole in the scratch, in blocks of kRowBlock rows (TokenBlock).
struct TokenRows {
  size_t codes = 0;
  size_t sums = 0;
  size_t scales = 0;
  int64_t width = 0;
  std::optional<StaticInput> input;

  int64_t blocks() const { return (width + kGroup - 1) / kGroup; }
  TokenBlock block(const Frame& frame, int rows, int index) const {
    return {codes_at(frame, index), sums_at(frame, index), scales_at(frame, index), CodedRows::block_rows(rows, index)};
  }
  /// Quantizes row `row` of `rows`.
  void quantize(const Frame& frame, int rows, int row, const float* x) const {
    const int index = row / kRowBlock, inside = row % kRowBlock, height = CodedRows::block_rows(rows, index);
    frame.kernels->quantize_token(x, width, input ? &*input : nullptr, codes_at(frame, index) + inside * kGroup,
                                  static_cast<int64_t>(height) * kGroup, sums_at(frame, index) + inside, height,
                                  scales_at(frame, index) + inside);
  }
  /// Copies row `from` of `rows` to row `row` of `to_rows` in `to`, which has the same width.
  void copy(const Frame& frame, int rows, int from, const TokenRows& to, int to_rows, int row) const {
    const TokenBlock source = block(frame, rows, from / kRowBlock);
    const int height = CodedRows::block_rows(to_rows, row / kRowBlock);
    int8_t* const codes_to = to.codes_at(frame, row / kRowBlock) + row % kRowBlock * kGroup;
    int32_t* const sums_to = to.sums_at(frame, row / kRowBlock) + row % kRowBlock;
    for (int64_t b = 0; b < blocks(); ++b) {
      const int64_t at = b * source.rows + from % kRowBlock;
      std::memcpy(codes_to + b * height * kGroup, source.codes + at * kGroup, kGroup);
      sums_to[b * height] = source.sums[at];
    }
    to.scales_at(frame, row / kRowBlock)[row % kRowBlock] = source.scales[from % kRowBlock];
  }
  /// The rows from `first` on, as rows with blocks of their own.
  TokenRows from(int64_t first) const {
    TokenRows rest = *this;
    rest.codes += static_cast<size_t>(first * blocks() * kGroup);
    rest.sums += static_cast<size_t>(first * blocks()) * sizeof(int32_t);
    rest.scales += static_cast<size_t>(first) * sizeof(TokenScale);
    return rest;
  }

 private:
  int8_t* codes_at(const Frame& frame, int index) const {
    return reinterpret_cast<int8_t*>(frame.scratch + codes) + index * kRowBlock * blocks() * kGroup;
  }
  int32_t* sums_at(const Frame& frame, int index) const {
    return reinterpret_cast<int32_t*>(frame.scratch + sums) + index * kRowBlock * blocks();
  }
  TokenScale* scales_at(const Frame& frame, int index) const {
    return reinterpret_cast<TokenScale*>(frame.scratch + scales) + index * kRowBlock;
  }
};

/// One phase. `items` may depend on the step; run() is called once per item, by any member, in any order.
class Stage {
 public:
  virtual ~Stage() = default;
  virtual uint32_t items(const Frame& frame) const = 0;
  virtual void run(const Frame& frame, uint32_t item, uint32_t member) const = 0;
  /// Called once when the weights are in memory, before the first run().
  virtual void weights_loaded() {}
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
