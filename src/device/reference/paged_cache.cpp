#include "device/reference/paged_cache.h"

#include <bit>
#include <cmath>
#include <cstring>

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

template <class Element>
void save_row(const float* from, int count, std::byte* to) {
  auto* const stored = reinterpret_cast<typename Element::Stored*>(to);
  for (int i = 0; i < count; ++i) stored[i] = Element::save(from[i]);
}

}  // namespace

PagedCache::PagedCache(const std::vector<CacheDecl>& layers, const CacheOptions& options)
    : dtype_(options.dtype), block_size_(options.block_size) {
  if (dtype_ != DType::f32 && dtype_ != DType::bf16 && dtype_ != DType::f16)
    throw Error(cat("the reference back end keeps its cache in float32, bfloat16 or float16, not ", name_of(dtype_)));
  if (block_size_ < 8 || block_size_ > 256 || !std::has_single_bit(static_cast<unsigned>(block_size_)))
    throw Error(cat("a cache block must hold a power of two of tokens from 8 to 256, not ", block_size_));
  for (const CacheDecl& layer : layers) {
    layers_.push_back({block_bytes_, layer.kv_heads, layer.head_dim});
    block_bytes_ += 2 * static_cast<size_t>(block_size_) * static_cast<size_t>(layer.kv_heads) *
                    static_cast<size_t>(layer.head_dim) * size_of(dtype_);
  }
}

void PagedCache::reserve(int blocks) {
  memory_ = ReservedMemory(static_cast<size_t>(blocks) * block_bytes_, "the cache");
  blocks_ = blocks;
}

void PagedCache::copy(int32_t from, int32_t to) {
  std::memmove(memory_.data() + static_cast<size_t>(to) * block_bytes_,
               memory_.data() + static_cast<size_t>(from) * block_bytes_, block_bytes_);
}

std::byte* PagedCache::token(const Layer& layer, std::span<const int32_t> table, int32_t position, bool value) const {
  const auto block = static_cast<size_t>(table[static_cast<size_t>(position / block_size_)]);
  const size_t slot = static_cast<size_t>(position % block_size_) + (value ? static_cast<size_t>(block_size_) : 0);
  const size_t token_bytes =
      static_cast<size_t>(layer.kv_heads) * static_cast<size_t>(layer.head_dim) * size_of(dtype_);
  return memory_.data() + block * block_bytes_ + layer.offset + slot * token_bytes;
}

void PagedCache::store(size_t layer, std::span<const int32_t> table, int32_t position, const float* k, const float* v) {
  const Layer& at = layers_[layer];
  const int width = at.kv_heads * at.head_dim;
  for (const bool value : {false, true}) {
    const float* const from = value ? v : k;
    std::byte* const to = token(at, table, position, value);
    switch (dtype_) {
      case DType::bf16:
        save_row<Bf16>(from, width, to);
        break;
      case DType::f16:
        save_row<F16>(from, width, to);
        break;
      default:
        save_row<F32>(from, width, to);
        break;
    }
  }
}

template <class Element>
void PagedCache::attend_as(const Attention& attention, std::span<const int32_t> table, int32_t position, const float* q,
                           float* scores, float* out) const {
  const Layer& layer = layers_[attention.cache.id];
  const int dim = attention.head_dim;
  const int group = attention.heads / attention.kv_heads;
  for (int head = 0; head < attention.heads; ++head, q += dim, out += dim) {
    const auto stored = [&](int32_t at, bool value) {
      return reinterpret_cast<const typename Element::Stored*>(token(layer, table, at, value)) + head / group * dim;
    };
    float highest = -INFINITY;
    for (int32_t at = 0; at <= position; ++at) {
      const auto* const k = stored(at, false);
      float dot = 0;
      for (int i = 0; i < dim; ++i) dot += q[i] * Element::load(k[i]);
      scores[at] = dot * attention.scale;
      highest = std::fmax(highest, scores[at]);
    }
    float sum = 0;
    for (int i = 0; i < dim; ++i) out[i] = 0;
    for (int32_t at = 0; at <= position; ++at) {
      const float weight = std::exp(scores[at] - highest);
      const auto* const v = stored(at, true);
      sum += weight;
      for (int i = 0; i < dim; ++i) out[i] += weight * Element::load(v[i]);
    }
    for (int i = 0; i < dim; ++i) out[i] /= sum;
  }
}

void PagedCache::attend(const Attention& attention, std::span<const int32_t> table, int32_t position, const float* q,
                        float* scores, float* out) const {
  switch (dtype_) {
    case DType::bf16:
      return attend_as<Bf16>(attention, table, position, q, scores, out);
    case DType::f16:
      return attend_as<F16>(attention, table, position, q, scores, out);
    default:
      return attend_as<F32>(attention, table, position, q, scores, out);
  }
}

}  // namespace gristmill::device::reference
