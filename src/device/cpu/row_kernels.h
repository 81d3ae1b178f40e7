#pragma once
// Kernels on single rows, written once over a vector class (device/cpu/portable_lanes.h says what its operations mean).
// Files for an instruction set include this inside their target region, after all other headers.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/float8.h"
#include "device/cpu/kernels.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {

/// 2^x for x <= 127; 0 below -126. x = n + f with |f| <= 1/2; the polynomial is our minimax fit of degree 5 to 2^f with
/// 2^0 = 1 exactly, relative error 1.6e-7.
template <class V>
V exp2_lanes(V x) {
  const V clamped = V::min(V::max(x, V::all(-127.0f)), V::all(127.0f));
  const V shifted = V::add(clamped, V::all(0x1.8p23f));
  const V f = V::sub(clamped, V::sub(shifted, V::all(0x1.8p23f)));
  V p = V::all(0x1.5bba14p-10f);
  p = V::fma(p, f, V::all(0x1.3cea88p-7f));
  p = V::fma(p, f, V::all(0x1.c6b752p-5f));
  p = V::fma(p, f, V::all(0x1.ebf9bcp-3f));
  p = V::fma(p, f, V::all(0x1.62e42ap-1f));
  p = V::fma(p, f, V::all(1.0f));
  return V::keep_from(x, V::all(-126.0f), V::add_exponent(p, shifted));
}

template <class V>
int lanes_left(int64_t left) {
  return static_cast<int>(left < 0 ? 0 : left < V::kLanes ? left : V::kLanes);
}

/// Sum of virtual lanes held by `count` vectors (a power of two): halves are added until one vector is left, then
/// inside it.
template <class V, int kCount>
float tree_sum(V (&sums)[kCount]) {
  for (int half = kCount / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sums[i] = V::add(sums[i], sums[i + half]);
  }
  return V::tree_sum(sums[0]);
}

/// The scale of codes that are all zero: an input that is not a number must not become one.
inline float zero_scale(float largest) {
  return std::isnan(largest) ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
}

template <class V>
void quantize_row(const float* x, int64_t groups, int8_t* codes, int64_t code_stride, GroupScale* scales,
                  int64_t scale_stride) {
  for (int64_t group = 0; group < groups; ++group, x += kGroup, codes += code_stride, scales += scale_stride) {
    V peak = V::load(x);
    for (int i = V::kLanes; i < kGroup; i += V::kLanes) peak = V::max_magnitude(V::load(x + i), peak);
    const float largest = V::tree_max_magnitude(peak);
    if (!(largest >= 1e-30f)) {
      for (int i = 0; i < kGroup; ++i) codes[i] = 0;
      const float scale = zero_scale(largest);
      *scales = {scale, scale, 0};
      continue;
    }
    V values[kGroup / V::kLanes];
    for (int v = 0; v < kGroup / V::kLanes; ++v)
      values[v] = V::mul(V::load(x + v * V::kLanes), V::all(127.0f / largest));
    const int32_t sum = V::round_32(values, codes);
    const float scale = largest / 127.0f;
    *scales = {scale, scale * static_cast<float>(sum), -128 * sum};
  }
}

template <class V>
void quantize_token_row(const float* x, int64_t n, const StaticInput* input, int8_t* codes, int64_t code_stride,
                        int32_t* sums, int64_t sum_stride, TokenScale* scale) {
  constexpr int kVectors = kGroup / V::kLanes;
  const int64_t blocks = (n + kGroup - 1) / kGroup;
  V peak = V::zero();
  int64_t at = 0;
  for (; at + V::kLanes <= n; at += V::kLanes) peak = V::max_magnitude(V::load(x + at), peak);
  if (const int left = lanes_left<V>(n - at); left > 0) peak = V::max_magnitude(V::load_first(x + at, left), peak);
  const float largest = V::tree_max_magnitude(peak);
  float divisor = largest / 127.0f, offset = 0, lowest = -127;
  *scale = {divisor, 0};
  if (input != nullptr) {
    divisor = input->scale, offset = input->offset, lowest = -128;
    scale->scale = 1;
  }
  const bool zero = std::isnan(largest) || !(divisor > 0.0f);
  if (zero) scale->scale = zero_scale(largest);
  for (int64_t block = 0; block < blocks; ++block, codes += code_stride, sums += sum_stride) {
    if (zero) {
      for (int i = 0; i < kGroup; ++i) codes[i] = 0;
      *sums = 0;
      continue;
    }
    const float* const from = x + block * kGroup;
    const int64_t left = n - block * kGroup;
    V quotients[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const V value = left >= kGroup ? V::load(from + v * V::kLanes)
                                     : V::load_first(from + v * V::kLanes, lanes_left<V>(left - v * V::kLanes));
      V quotient = V::div(value, V::all(divisor));
      if (input != nullptr) quotient = V::add(quotient, V::all(offset));
      quotients[v] = V::min(V::max(quotient, V::all(lowest)), V::all(127.0f));
    }
    *sums = V::round_32(quotients, codes);
    if (left < kGroup) {  // an offset leaves codes behind the last input
      for (int64_t i = left; i < kGroup; ++i) {
        *sums -= codes[i];
        codes[i] = 0;
      }
    }
    scale->sum += *sums;
  }
}

/// Over 32 virtual lanes (lane i mod 32, ascending, FMA) and a tree of halves.
template <class V>
float sum_of_squares(const float* x, int64_t n) {
  constexpr int kVirtual = 32, kVectors = kVirtual / V::kLanes;
  V sums[kVectors];
  GRISTMILL_UNROLL
  for (V& sum : sums) sum = V::zero();
  int64_t i = 0;
  for (; i + kVirtual <= n; i += kVirtual) {
    GRISTMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const V a = V::load(x + i + v * V::kLanes);
      sums[v] = V::fma(a, a, sums[v]);
    }
  }
  for (int v = 0; i < n && v < kVectors; ++v) {
    const int count = lanes_left<V>(n - i - v * V::kLanes);
    if (count == 0) break;
    const V a = V::load_first(x + i + v * V::kLanes, count);
    sums[v] = V::fma(a, a, sums[v]);
  }
  return tree_sum<V, kVectors>(sums);
}

template <class V>
void rms_norm_row(const float* x, const float* w, float eps, int64_t n, float* out) {
  const float mean = sum_of_squares<V>(x, n) / static_cast<float>(n);
  const V factor = V::all(1.0f / std::sqrt(mean + eps));
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) {
    V::store(out + i, V::mul(V::mul(V::load(x + i), factor), V::load(w + i)));
  }
  if (const int left = lanes_left<V>(n - i); left > 0) {
    V::store_first(out + i, V::mul(V::mul(V::load_first(x + i, left), factor), V::load_first(w + i, left)), left);
  }
}

template <class V>
void add_row(const float* x, const float* y, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) V::store(out + i, V::add(V::load(x + i), V::load(y + i)));
  if (const int left = lanes_left<V>(n - i); left > 0) {
    V::store_first(out + i, V::add(V::load_first(x + i, left), V::load_first(y + i, left)), left);
  }
}

template <class V>
V silu_mul_lanes(V gate, V up) {
  const V power = exp2_lanes(V::mul(gate, V::all(-0x1.715476p+0f)));  // -log2(e)
  return V::mul(V::div(gate, V::add(V::all(1.0f), power)), up);
}

template <class V>
void silu_mul_row(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) V::store(out + i, silu_mul_lanes(V::load(gate + i), V::load(up + i)));
  if (const int left = lanes_left<V>(n - i); left > 0) {
    V::store_first(out + i, silu_mul_lanes(V::load_first(gate + i, left), V::load_first(up + i, left)), left);
  }
}

/// out[i] = compute(at) for all i, where at(x) gives the lanes of a row x there.
template <class V, class Compute>
void map_row(int64_t n, float* out, Compute compute) {
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) V::store(out + i, compute([i](const float* x) { return V::load(x + i); }));
  if (const int left = lanes_left<V>(n - i); left > 0) {
    V::store_first(out + i, compute([i, left](const float* x) { return V::load_first(x + i, left); }), left);
  }
}

template <class V>
void gate_row(const float* x, const float* gate, int64_t n, float* out) {
  map_row<V>(n, out, [=](auto at) {
    const V power = exp2_lanes(V::mul(at(gate), V::all(-0x1.715476p+0f)));  // -log2(e)
    return V::div(at(x), V::add(V::all(1.0f), power));
  });
}

template <class V>
void add_weighted_row(float weight, const float* x, int64_t n, float* out) {
  map_row<V>(n, out, [=](auto at) { return V::fma(V::all(weight), at(x), at(out)); });
}

template <class V>
void rotate_row(const float* x, const float* cos, const float* sin, int half, int head_dim, float factor, float* out) {
  const V scale = V::all(factor);
  for (int j = 0; j < half; j += V::kLanes) {
    const int count = lanes_left<V>(half - j);
    const V a = V::load_first(x + j, count), b = V::load_first(x + half + j, count);
    const V c = V::load_first(cos + j, count), s = V::load_first(sin + j, count);
    const V low = V::fma(a, c, V::sub(V::zero(), V::mul(b, s)));
    const V high = V::fma(b, c, V::mul(a, s));
    V::store_first(out + j, V::mul(low, scale), count);
    V::store_first(out + half + j, V::mul(high, scale), count);
  }
  for (int j = 2 * half; j < head_dim; j += V::kLanes) {
    const int count = lanes_left<V>(head_dim - j);
    V::store_first(out + j, V::mul(V::load_first(x + j, count), scale), count);
  }
}

template <class V>
void round_row(DType dtype, const float* x, int64_t n, uint16_t* out) {
  const auto store = [dtype](uint16_t* p, V a) {
    if (dtype == DType::bf16) {
      V::store_bf16(p, a);
    } else {
      V::store_f16(p, a);
    }
  };
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) store(out + i, V::load(x + i));
  if (const int left = lanes_left<V>(n - i); left > 0) {
    uint16_t last[V::kLanes];
    store(last, V::load_first(x + i, left));
    for (int j = 0; j < left; ++j) out[i + j] = last[j];
  }
}

template <class V>
float encode_row(DType dtype, const float* x, int n, uint8_t* codes) {
  uint32_t peak = 0;  // of the bits, which order magnitudes, and NaN above all
  for (int i = 0; i < n; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    peak = magnitude > peak ? magnitude : peak;
  }
  const float largest = std::bit_cast<float>(peak);
  if (largest < 1e-30f) {
    std::memset(codes, 0, static_cast<size_t>(n));
    return 0;
  }
  if (dtype == DType::fp8_e4m3) {
    const float inverse = 448.0f / largest;
    for (int i = 0; i < n; ++i) codes[i] = f32_to_fp8_e4m3(x[i] * inverse);
    return largest / 448.0f * 256.0f;
  }
  const float inverse = 127.0f / largest;
  for (int i = 0; i < n; ++i) {
    // Adding 1.5 * 2^23 leaves no fraction bits: the addition does the rounding.
    codes[i] = static_cast<uint8_t>(std::bit_cast<uint32_t>(x[i] * inverse + 0x1.8p23f));
  }
  return largest / 127.0f;
}

template <class V>
int64_t argmax_row(const float* x, int64_t n) {
  int64_t i = 0;
  float largest = x[0];
  if (n >= V::kLanes) {
    V peak = V::load(x);
    for (i = V::kLanes; i + V::kLanes <= n; i += V::kLanes) peak = V::max(V::load(x + i), peak);
    largest = V::tree_max(peak);
  }
  for (; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  const V wanted = V::all(largest);
  for (i = 0; i + V::kLanes <= n; i += V::kLanes) {
    if (const uint32_t mask = V::equal_mask(V::load(x + i), wanted); mask != 0) return i + __builtin_ctz(mask);
  }
  for (; i < n; ++i) {
    if (x[i] == largest) return i;
  }
  return 0;  // only NaN
}

}  // namespace gristmill::device::cpu
