#pragma once
#include <cstdint>
#include <vector>

#include "device/weight_source.h"

namespace gristmill::device::reference {

/// Output columns that are computed side by side.
inline constexpr int kLanes = 8;

/// A weight as float32, in panels of kLanes rows: element (row, column) is at
/// panels[(row / kLanes * columns + column) * kLanes + row % kLanes]. Missing rows of the last panel are zero.
struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  float* panels = nullptr;

  float at(int64_t row, int64_t column) const {
    return panels[(row / kLanes * columns + column) * kLanes + row % kLanes];
  }
};

/// Bytes of the panels.
size_t matrix_bytes(int64_t rows, int64_t columns);

/// Reads a weight into `panels`, which hold zeros and matrix_bytes().
Matrix read_matrix(const WeightSource& source, float* panels);

/// out[t][n] = sum over ascending k of x[t][k] * w[n][k], one float32 accumulator each, then + bias[n] if there is one.
/// x is [rows][w.columns], out is [rows][w.rows].
void multiply(const float* x, int rows, const Matrix& w, const float* bias, float* out);

}  // namespace gristmill::device::reference
