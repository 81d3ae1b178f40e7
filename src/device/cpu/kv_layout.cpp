#include "device/cpu/kv_layout.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gristmill::device::cpu {
namespace {

constexpr int kUnit = 32;  // dimensions of V among which bf16 is paired

int round_up(int value, int multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

KvLayout::KvLayout(DType type, int kv_heads, int dim, int size, int wide_chunk)
    : dtype(type), heads(kv_heads), head_dim(dim), block_size(size) {
  block_shift = std::countr_zero(static_cast<unsigned>(block_size));
  tile = std::min(32, block_size);
  chunk = head_dim % wide_chunk == 0 ? wide_chunk : kUnit;
  k_dim = round_up(head_dim, 2);
  v_dim = round_up(head_dim, chunk);
  const size_t scale_bytes = scaled() ? sizeof(float) : 0;
  k_tile_bytes = (k_dim * size_of(dtype) + scale_bytes) * tile;
  v_tile_bytes = (v_dim * size_of(dtype) + scale_bytes) * tile;
  k_head_bytes = k_tile_bytes * (block_size / tile);
  v_head_bytes = v_tile_bytes * (block_size / tile);
}

void KvLayout::write_k(std::byte* block, int slot, const float* values) const {
  auto* const to = reinterpret_cast<float*>(block) + static_cast<size_t>(slot / tile) * k_dim * tile + slot % tile;
  for (int d = 0; d < head_dim; ++d) to[d * tile] = values[d];
}

void KvLayout::write_k(std::byte* block, int slot, const uint16_t* values) const {
  auto* const to = reinterpret_cast<uint16_t*>(block) + static_cast<size_t>(slot / tile) * k_dim * tile;
  if (dtype == DType::f16) {
    for (int d = 0; d < head_dim; ++d) to[d * tile + slot % tile] = values[d];
    return;
  }
  auto* const pairs = to + slot % tile * 2;
  for (int d = 0; d + 1 < head_dim; d += 2) std::memcpy(pairs + d * tile, values + d, 4);
  if (head_dim % 2 != 0) pairs[(head_dim - 1) * tile] = values[head_dim - 1];
}

void KvLayout::write_v(std::byte* block, int slot, const float* values) const {
  auto* const to = reinterpret_cast<float*>(block) + static_cast<size_t>(slot / tile) * v_dim * tile;
  for (int first = 0; first < head_dim; first += chunk) {
    std::copy_n(values + first, std::min(chunk, head_dim - first), to + first * tile + slot % tile * chunk);
  }
}

void KvLayout::write_v(std::byte* block, int slot, const uint16_t* values) const {
  auto* const to = reinterpret_cast<uint16_t*>(block) + static_cast<size_t>(slot / tile) * v_dim * tile;
  for (int first = 0; first < head_dim; first += kUnit) {
    auto* const row = to + first / chunk * chunk * tile + slot % tile * chunk + first % chunk;
    const int count = std::min(kUnit, head_dim - first);
    if (dtype == DType::f16) {
      std::copy_n(values + first, count, row);
      continue;
    }
    for (int i = 0; i < count; ++i) row[i % 16 * 2 + i / 16] = values[first + i];
  }
}

void KvLayout::write_k(std::byte* block, int slot, const uint8_t* codes, float scale) const {
  std::byte* const to = block + slot / tile * k_tile_bytes;
  if (dtype == DType::i8) {
    for (int d = 0; d < head_dim; ++d) to[(d / 2 * tile + slot % tile) * 2 + d % 2] = std::byte{codes[d]};
  } else {
    for (int d = 0; d < head_dim; ++d) to[d * tile + slot % tile] = std::byte{codes[d]};
  }
  std::memcpy(to + k_dim * tile + slot % tile * sizeof scale, &scale, sizeof scale);
}

void KvLayout::write_v(std::byte* block, int slot, const uint8_t* codes, float scale) const {
  std::byte* const to = block + slot / tile * v_tile_bytes;
  for (int first = 0; first < head_dim; first += chunk) {
    const int count = std::min(chunk, head_dim - first);
    if (dtype == DType::i8) {
      std::byte* const pairs = to + first * tile + slot % tile / 2 * 2 * chunk + slot % 2;
      for (int i = 0; i < count; ++i) pairs[2 * i] = std::byte{codes[first + i]};
    } else {
      std::memcpy(to + first * tile + slot % tile * chunk, codes + first, count);
    }
  }
  std::memcpy(to + v_dim * tile + slot % tile * sizeof scale, &scale, sizeof scale);
}

}  // namespace gristmill::device::cpu
