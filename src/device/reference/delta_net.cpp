#include "device/reference/delta_net.h"

#include <algorithm>
#include <cmath>

#include "device/reference/scalar_ops.h"

namespace gristmill::device::reference {
namespace {

size_t product(int a, int b) {
  return static_cast<size_t>(a) * static_cast<size_t>(b);
}

float dot(const float* x, const float* y, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

/// x / sqrt(sum x^2 + 1e-6) * factor, in place.
void l2_normalize(float* x, int count, float factor) {
  const float scale = 1.0f / std::sqrt(dot(x, x, count) + 1e-6f) * factor;
  for (int i = 0; i < count; ++i) x[i] *= scale;
}

float softplus(float x) {
  return x > 20.0f ? x : std::log1p(std::exp(x));
}

/// Channels of a group within qkv: its query head, its key head, its value heads.
struct ChannelRange {
  int first, count;
};

/// silu of the causal convolution for `range`, from the ring of inputs.
void convolve(const DeltaNet& op, const float* conv, ChannelRange range, const float* inputs, int stride,
              int32_t position, float* out) {
  const int width = op.conv_width;
  for (int c = 0; c < range.count; ++c) {
    const float* const taps = conv + product(range.first + c, width);
    float sum = 0;
    for (int j = 0; j < width; ++j) {
      const int32_t at = position - (width - 1) + j;
      if (at >= 0) sum += taps[j] * inputs[product(at % width, stride) + static_cast<size_t>(c)];
    }
    out[c] = silu(sum);
  }
}

/// S0 <- e^{G_last} S0 + sum_j e^{G_last - G_j} k_j n_j' over tokens 0..last, of value head h; `from` may be `to`.
void fold(const DeltaNet& op, const DeltaNetLayout& layout, const float* state, int h, int last, const float* from,
          float* to) {
  const float* const decay = state + layout.decay + h;
  const float g = decay[product(last, layout.values)];
  const float kept = std::exp(g);
  for (int r = 0; r < op.k_dim; ++r)
    for (int c = 0; c < op.v_dim; ++c) to[r * op.v_dim + c] = kept * from[r * op.v_dim + c];
  for (int j = 0; j <= last; ++j) {
    const float weight = std::exp(g - decay[product(j, layout.values)]);
    const float* const k = state + layout.key + product(j, op.k_dim);
    const float* const n = state + layout.write + product(j * layout.values + h, op.v_dim);
    for (int r = 0; r < op.k_dim; ++r) {
      const float scaled = weight * k[r];
      for (int c = 0; c < op.v_dim; ++c) to[r * op.v_dim + c] += scaled * n[c];
    }
  }
}

}  // namespace

DeltaNetLayout::DeltaNetLayout(const StateDecl& decl)
    : values(decl.v_heads / decl.k_heads), channels(2 * decl.k_dim + values * decl.v_dim) {
  decay = product(decl.conv_width, channels);
  key = decay + product(kDeltaChunk, values);
  write = key + product(kDeltaChunk, decl.k_dim);
  folded = write + product(kDeltaChunk, values) * static_cast<size_t>(decl.v_dim);
  group_floats = folded + product(values, decl.k_dim) * static_cast<size_t>(decl.v_dim);
  group_floats = (group_floats + 15) / 16 * 16;
  floats = group_floats * static_cast<size_t>(decl.k_heads);
}

size_t delta_net_work(const DeltaNetLayout& layout, const DeltaNet& op) {
  return static_cast<size_t>(layout.channels) + static_cast<size_t>(2 * kDeltaChunk) +
         2 * static_cast<size_t>(op.v_dim);
}

void delta_net_token(const DeltaNet& op, const DeltaNetLayout& layout, const DeltaNetWeights& weights,
                     const DeltaNetRow& row, int group, int32_t position, float* state, float* work) {
  const int keys = op.k_heads * op.k_dim, values = layout.values, stride = layout.channels;
  const ChannelRange q_range{group * op.k_dim, op.k_dim};
  const ChannelRange k_range{keys + group * op.k_dim, op.k_dim};
  if (position == 0) std::fill_n(state + layout.folded, product(values, op.k_dim) * static_cast<size_t>(op.v_dim), 0.f);

  float* const q = work;
  float* const k = q + op.k_dim;
  float* const v = k + op.k_dim;
  float* const k_dots = work + stride;  // k_i.k_j, q_i.k_j
  float* const q_dots = k_dots + kDeltaChunk;
  float* const read = q_dots + kDeltaChunk;  // S0'k, then o
  float* const o = read + op.v_dim;

  float* const input = state + product(position % op.conv_width, stride);
  int at = 0;
  const auto take = [&](const ChannelRange& range) {
    std::copy_n(row.qkv + range.first, range.count, input + at);
    convolve(op, weights.conv, range, state + at, stride, position, work + at);
    at += range.count;
  };
  const auto head_of = [&](int h) { return op.tiled ? h * op.k_heads + group : group * values + h; };
  take(q_range);
  take(k_range);
  for (int h = 0; h < values; ++h) take({2 * keys + head_of(h) * op.v_dim, op.v_dim});
  l2_normalize(q, op.k_dim, 1.0f / std::sqrt(static_cast<float>(op.k_dim)));
  l2_normalize(k, op.k_dim, 1.0f);

  const int i = position % kDeltaChunk;
  std::copy_n(k, op.k_dim, state + layout.key + product(i, op.k_dim));
  for (int j = 0; j <= i; ++j) {
    const float* const key = state + layout.key + product(j, op.k_dim);
    k_dots[j] = dot(k, key, op.k_dim);
    q_dots[j] = dot(q, key, op.k_dim);
  }
  float* const decay = state + layout.decay;
  for (int h = 0; h < values; ++h) {
    const int head = head_of(h);
    const float beta = sigmoid(row.b[head]);
    const float g = -std::exp(weights.a_log[head]) * softplus(row.a[head] + weights.dt_bias[head]);
    const float total = i == 0 ? g : decay[product(i - 1, values) + static_cast<size_t>(h)] + g;
    decay[product(i, values) + static_cast<size_t>(h)] = total;

    const float* const s0 = state + layout.folded + product(h, op.k_dim) * static_cast<size_t>(op.v_dim);
    const float kept = std::exp(total);
    std::fill_n(read, op.v_dim, 0.0f);
    std::fill_n(o, op.v_dim, 0.0f);
    for (int r = 0; r < op.k_dim; ++r)
      for (int c = 0; c < op.v_dim; ++c) {
        read[c] += s0[r * op.v_dim + c] * k[r];
        o[c] += s0[r * op.v_dim + c] * q[r];
      }
    float* const n = state + layout.write + product(i * values + h, op.v_dim);
    for (int c = 0; c < op.v_dim; ++c) {
      n[c] = v[h * op.v_dim + c] - kept * read[c];
      o[c] *= kept;
    }
    for (int j = 0; j <= i; ++j) {
      const float* const written = state + layout.write + product(j * values + h, op.v_dim);
      const float weight = std::exp(total - decay[product(j, values) + static_cast<size_t>(h)]);
      if (j < i) {
        const float k_weight = weight * k_dots[j];
        for (int c = 0; c < op.v_dim; ++c) n[c] -= k_weight * written[c];
      } else {
        for (int c = 0; c < op.v_dim; ++c) n[c] *= beta;
      }
      const float q_weight = weight * q_dots[j];
      for (int c = 0; c < op.v_dim; ++c) o[c] += q_weight * written[c];
    }
    float* const out = row.out + product(head, op.v_dim);
    rms_norm(o, op.v_dim, weights.out_norm, op.out_norm.eps, out);
    const float* const z = row.z + product(head, op.v_dim);
    for (int c = 0; c < op.v_dim; ++c) out[c] *= silu(z[c]);
  }
  if (i + 1 < kDeltaChunk) return;
  for (int h = 0; h < values; ++h) {
    float* const s0 = state + layout.folded + product(h, op.k_dim) * static_cast<size_t>(op.v_dim);
    fold(op, layout, state, h, i, s0, s0);
  }
}

void delta_net_state(const DeltaNet& op, const DeltaNetLayout& layout, const float* state, int32_t tokens, float* out) {
  const int buffered = tokens % kDeltaChunk;
  const size_t size = product(op.k_dim, op.v_dim);
  for (int h = 0; h < layout.values; ++h) {
    const float* const s0 = state + layout.folded + static_cast<size_t>(h) * size;
    float* const to = out + static_cast<size_t>(h) * size;
    if (buffered == 0) {
      std::copy_n(s0, size, to);
    } else {
      fold(op, layout, state, h, buffered - 1, s0, to);
    }
  }
}

}  // namespace gristmill::device::reference
