#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "device/weight_source.h"

namespace gristmill::device::reference {

/// Output columns that are computed side by side.
inline constexpr int kLanes = 8;

/// A weight as float32, in panels of kLanes rows: element (row, column) is at
/// panels[(row / kLanes * columns + column) * kLanes + row % kLanes]. Missing rows of the last panel are zero.
///
/// The channel classes keep their codes instead, since their arithmetic is one of integers: codes [rows][columns],
/// scales [rows][scales_of_row()], and with a static input addends [rows].
struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  float* panels = nullptr;
  Encoding encoding{};  ///< of a channel class; else the default one
  const int8_t* codes = nullptr;
  const float* scales = nullptr;
  const int32_t* addends = nullptr;

  float at(int64_t row, int64_t column) const {
    if (codes == nullptr) return panels[(row / kLanes * columns + column) * kLanes + row % kLanes];
    const int64_t group = encoding.group == 0 ? 0 : column / encoding.group;
    const float scale =
        scales[row * scales_of_row(encoding, columns) + group] / (encoding.input ? encoding.input->scale : 1.0f);
    return scale * static_cast<float>(codes[row * columns + column]);
  }
};

/// Bytes that read_matrix() needs.
size_t matrix_bytes(const WeightSource& source);

/// Reads a weight into `memory`, which holds zeros and matrix_bytes().
Matrix read_matrix(const WeightSource& source, float* memory);

/// out[t][n] = sum over ascending k of x[t][k] * w[n][k], one float32 accumulator each, then + bias[n] if there is one.
/// x is [rows][w.columns], out is [rows][w.rows]. Channel classes: x is quantized row by row (quantize_activations) and
///   one scale per output   out = (float(sum of code * x code + addend) * scale) * x scale
///   scales per group       over groups ascending, acc = fma(float(sum of the group), scale, acc); out = acc * x scale
void multiply(const float* x, int rows, const Matrix& w, const float* bias, float* out);

/// One row to int8. Dynamic: scale = max|x| / 127, code = round(x / scale) with ties to even, within -127..127; zeros
/// where the scale is 0. Static: code = round(x / scale + offset) within -128..127, and 1 is returned, since the
/// weight's scales hold the input's. Returns the scale, which is NaN where x holds one.
float quantize_activations(const float* x, int64_t width, const std::optional<StaticInput>& input, int8_t* codes);

/// Outputs [first, first + count) of `whole`, with `skip` more before them where panels begin elsewhere.
struct MatrixRows {
  MatrixRows(const Matrix& whole, int64_t first, int64_t count);
  int64_t skip;
  Matrix part;
};

}  // namespace gristmill::device::reference
