#pragma once
#include <cstddef>
#include <cstdint>

#include "base/tensor.h"

namespace gristmill::weights {

/// How a row of a StorageType lies in memory: `bytes` for every `elements` consecutive columns.
struct BlockLayout {
  const char* name;
  int elements;
  int bytes;
};
BlockLayout layout_of(StorageType type);

/// Bytes of one row; `columns` is a multiple of the block.
size_t row_bytes(StorageType type, int64_t columns);

/// True for the types that hold weights, i.e. that dequantize() and block codes know.
bool is_weight_type(StorageType type);

/// The float32 values of `columns` elements (a multiple of the block) of a weight type. `row` need not be aligned. The
/// roundings are those of ggml's definition of each type, in its order of operations.
void dequantize(StorageType type, const std::byte* row, int64_t columns, float* out);

}  // namespace gristmill::weights
