#include "device/reference/matrix.h"

#include <algorithm>

namespace gristmill::device::reference {
namespace {

/// Input rows that share one reading of the weights.
constexpr int kTile = 4;

template <int tile>
void multiply_tile(const float* x, const Matrix& w, const float* bias, float* out) {
  for (int64_t first = 0; first < w.rows; first += kLanes) {
    const float* panel = w.panels + first * w.columns;
    float sums[tile][kLanes] = {};
    for (int64_t k = 0; k < w.columns; ++k, panel += kLanes)
      for (int t = 0; t < tile; ++t) {
        const float input = x[t * w.columns + k];
        for (int lane = 0; lane < kLanes; ++lane) sums[t][lane] += input * panel[lane];
      }
    const int64_t lanes = std::min<int64_t>(kLanes, w.rows - first);
    for (int t = 0; t < tile; ++t)
      for (int64_t lane = 0; lane < lanes; ++lane)
        out[t * w.rows + first + lane] = sums[t][lane] + (bias == nullptr ? 0.0f : bias[first + lane]);
  }
}

}  // namespace

size_t matrix_bytes(int64_t rows, int64_t columns) {
  return static_cast<size_t>((rows + kLanes - 1) / kLanes) * kLanes * static_cast<size_t>(columns) * sizeof(float);
}

Matrix read_matrix(const WeightSource& source, float* panels) {
  const Matrix matrix{source.rows(), source.columns(), panels};
  std::vector<float> row(static_cast<size_t>(matrix.columns));
  for (int64_t r = 0; r < matrix.rows; ++r) {
    source.read_f32(r, 1, row.data());
    float* const out = panels + r / kLanes * matrix.columns * kLanes + r % kLanes;
    for (int64_t k = 0; k < matrix.columns; ++k) out[k * kLanes] = row[static_cast<size_t>(k)];
  }
  return matrix;
}

void multiply(const float* x, int rows, const Matrix& w, const float* bias, float* out) {
  int t = 0;
  for (; t + kTile <= rows; t += kTile) multiply_tile<kTile>(x + t * w.columns, w, bias, out + t * w.rows);
  for (; t < rows; ++t) multiply_tile<1>(x + t * w.columns, w, bias, out + t * w.rows);
}

}  // namespace gristmill::device::reference
