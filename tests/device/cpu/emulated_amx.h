#pragma once
// What the tile instructions do, in plain C++ after the operation sections of Intel's manual (Intel 64 and IA-32
// Architectures Software Developer's Manual, volume 2). What raises an exception there throws here.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/half.h"
#include "device/cpu/tile_config.h"

namespace gristmill::device::cpu {
namespace {  // as the kernels over it are

/// A thread's eight tiles. As on a machine, they keep what a kernel leaves behind: kernels that do not release them, or
/// count on their contents, are found out.
struct EmulatedTiles {
  static constexpr int kTiles = 8, kRows = 16, kRowBytes = 64;
  struct State {
    bool configured = false;
    TileConfig config;
    uint8_t data[kTiles][kRows][kRowBytes];
  };
  static State& state() {
    thread_local State tiles;
    return tiles;
  }

  static void fault(const char* what) { throw Error(cat("tile emulation: ", what)); }
  static int rows(int tile) { return state().config.rows[tile]; }
  static int row_bytes(int tile) { return state().config.row_bytes[tile]; }
  static void check(int tile) {
    if (!state().configured) fault("#UD, no configuration");
    if (rows(tile) == 0 || row_bytes(tile) == 0) fault("#UD, a tile without rows");
  }

  /// LDTILECFG: new sizes, and zeros in all tiles.
  static void configure(const TileConfig& config) {
    if (config.palette != 1 || config.start_row != 0) fault("#GP, palette or row");
    if (std::any_of(config.reserved, config.reserved + 14, [](uint8_t byte) { return byte != 0; }))
      fault("#GP, reserved bytes");
    for (int tile = 0; tile < 16; ++tile) {
      const int height = config.rows[tile], width = config.row_bytes[tile];
      if (tile >= kTiles && (height != 0 || width != 0)) fault("#GP, a tile that the palette has not");
      if (height > kRows || width > kRowBytes || (height == 0) != (width == 0)) fault("#GP, sizes of a tile");
    }
    state().config = config;
    state().configured = true;
    std::memset(state().data, 0, sizeof state().data);
  }
  /// TILERELEASE.
  static void release() {
    state().configured = false;
    std::memset(state().data, 0, sizeof state().data);
  }
  /// TILEZERO.
  template <int kTile>
  static void zero() {
    check(kTile);
    std::memset(state().data[kTile], 0, sizeof state().data[kTile]);
  }
  /// TILELOADD: what lies behind a row's bytes, and the rows behind the last, becomes zero.
  template <int kTile>
  static void load(const void* first, int64_t stride) {
    check(kTile);
    std::memset(state().data[kTile], 0, sizeof state().data[kTile]);
    for (int r = 0; r < rows(kTile); ++r)
      std::memcpy(state().data[kTile][r], static_cast<const uint8_t*>(first) + r * stride,
                  static_cast<size_t>(row_bytes(kTile)));
  }
  /// TILESTORED.
  template <int kTile>
  static void store(void* first, int64_t stride) {
    check(kTile);
    for (int r = 0; r < rows(kTile); ++r)
      std::memcpy(static_cast<uint8_t*>(first) + r * stride, state().data[kTile][r],
                  static_cast<size_t>(row_bytes(kTile)));
  }
  /// TDPBSUD: 32-bit sums that wrap; the rows behind the last become zero.
  template <int kSums, int kA, int kB>
  static void dot_signed_unsigned() {
    products<kSums, kA, kB>();
    auto& sums = state().data[kSums];
    const auto& a = state().data[kA];
    const auto& b = state().data[kB];
    for (int m = 0; m < rows(kSums); ++m) {
      for (int k = 0; k < row_bytes(kA) / 4; ++k) {
        for (int n = 0; n < row_bytes(kSums) / 4; ++n) {
          uint32_t sum;
          std::memcpy(&sum, sums[m] + 4 * n, 4);
          for (int i = 0; i < 4; ++i)
            sum += static_cast<uint32_t>(static_cast<int8_t>(a[m][4 * k + i]) * static_cast<int>(b[k][4 * n + i]));
          std::memcpy(sums[m] + 4 * n, &sum, 4);
        }
      }
    }
  }
  /// TDPBF16PS: the products of even and of odd elements apart, then their sum to what was there. Fused, to nearest
  /// even; denormals count as zero and become zero (DAZ, FTZ).
  template <int kSums, int kA, int kB>
  static void dot_bf16() {
    products<kSums, kA, kB>();
    auto& sums = state().data[kSums];
    for (int m = 0; m < rows(kSums); ++m) {
      for (int n = 0; n < row_bytes(kSums) / 4; ++n) {
        float apart[2] = {0.0f, 0.0f}, sum;
        for (int k = 0; k < row_bytes(kA) / 4; ++k)
          for (int i = 0; i < 2; ++i)
            apart[i] =
                flush(std::fma(bf16(state().data[kA][m], 2 * k + i), bf16(state().data[kB][k], 2 * n + i), apart[i]));
        std::memcpy(&sum, sums[m] + 4 * n, 4);
        sum = flush(flush(sum) + flush(apart[0] + apart[1]));
        std::memcpy(sums[m] + 4 * n, &sum, 4);
      }
    }
  }

 private:
  static float flush(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x; }
  static float bf16(const uint8_t* row, int i) {
    uint16_t word;
    std::memcpy(&word, row + 2 * i, 2);
    return flush(bf16_to_f32(word));
  }
  template <int kSums, int kA, int kB>
  static void products() {
    static_assert(kSums != kA && kSums != kB && kA != kB, "#UD, the same tile twice");
    check(kSums);
    check(kA);
    check(kB);
    if (rows(kSums) != rows(kA) || row_bytes(kSums) != row_bytes(kB) || row_bytes(kA) != 4 * rows(kB) ||
        row_bytes(kA) % 4 != 0 || row_bytes(kB) % 4 != 0)
      fault("#UD, tiles that do not fit each other");
    std::memset(state().data[kSums] + rows(kSums), 0, static_cast<size_t>((kRows - rows(kSums)) * kRowBytes));
  }
};

}  // namespace
}  // namespace gristmill::device::cpu
