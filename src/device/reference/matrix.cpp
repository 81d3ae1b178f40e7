#include "device/reference/matrix.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

size_t padded(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

void multiply_channel(const float* x, const Matrix& w, const float* bias, int8_t* codes, float* out) {
  const float x_scale = quantize_activations(x, w.columns, w.encoding.input, codes);
  const int64_t groups = scales_of_row(w.encoding, w.columns);
  const int64_t group = w.encoding.group == 0 ? w.columns : w.encoding.group;
  for (int64_t n = 0; n < w.rows; ++n) {
    const int8_t* const row = w.codes + n * w.columns;
    float value = 0;
    for (int64_t g = 0; g < groups; ++g) {
      int32_t sum = 0;
      for (int64_t k = g * group; k < std::min((g + 1) * group, w.columns); ++k) sum += row[k] * codes[k];
      const float scale = w.scales[n * groups + g];
      if (w.encoding.group == 0) {
        value = static_cast<float>(sum + (w.addends == nullptr ? 0 : w.addends[n])) * scale;
      } else {
        value = std::fma(static_cast<float>(sum), scale, value);
      }
    }
    value *= x_scale;
    out[n] = bias == nullptr ? value : value + bias[n];
  }
}

}  // namespace

size_t matrix_bytes(const WeightSource& source) {
  const auto rows = static_cast<size_t>(source.rows()), columns = static_cast<size_t>(source.columns());
  if (!is_channel_class(source.encoding().cls)) return (rows + kLanes - 1) / kLanes * kLanes * columns * sizeof(float);
  const auto scales = static_cast<size_t>(scales_of_row(source.encoding(), source.columns()));
  return padded(rows * columns) + padded(rows * scales * sizeof(float)) + rows * sizeof(int32_t);
}

Matrix read_matrix(const WeightSource& source, float* memory) {
  Matrix matrix;
  matrix.rows = source.rows();
  matrix.columns = source.columns();
  if (is_channel_class(source.encoding().cls)) {
    matrix.encoding = source.encoding();
    auto* const bytes = reinterpret_cast<uint8_t*>(memory);
    const auto elements = static_cast<size_t>(matrix.rows * matrix.columns);
    auto* const scales = reinterpret_cast<float*>(bytes + padded(elements));
    const auto scale_bytes =
        static_cast<size_t>(matrix.rows * scales_of_row(matrix.encoding, matrix.columns)) * sizeof(float);
    auto* const addends = reinterpret_cast<int32_t*>(bytes + padded(elements) + padded(scale_bytes));
    matrix.codes = reinterpret_cast<const int8_t*>(bytes);
    matrix.scales = scales;
    if (matrix.encoding.input) matrix.addends = addends;
    source.read_codes(0, matrix.rows, {bytes, nullptr, nullptr, scales, matrix.encoding.input ? addends : nullptr});
    return matrix;
  }
  matrix.panels = memory;
  std::vector<float> row(static_cast<size_t>(matrix.columns));
  for (int64_t r = 0; r < matrix.rows; ++r) {
    source.read_f32(r, 1, row.data());
    float* const out = memory + r / kLanes * matrix.columns * kLanes + r % kLanes;
    for (int64_t k = 0; k < matrix.columns; ++k) out[k * kLanes] = row[static_cast<size_t>(k)];
  }
  return matrix;
}

void multiply(const float* x, int rows, const Matrix& w, const float* bias, float* out) {
  int t = 0;
  if (w.codes != nullptr) {
    std::vector<int8_t> codes(static_cast<size_t>(w.columns));
    for (; t < rows; ++t) multiply_channel(x + t * w.columns, w, bias, codes.data(), out + t * w.rows);
    return;
  }
  for (; t + kTile <= rows; t += kTile) multiply_tile<kTile>(x + t * w.columns, w, bias, out + t * w.rows);
  for (; t < rows; ++t) multiply_tile<1>(x + t * w.columns, w, bias, out + t * w.rows);
}

float quantize_activations(const float* x, int64_t width, const std::optional<StaticInput>& input, int8_t* codes) {
  if (std::any_of(x, x + width, [](float value) { return std::isnan(value); })) {
    std::fill_n(codes, width, static_cast<int8_t>(0));
    return std::numeric_limits<float>::quiet_NaN();
  }
  float scale = 0;
  if (input) {
    scale = input->scale;
  } else {
    for (int64_t k = 0; k < width; ++k) scale = std::max(scale, std::fabs(x[k]));
    scale /= 127.0f;
  }
  const bool zero = !input && !(scale > 0.0f);
  const float lowest = input ? -128.0f : -127.0f;
  for (int64_t k = 0; k < width; ++k) {
    const float quotient = zero ? 0.0f : x[k] / scale + (input ? input->offset : 0.0f);
    // Infinity over infinity counts as the lowest.
    const float bounded = quotient > lowest ? std::min(quotient, 127.0f) : lowest;
    codes[k] = static_cast<int8_t>(std::nearbyint(bounded));
  }
  return input ? 1.0f : zero ? 0.0f : scale;
}

MatrixRows::MatrixRows(const Matrix& whole, int64_t first, int64_t count) : skip(0), part(whole) {
  if (whole.codes == nullptr) {
    skip = first % kLanes;
    part.rows = first + count - (first - skip);
    part.panels = whole.panels + (first - skip) * whole.columns;
    return;
  }
  part.rows = count;
  part.codes = whole.codes + first * whole.columns;
  part.scales = whole.scales + first * scales_of_row(whole.encoding, whole.columns);
  if (whole.addends != nullptr) part.addends = whole.addends + first;
}

}  // namespace gristmill::device::reference
