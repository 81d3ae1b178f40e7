#include "weights/row_quantizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace gristmill::weights {
namespace {

constexpr float kLeastScale = 0x1p-23f;
constexpr float kRounder = 0x1.8p23f;  // adding it rounds to the nearest integer, ties to even

float largest_size(const float* row, int64_t columns) {
  float largest = 0;
  for (int64_t k = 0; k < columns; ++k) largest = std::max(largest, std::fabs(row[k]));
  return largest;
}

float code_of(float value, float scale, float lowest, float highest) {
  // Not-a-number fails every comparison and ends up at the lowest.
  const float quotient = value / scale;
  const float bounded = quotient > lowest ? (quotient < highest ? quotient : highest) : lowest;
  return (bounded + kRounder) - kRounder;
}

/// What codes of -8..7 at a scale leave, and the scale that is best for them.
struct Fit {
  double error = 0;
  float best = 0;
};
Fit fit_int4(const float* row, int64_t columns, float scale) {
  // Blocks in float32, so that the loop has no long chain of additions; their sums in float64.
  constexpr int64_t kBlock = 64;
  double error = 0, products = 0, squares = 0;
  for (int64_t first = 0; first < columns; first += kBlock) {
    float e = 0, p = 0, s = 0;
    for (int64_t k = first; k < std::min(columns, first + kBlock); ++k) {
      const float code = code_of(row[k], scale, -8.0f, 7.0f);
      const float left = row[k] - code * scale;
      e += left * left;
      p += row[k] * code;
      s += code * code;
    }
    error += static_cast<double>(e);
    products += static_cast<double>(p);
    squares += static_cast<double>(s);
  }
  return {error, squares > 0 ? static_cast<float>(products / squares) : scale};
}

}  // namespace

void quantize_row_int8(const float* row, int64_t columns, int8_t* codes, float* scale) {
  *scale = std::max(largest_size(row, columns) / 127.0f, kLeastScale);
  for (int64_t k = 0; k < columns; ++k) codes[k] = static_cast<int8_t>(code_of(row[k], *scale, -128.0f, 127.0f));
}

void quantize_row_int4(const float* row, int64_t columns, int8_t* codes, float* scale) {
  const float widest = std::max(largest_size(row, columns) / 7.0f, kLeastScale);
  // Where rows are long, their largest weight is an outlier; half of it is the least that pays off.
  constexpr float kShares[] = {1.0f, 0.94f, 0.875f, 0.81f, 0.75f, 0.69f, 0.625f, 0.56f, 0.5f};
  constexpr int kMostSteps = 50;
  *scale = widest;
  double least = INFINITY;
  for (const float share : kShares) {
    float candidate = std::max(widest * share, kLeastScale);
    double before = INFINITY;
    for (int step = 0; step < kMostSteps; ++step) {
      const Fit fit = fit_int4(row, columns, candidate);
      if (fit.error < least) {
        least = fit.error;
        *scale = candidate;
      }
      if (!(fit.error < before)) break;
      before = fit.error;
      candidate = std::max(fit.best, kLeastScale);
    }
  }
  for (int64_t k = 0; k < columns; ++k) codes[k] = static_cast<int8_t>(code_of(row[k], *scale, -8.0f, 7.0f));
}

void quantize_row_int4_groups(const float* row, int64_t columns, int64_t group, int8_t* codes, float* first,
                              float* second) {
  quantize_row_int8(row, columns, codes, first);
  // The weights themselves, in units of the first scale, say more than the rounded codes of the first level.
  std::vector<float> units(static_cast<size_t>(group));
  for (int64_t begin = 0; begin < columns; begin += group) {
    for (int64_t k = 0; k < group; ++k) units[static_cast<size_t>(k)] = row[begin + k] / *first;
    quantize_row_int4(units.data(), group, codes + begin, second++);
  }
}

}  // namespace gristmill::weights
