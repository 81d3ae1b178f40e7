#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")  // -O2 of g++ 12 leaves most loops scalar
#endif
#include "sample/vector_math.h"

#include <bit>
#include <limits>

// The loops below are plain element-wise code; on x86-64 the compiler also makes AVX2 and AVX-512 copies of them,
// chosen at load time. Without contraction (-ffp-contract=off) all copies give the same bits. ThreadSanitizer cannot
// run the resolvers that choose (they run before it is set up).
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define GRISTMILL_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define GRISTMILL_VECTOR_CLONES
#endif

namespace gristmill {
namespace {

// exp(x) = 2^n * e^r with |r| <= ln(2)/2; Cody-Waite reduction and a degree-6 polynomial (Cephes' expf coefficients).
inline float exp_element(float x) {
  const float clamped = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
  const float shifted = clamped * 1.44269504088896341f + 12582912.0f;  // adding 1.5 * 2^23 rounds to an integer
  const float n = shifted - 12582912.0f;
  float r = clamped - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const float power = std::bit_cast<float>((std::bit_cast<int32_t>(shifted) << 23) + 0x3f800000);
  const float result = p * power;
  return x < -87.0f ? 0.0f : result;
}

}  // namespace

GRISTMILL_VECTOR_CLONES
void exp_shifted(std::span<const float> logits, float shift, float inverse_temperature, float* out) {
  const float* in = logits.data();
  const size_t size = logits.size();
  for (size_t i = 0; i < size; ++i) out[i] = exp_element((in[i] - shift) * inverse_temperature);
}

GRISTMILL_VECTOR_CLONES
double lane_sum(std::span<const float> values) {
  double lanes[8] = {};
  const size_t whole = values.size() / 8 * 8;
  for (size_t i = 0; i < whole; i += 8) {
    for (size_t j = 0; j < 8; ++j) lanes[j] += static_cast<double>(values[i + j]);
  }
  for (size_t i = whole; i < values.size(); ++i) lanes[i - whole] += static_cast<double>(values[i]);
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

GRISTMILL_VECTOR_CLONES
float max_value(std::span<const float> values) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  float lanes[16];
  for (float& lane : lanes) lane = lowest;
  const size_t whole = values.size() / 16 * 16;
  for (size_t i = 0; i < whole; i += 16) {
    for (size_t j = 0; j < 16; ++j) lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
  }
  for (size_t i = whole; i < values.size(); ++i) lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
  float best = lowest;
  for (const float lane : lanes) best = lane > best ? lane : best;
  return best;
}

GRISTMILL_VECTOR_CLONES
bool has_nan(std::span<const float> values) {
  const float* in = values.data();
  const size_t size = values.size();
  uint32_t found = 0;
  for (size_t i = 0; i < size; ++i) found |= in[i] != in[i] ? 1u : 0u;
  return found != 0;
}

}  // namespace gristmill
