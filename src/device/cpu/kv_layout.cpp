#include "device/cpu/kv_layout.h"

#include <algorithm>
#include <bit>

#include "base/half.h"

namespace gristmill::device::cpu {
namespace {

constexpr int kUnit = 32;  // dimensions of V among which bf16 is paired

int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

uint16_t round_to(DType dtype, float value) {
  return dtype == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
}

}  // namespace

KvLayout::KvLayout(DType type, int kv_heads, int dim, int size, int wide_chunk)
    : dtype(type), heads(kv_heads), head_dim(dim), block_size(size) {
  block_shift = std::countr_zero(static_cast<unsigned>(block_size));
  tile = std::min(32, block_size);
  chunk = head_dim % wide_chunk == 0 ? wide_chunk : kUnit;
  k_dim = round_up(head_dim, 2);
  v_dim = round_up(head_dim, chunk);
  k_head_bytes = static_cast<size_t>(k_dim) * block_size * size_of(dtype);
  v_head_bytes = static_cast<size_t>(v_dim) * block_size * size_of(dtype);
}

void KvLayout::write_k(std::byte* block, int slot, const float* values) const {
  std::byte* const base = block + static_cast<size_t>(slot / tile) * k_dim * tile * size_of(dtype);
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

void KvLayout::write_v(std::byte* block, int slot, const float* values) const {
  std::byte* const base = block + static_cast<size_t>(slot / tile) * v_dim * tile * size_of(dtype);
  for (int first = 0; first < head_dim; first += kUnit) {
    const size_t row = static_cast<size_t>(first / chunk * tile + slot % tile) * chunk + first % chunk;
    const int count = std::min(kUnit, head_dim - first);
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
