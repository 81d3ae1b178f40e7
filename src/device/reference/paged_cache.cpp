#include "device/reference/paged_cache.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/float8.h"
#include "base/half.h"

namespace gristmill::device::reference {
namespace {

struct F32 {
  using Stored = float;
  static float load(Stored value) { return value; }
  static Stored save(float value) { return value; }
};
struct Bf16 {
  using Stored = uint16_t;
  static float load(Stored value) { return bf16_to_f32(value); }
  static Stored save(float value) { return f32_to_bf16(value); }
};
struct F16 {
  using Stored = uint16_t;
  static float load(Stored value) { return f16_to_f32(value); }
  static Stored save(float value) { return f32_to_f16(value); }
};

/// Codes of the scaled types: what is stored, times the scale of its head, is the value. The largest magnitude gets the
/// largest code.
struct I8 {
  using Stored = int8_t;
  static constexpr float largest = 127;
  static float load(Stored value) { return value; }
  static Stored save(float value) { return static_cast<Stored>(std::nearbyint(value)); }
};
struct E4m3 {
  using Stored = uint8_t;
  static constexpr float largest = 448;
  static float load(Stored value) { return fp8_e4m3_to_f32(value); }
  static Stored save(float value) { return f32_to_fp8_e4m3(value); }
};

template <class Element>
constexpr bool scaled = sizeof(typename Element::Stored) == 1;

/// One head of one token, and behind it the scale of the scaled types.
template <class Element>
void save_head(const float* from, int count, std::byte* to) {
  auto* const stored = reinterpret_cast<typename Element::Stored*>(to);
  if constexpr (scaled<Element>) {
    float peak = 0;
    for (int i = 0; i < count; ++i) peak = std::fmax(peak, std::fabs(from[i]));
    const bool zero = peak < 1e-30f;
    const float inverse = zero ? 0 : Element::largest / peak, scale = zero ? 0 : peak / Element::largest;
    for (int i = 0; i < count; ++i) stored[i] = Element::save(from[i] * inverse);
    std::memcpy(to + count, &scale, sizeof scale);
  } else {
    for (int i = 0; i < count; ++i) stored[i] = Element::save(from[i]);
  }
}

template <class Element>
float scale_of(const typename Element::Stored* head, int count) {
  if constexpr (!scaled<Element>) return 1;
  float scale = 0;
  std::memcpy(&scale, head + count, sizeof scale);
  return scale;
}

/// Calls run with the element type.
template <class Run>
void with_element(DType dtype, Run run) {
  switch (dtype) {
    case DType::bf16:
      return run.template operator()<Bf16>();
    case DType::f16:
      return run.template operator()<F16>();
    case DType::i8:
      return run.template operator()<I8>();
    case DType::fp8_e4m3:
      return run.template operator()<E4m3>();
    default:
      return run.template operator()<F32>();
  }
}

}  // namespace

PagedCache::PagedCache(const std::vector<CacheDecl>& layers, const CacheOptions& options)
    : dtype_(options.dtype), block_size_(options.block_size) {
  if (block_size_ < 8 || block_size_ > 256 || !std::has_single_bit(static_cast<unsigned>(block_size_)))
    throw Error(cat("a cache block must hold a power of two of tokens from 8 to 256, not ", block_size_));
  for (const CacheDecl& layer : layers) {
    layers_.push_back({block_bytes_, layer.kv_heads, layer.head_dim});
    block_bytes_ +=
        2 * static_cast<size_t>(block_size_) * static_cast<size_t>(layer.kv_heads) * head_bytes(layer.head_dim);
  }
}

void PagedCache::reserve(int blocks) {
  memory_ = ReservedMemory(static_cast<size_t>(blocks) * block_bytes_, "the cache");
  blocks_ = blocks;
}

size_t PagedCache::head_bytes(int head_dim) const {
  return static_cast<size_t>(head_dim) * size_of(dtype_) + (size_of(dtype_) == 1 ? sizeof(float) : 0);
}

std::byte* PagedCache::head(const Layer& layer, std::span<const int32_t> table, int32_t position, bool value,
                            int index) const {
  return token(layer, table, position, value) + static_cast<size_t>(index) * head_bytes(layer.head_dim);
}

std::byte* PagedCache::token(const Layer& layer, std::span<const int32_t> table, int32_t position, bool value) const {
  const auto block = static_cast<size_t>(table[static_cast<size_t>(position / block_size_)]);
  const size_t slot = static_cast<size_t>(position % block_size_) + (value ? static_cast<size_t>(block_size_) : 0);
  const size_t token_bytes = static_cast<size_t>(layer.kv_heads) * head_bytes(layer.head_dim);
  return memory_.data() + block * block_bytes_ + layer.offset + slot * token_bytes;
}

void PagedCache::store_static(const CacheScales& scales, const Layer& layer, std::span<const int32_t> table,
                              int32_t position, const float* k, const float* v) {
  const auto save = [&](bool value, const float* x, const std::vector<float>& scale, const std::vector<float>& offset) {
    for (int i = 0; i < layer.kv_heads; ++i) {
      auto* const codes = reinterpret_cast<int8_t*>(head(layer, table, position, value, i));
      for (int d = 0; d < layer.head_dim; ++d) {
        const auto channel = static_cast<size_t>(i * layer.head_dim + d);
        const float exact = x[channel] * (1.0f / scale[channel]) + offset[channel];
        // Not-a-number counts as the lowest.
        codes[d] = static_cast<int8_t>(std::nearbyint(exact > -128.0f ? std::fmin(exact, 127.0f) : -128.0f));
      }
    }
  };
  save(false, k, scales.k_scale, scales.k_offset);
  save(true, v, scales.v_scale, scales.v_offset);
}

void PagedCache::attend_static(const Attention& attention, std::span<const int32_t> table, int32_t position,
                               const float* q, float* scores, float* out) const {
  const Layer& layer = layers_[attention.cache.id];
  const CacheScales& scales = *attention.cache_scales;
  const int dim = attention.head_dim, group = attention.heads / attention.kv_heads;
  for (int h = 0; h < attention.heads; ++h, q += dim, out += dim) {
    const auto first = static_cast<size_t>(h / group * dim);
    const auto stored = [&](int32_t at, bool value) {
      return reinterpret_cast<const int8_t*>(head(layer, table, at, value, h / group));
    };
    float highest = -INFINITY;
    for (int32_t at = 0; at <= position; ++at) {
      const int8_t* const k = stored(at, false);
      float dot = 0;
      for (int d = 0; d < dim; ++d)
        dot += q[d] * ((static_cast<float>(k[d]) - scales.k_offset[first + d]) * scales.k_scale[first + d]);
      scores[at] = dot * attention.scale;
      highest = std::fmax(highest, scores[at]);
    }
    float sum = 0;
    for (int d = 0; d < dim; ++d) out[d] = 0;
    for (int32_t at = 0; at <= position; ++at) {
      const float weight = std::exp(scores[at] - highest);
      const int8_t* const v = stored(at, true);
      sum += weight;
      for (int d = 0; d < dim; ++d)
        out[d] += weight * ((static_cast<float>(v[d]) - scales.v_offset[first + d]) * scales.v_scale[first + d]);
    }
    for (int d = 0; d < dim; ++d) out[d] /= sum;
  }
}

void PagedCache::store(const Attention& attention, std::span<const int32_t> table, int32_t position, const float* k,
                       const float* v) {
  const Layer& at = layers_[attention.cache.id];
  if (is_static(attention)) return store_static(*attention.cache_scales, at, table, position, k, v);
  with_element(dtype_, [&]<class Element>() {
    for (int i = 0; i < at.kv_heads; ++i) {
      save_head<Element>(k + i * at.head_dim, at.head_dim, head(at, table, position, false, i));
      save_head<Element>(v + i * at.head_dim, at.head_dim, head(at, table, position, true, i));
    }
  });
}

template <class Element>
void PagedCache::attend_as(const Attention& attention, std::span<const int32_t> table, int32_t position, const float* q,
                           float* scores, float* out) const {
  const Layer& layer = layers_[attention.cache.id];
  const int dim = attention.head_dim;
  const int group = attention.heads / attention.kv_heads;
  for (int h = 0; h < attention.heads; ++h, q += dim, out += dim) {
    const auto stored = [&](int32_t at, bool value) {
      return reinterpret_cast<const typename Element::Stored*>(head(layer, table, at, value, h / group));
    };
    float highest = -INFINITY;
    for (int32_t at = 0; at <= position; ++at) {
      const auto* const k = stored(at, false);
      float dot = 0;
      for (int i = 0; i < dim; ++i) dot += q[i] * Element::load(k[i]);
      scores[at] = dot * scale_of<Element>(k, dim) * attention.scale;
      highest = std::fmax(highest, scores[at]);
    }
    float sum = 0;
    for (int i = 0; i < dim; ++i) out[i] = 0;
    for (int32_t at = 0; at <= position; ++at) {
      const float weight = std::exp(scores[at] - highest);
      const auto* const v = stored(at, true);
      sum += weight;
      const float scaled_weight = weight * scale_of<Element>(v, dim);
      for (int i = 0; i < dim; ++i) out[i] += scaled_weight * Element::load(v[i]);
    }
    for (int i = 0; i < dim; ++i) out[i] /= sum;
  }
}

void PagedCache::attend(const Attention& attention, std::span<const int32_t> table, int32_t position, const float* q,
                        float* scores, float* out) const {
  if (is_static(attention)) return attend_static(attention, table, position, q, scores, out);
  with_element(dtype_, [&]<class Element>() { attend_as<Element>(attention, table, position, q, scores, out); });
}

}  // namespace gristmill::device::reference
