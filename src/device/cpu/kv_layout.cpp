#include "device/cpu/kv_layout.h"

#include <algorithm>

#include "base/half.h"

namespace gristmill::device::cpu {
namespace {

constexpr int kChunk = 32;

int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

uint16_t round_to(DType dtype, float value) {
  return dtype == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
}

}  // namespace

KvLayout::KvLayout(DType type, int kv_heads, int dim, int size)
    : dtype(type), heads(kv_heads), head_dim(dim), block_size(size) {
  tile = std::min(16, block_size);
  k_dim = round_up(head_dim, 2);
  v_dim = round_up(head_dim, kChunk);
  k_head_bytes = static_cast<size_t>(k_dim) * block_size * size_of(dtype);
  v_head_bytes = static_cast<size_t>(v_dim) * block_size * size_of(dtype);
  block_bytes = (heads * (k_head_bytes + v_head_bytes) + 63) / 64 * 64;
}

void KvLayout::write_k(std::byte* block, int head, int slot, const float* values) const {
  std::byte* const base =
      block + head * k_head_bytes + static_cast<size_t>(slot / tile) * k_dim * tile * size_of(dtype);
  const int lane = slot % tile;
  if (dtype == DType::f32) {
    auto* const to = reinterpret_cast<float*>(base) + lane;
    for (int d = 0; d < head_dim; ++d) to[d * tile] = values[d];
  } else if (dtype == DType::f16) {
    auto* const to = reinterpret_cast<uint16_t*>(base) + lane;
    for (int d = 0; d < head_dim; ++d) to[d * tile] = f32_to_f16(values[d]);
  } else {
    auto* const to = reinterpret_cast<uint32_t*>(base) + lane;
    for (int d = 0; d < head_dim; d += 2) {
      const uint32_t even = f32_to_bf16(values[d]), odd = d + 1 < head_dim ? f32_to_bf16(values[d + 1]) : 0u;
      to[d / 2 * tile] = even | (odd << 16);
    }
  }
}

void KvLayout::write_v(std::byte* block, int head, int slot, const float* values) const {
  std::byte* const base = block + heads * k_head_bytes + head * v_head_bytes;
  for (int first = 0; first < head_dim; first += kChunk) {
    const size_t row = (static_cast<size_t>(first / kChunk) * block_size + slot) * kChunk;
    const int count = std::min(kChunk, head_dim - first);
    if (dtype == DType::f32) {
      std::copy_n(values + first, count, reinterpret_cast<float*>(base) + row);
      continue;
    }
    auto* const to = reinterpret_cast<uint16_t*>(base) + row;
    for (int i = 0; i < count; ++i) {
      const int place = dtype == DType::bf16 ? (i % 16) * 2 + i / 16 : i;
      to[place] = round_to(dtype, values[first + i]);
    }
  }
}

}  // namespace gristmill::device::cpu
