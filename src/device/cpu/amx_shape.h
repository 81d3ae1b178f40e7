#pragma once
// How the linears for AMX use the tiles. Include inside a target region; `Tiles` names the instructions (amx_tiles.h).
//
// Tiles 0 to 3 hold the sums of two by two tiles of rows and outputs, 4 and 5 the activations of up to 16 rows each, 6
// and 7 the weights of 16 outputs each. Four bytes of an output lie together in a panel (four codes, or two bfloat16),
// so that the 64 bytes of 16 outputs are a row of a tile of weights, and a panel's halves are loaded as they lie.
#include <cstddef>
#include <cstdint>

#include "device/cpu/packed_weight.h"
#include "device/cpu/panel_ahead.h"
#include "device/cpu/tile_config.h"

namespace gristmill::device::cpu {
namespace {

constexpr int kAmxPanel = 32, kTileRowsMost = 16, kAmxRows = 2 * kTileRowsMost;
constexpr int64_t kStepBytes = 4 * kAmxPanel;

/// The thread's tiles, configured for up to 32 rows and a depth of `depth` bytes of inputs.
template <class Tiles>
class AmxShape {
 public:
  explicit AmxShape(int depth) {
    config_.row_bytes[4] = config_.row_bytes[5] = static_cast<uint16_t>(depth);
    config_.rows[6] = config_.rows[7] = static_cast<uint8_t>(depth / 4);
    for (int tile : {0, 1, 2, 3, 6, 7}) config_.row_bytes[tile] = 64;
  }
  ~AmxShape() { Tiles::release(); }
  AmxShape(const AmxShape&) = delete;
  AmxShape& operator=(const AmxShape&) = delete;

  void set_rows(int rows) {
    if (rows == rows_) return;
    rows_ = rows;
    upper_ = rows > kTileRowsMost ? (rows + 1) / 2 : rows;
    for (int tile : {0, 1, 4}) config_.rows[tile] = static_cast<uint8_t>(upper_);
    for (int tile : {2, 3, 5}) config_.rows[tile] = static_cast<uint8_t>(rows - upper_);
    for (int tile : {2, 3}) config_.row_bytes[tile] = rows > upper_ ? 64 : 0;
    config_.row_bytes[5] = rows > upper_ ? config_.row_bytes[4] : 0;
    Tiles::configure(config_);
  }
  int rows() const { return rows_; }

  void zero() const {
    Tiles::template zero<0>();
    Tiles::template zero<1>();
    if (!two()) return;
    Tiles::template zero<2>();
    Tiles::template zero<3>();
  }
  /// Adds activations [rows][x_stride bytes] times weights [depth / 4][kStepBytes], of bfloat16 or of codes.
  template <bool kBf16>
  void multiply(const void* x, int64_t x_stride, const std::byte* weights) const {
    Tiles::template load<6>(weights, kStepBytes);
    Tiles::template load<7>(weights + 64, kStepBytes);
    Tiles::template load<4>(x, x_stride);
    add_products<kBf16, 0, 4, 6>();
    add_products<kBf16, 1, 4, 7>();
    if (!two()) return;
    Tiles::template load<5>(static_cast<const std::byte*>(x) + upper_ * x_stride, x_stride);
    add_products<kBf16, 2, 5, 6>();
    add_products<kBf16, 3, 5, 7>();
  }
  /// The sums [rows][kAmxPanel], rows `stride` bytes apart.
  void store(void* sums, int64_t stride) const {
    std::byte* const to = static_cast<std::byte*>(sums);
    Tiles::template store<0>(to, stride);
    Tiles::template store<1>(to + 64, stride);
    if (!two()) return;
    Tiles::template store<2>(to + upper_ * stride, stride);
    Tiles::template store<3>(to + upper_ * stride + 64, stride);
  }

 private:
  template <bool kBf16, int kSums, int kRows, int kWeights>
  static void add_products() {
    if constexpr (kBf16) {
      Tiles::template dot_bf16<kSums, kRows, kWeights>();
    } else {
      Tiles::template dot_signed_unsigned<kSums, kRows, kWeights>();
    }
  }
  bool two() const { return rows_ > upper_; }
  TileConfig config_;
  int rows_ = 0, upper_ = 0;
};

/// Calls work(panel, ahead, row, to) for each panel and each pass of up to 32 rows over it.
template <class Tiles, class Work>
void amx_passes(const PackedWeight& w, int64_t first, int64_t panels, int rows, AmxShape<Tiles>& shape, float* y,
                int64_t y_stride, Work work) {
  const int passes = (rows + kAmxRows - 1) / kAmxRows;
  for (int64_t i = 0; i < panels; ++i, y += kAmxPanel) {
    const std::byte* const panel = w.panel_data(first + i);
    for (int pass = 0, row = 0; pass < passes; ++pass) {
      shape.set_rows(PanelAhead::rows_of(rows - row, passes - pass));
      work(panel, PanelAhead(w, panel, passes, pass), row, y + row * y_stride);
      row += shape.rows();
    }
  }
}

inline void prefetch(PanelAhead& ahead, int bytes) {
  if (ahead.next()) {
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch(ahead.data + i);
  }
  ahead.data += bytes;
}

}  // namespace
}  // namespace gristmill::device::cpu
