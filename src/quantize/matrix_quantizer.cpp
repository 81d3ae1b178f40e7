// The tensors and arithmetic of each type are msmodelslim's (weights/ascend_linear.h reads them).
#include "quantize/matrix_quantizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "weights/row_quantizer.h"

namespace gristmill::quantize {
namespace {

using weights::QuantType;

/// The vendor's tensor-parallel kernels cut these along their columns: scale_bias comes in 16 slices.
constexpr int64_t kSlices = 16;
bool is_row_parallel(const std::string& base) {
  for (const char* const name : {"down_proj", "o_proj", "w2"})
    if (base.ends_with(name)) return true;
  return false;
}
int64_t bias_slices(const std::string& base, int64_t columns) {
  return is_row_parallel(base) && columns % kSlices == 0 ? kSlices : 1;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string packed_in_pairs(const std::vector<int8_t>& codes, int64_t rows, int64_t columns) {
  std::string bytes(codes.size() / 2, '\0');
  for (int64_t row = 0; row < rows; row += 2)
    for (int64_t k = 0; k < columns; ++k) {
      const auto low = static_cast<uint8_t>(codes[static_cast<size_t>(row * columns + k)]);
      const auto high = static_cast<uint8_t>(codes[static_cast<size_t>((row + 1) * columns + k)]);
      bytes[static_cast<size_t>(row / 2 * columns + k)] = static_cast<char>((low & 15) | (high & 15) << 4);
    }
  return bytes;
}

/// Codes and scales of all rows, and what they lose.
struct Rows {
  std::vector<int8_t> codes;
  std::vector<float> scales;  ///< [rows]
  std::vector<float> second;  ///< [rows][groups]
  double error = 0, size = 0;

  Rows(const FloatMatrix& matrix, const MatrixScheme& scheme, ComputeTeam& team)
      : codes(matrix.values.size()), scales(static_cast<size_t>(matrix.rows)) {
    const int64_t columns = matrix.columns, groups = scheme.group == 0 ? 0 : columns / scheme.group;
    second.resize(static_cast<size_t>(matrix.rows * groups));
    std::vector<double> errors(scales.size()), sizes(scales.size());
    in_parallel(team, matrix.rows, [&](int64_t first, int64_t count) {
      for (int64_t row = first; row < first + count; ++row) {
        const float* const w = matrix.row(row);
        int8_t* const to = codes.data() + row * columns;
        const auto at = static_cast<size_t>(row);
        float* const own = second.data() + row * groups;
        if (scheme.type != QuantType::w4a8_dynamic) {
          weights::quantize_row_int8(w, columns, to, &scales[at]);
        } else if (groups == 0) {
          weights::quantize_row_int4(w, columns, to, &scales[at]);
        } else {
          weights::quantize_row_int4_groups(w, columns, scheme.group, to, &scales[at], own);
        }
        for (int64_t k = 0; k < columns; ++k) {
          const float scale = groups == 0 ? scales[at] : own[k / scheme.group] * scales[at];
          const double left = static_cast<double>(w[k]) - static_cast<double>(static_cast<float>(to[k]) * scale);
          errors[at] += left * left;
          sizes[at] += static_cast<double>(w[k]) * static_cast<double>(w[k]);
        }
      }
    });
    for (size_t row = 0; row < scales.size(); ++row) error += errors[row], size += sizes[row];
  }
};

/// 8 * the sum of each slice's weights: what kernels that split activation codes in halves add.
std::vector<float> scale_bias(const std::string& base, const Rows& rows, int64_t columns, int group) {
  const int64_t slices = bias_slices(base, columns), width = columns / slices;
  std::vector<float> bias;
  for (size_t row = 0; row < rows.scales.size(); ++row)
    for (int64_t slice = 0; slice < slices; ++slice) {
      double sum = 0;
      for (int64_t k = slice * width; k < (slice + 1) * width; ++k) {
        const auto at = static_cast<size_t>(static_cast<int64_t>(row) * columns + k);
        const double second =
            group == 0
                ? 1.0
                : static_cast<double>(
                      rows.second[static_cast<size_t>(static_cast<int64_t>(row) * (columns / group) + k / group)]);
        sum += rows.codes[at] * second;
      }
      bias.push_back(static_cast<float>(8 * sum * static_cast<double>(rows.scales[row])));
    }
  return bias;
}

}  // namespace

std::vector<TensorPlan> planned_tensors(const std::string& base, const MatrixScheme& scheme, int64_t rows,
                                        int64_t columns) {
  const auto named = [&](const char* part, const char* dtype, std::vector<int64_t> shape) {
    return TensorPlan{base + part, dtype, std::move(shape)};
  };
  if (scheme.type == QuantType::w8a8)
    return {named(".weight", "I8", {rows, columns}), named(".input_scale", "F32", {1}),
            named(".input_offset", "F32", {1}), named(".deq_scale", scheme.as_float16 ? "I64" : "F32", {rows}),
            named(".quant_bias", "I32", {rows})};
  const bool int4 = scheme.type == QuantType::w4a8_dynamic;
  std::vector<TensorPlan> all{named(".weight", "I8", {int4 ? rows / 2 : rows, columns}),
                              named(".weight_scale", "F32", {rows, 1}), named(".weight_offset", "F32", {rows, 1})};
  if (int4 && scheme.group != 0) {
    all.push_back(named(".weight_scale_second", "F32", {rows, columns / scheme.group}));
    all.push_back(named(".weight_offset_second", "F32", {rows, columns / scheme.group}));
  }
  if (int4) all.push_back(named(".scale_bias", "F32", {rows, bias_slices(base, columns)}));
  return all;
}

QuantizedMatrix quantize_matrix(const std::string& base, const MatrixScheme& scheme, const FloatMatrix& matrix,
                                const std::vector<float>& bias, const device::ValueRange& range, ComputeTeam& team) {
  const Rows rows(matrix, scheme, team);
  QuantizedMatrix result;
  result.error = rows.error;
  result.size = rows.size;
  const auto count = static_cast<size_t>(matrix.rows);
  if (scheme.type == QuantType::w8a8) {
    // Asymmetric over [low, high], which holds 0: scale = (high - low) / 255, offset = round(-low / scale) - 128.
    constexpr float kLeast = 0x1p-23f;
    const float low = std::min(range.low, 0.0f), high = std::max(range.high, 0.0f);
    const float scale = std::max(high / 255.0f - low / 255.0f, kLeast);
    const float offset = std::clamp(std::nearbyint(-low / scale) - 128.0f, -128.0f, 127.0f);
    std::vector<float> deq(count);
    std::vector<int32_t> quant_bias(count);
    for (size_t row = 0; row < count; ++row) {
      deq[row] = scale * rows.scales[row];
      int64_t sum = 0;
      for (int64_t k = 0; k < matrix.columns; ++k)
        sum += rows.codes[static_cast<size_t>(static_cast<int64_t>(row) * matrix.columns + k)];
      const double of_bias = bias.empty() ? 0.0 : static_cast<double>(bias[row] / deq[row]);
      const double exact = of_bias - static_cast<double>(offset) * static_cast<double>(sum);
      quant_bias[row] = static_cast<int32_t>(std::clamp(std::nearbyint(exact), -2147483647.0, 2147483647.0));
    }
    std::string deq_bytes = bytes_of(deq);
    if (scheme.as_float16) {
      std::vector<int64_t> wide;
      wide.reserve(deq.size());
      for (const float value : deq) wide.push_back(std::bit_cast<int32_t>(value));
      deq_bytes = bytes_of(wide);
    }
    result.data = {bytes_of(rows.codes), bytes_of(std::vector<float>{scale}), bytes_of(std::vector<float>{offset}),
                   deq_bytes, bytes_of(quant_bias)};
    return result;
  }
  const std::string zeros = bytes_of(std::vector<float>(count, 0.0f));
  if (scheme.type == QuantType::w8a8_dynamic) {
    result.data = {bytes_of(rows.codes), bytes_of(rows.scales), zeros};
    return result;
  }
  result.data = {packed_in_pairs(rows.codes, matrix.rows, matrix.columns), bytes_of(rows.scales), zeros};
  if (scheme.group != 0) {
    result.data.push_back(bytes_of(rows.second));
    result.data.push_back(bytes_of(std::vector<float>(rows.second.size(), 0.0f)));
  }
  result.data.push_back(bytes_of(scale_bias(base, rows, matrix.columns, scheme.group)));
  return result;
}

}  // namespace gristmill::quantize
