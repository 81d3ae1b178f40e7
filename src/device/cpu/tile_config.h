#pragma once
#include <cstdint>

namespace gristmill::device::cpu {

/// What LDTILECFG reads (Intel's manual, volume 1, "Tile configuration"): palette 1 has eight tiles of up to 16 rows of
/// up to 64 bytes. A tile without rows cannot be used.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace gristmill::device::cpu
