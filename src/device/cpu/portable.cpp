// The kernels in plain C++: the definition of every kernel's arithmetic, and what runs where no other set does.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/half.h"
#include "device/cpu/attention_layout.h"
#include "device/cpu/kernel_table.h"
#include "device/cpu/kernels.h"
#include "device/cpu/portable_lanes.h"

namespace gristmill::device::cpu {
namespace {

int code_at(const PackedWeight& w, const uint8_t* codes, int column, int k) {
  constexpr int kHalf = kGroup / 2;
  if (w.cls == ComputeClass::i8_group) return static_cast<int8_t>(codes[(k / 4 * w.panel + column) * 4 + k % 4]);
  const uint8_t byte = codes[(k % kHalf / 4 * w.panel + column) * 4 + k % 4];
  return k < kHalf ? byte & 0x0f : byte >> 4;
}

void coded_linear(const PackedWeight& w, int64_t first, int64_t panels, const QuantizedBlock& x, float* y,
                  int64_t y_stride) {
  const int code_bytes = w.cls == ComputeClass::i4_group ? kGroup / 2 : kGroup;
  const bool has_offset = w.has_min || w.zero != 0.0f;
  for (int64_t i = 0; i < panels; ++i, y += w.panel) {
    for (int r = 0; r < x.rows; ++r) std::fill_n(y + r * y_stride, w.panel, 0.0f);
    for (int64_t group = 0; group < w.inputs / kGroup; ++group) {
      const std::byte* const block = w.panel_data(first + i) + static_cast<size_t>(group) * w.block_bytes;
      const auto* const codes = reinterpret_cast<const uint8_t*>(block);
      const auto* const table = reinterpret_cast<const uint16_t*>(block + code_bytes * w.panel);
      for (int column = 0; column < w.panel; ++column) {
        int column_codes[kGroup];
        for (int k = 0; k < kGroup; ++k) column_codes[k] = code_at(w, codes, column, k);
        const float scale = f16_to_f32(table[column]);
        const float min = w.has_min ? f16_to_f32(table[w.panel + column]) : 0.0f;
        const float offset = std::fma(-w.zero, scale, min);
        for (int r = 0; r < x.rows; ++r) {
          const int8_t* const row = x.codes + (group * x.rows + r) * kGroup;
          const GroupScale& s = x.scales[group * x.rows + r];
          int32_t sum = 0;
          for (int k = 0; k < kGroup; ++k) sum += column_codes[k] * row[k];
          float acc = y[r * y_stride + column];
          if (has_offset) acc = std::fma(offset, s.scaled_sum, acc);
          y[r * y_stride + column] = std::fma(static_cast<float>(sum), scale * s.scale, acc);
        }
      }
    }
  }
}

}  // namespace

void portable_channel_linear(const PackedWeight& w, int64_t first, int64_t panels, const TokenBlock& x, float* y,
                             int64_t y_stride) {
  const int64_t group = w.group == 0 ? w.inputs : w.group;
  std::vector<int8_t> codes(static_cast<size_t>(w.inputs));
  for (int64_t i = 0; i < panels; ++i, y += w.panel) {
    const std::byte* const panel = w.panel_data(first + i);
    const float* const scales = w.scales(panel);
    for (int column = 0; column < w.panel; ++column) {
      int32_t negative = 0;  // what the addends have too much for sets that complement
      for (int64_t k = 0; k < w.inputs; ++k) {
        const int code = channel_code(w, panel, column, k);
        codes[static_cast<size_t>(k)] = static_cast<int8_t>(code);
        if (w.complements) negative += std::max(0, -code);
      }
      for (int r = 0; r < x.rows; ++r) {
        const int8_t* const row = x.codes + r * kGroup;
        float acc = 0;
        for (int64_t begin = 0; begin < w.inputs; begin += group) {
          int32_t sum = 0;
          for (int64_t k = begin, end = std::min(begin + group, w.inputs); k < end;) {
            const int8_t* const block = row + k / kGroup * kGroup * x.rows - k / kGroup * kGroup;
            for (const int64_t stop = std::min(end, (k / kGroup + 1) * kGroup); k < stop; ++k)
              sum += codes[static_cast<size_t>(k)] * block[k];
          }
          if (w.group == 0) {
            acc = static_cast<float>(sum + w.addends(panel)[column] - negative) * scales[column];
          } else {
            acc = std::fma(static_cast<float>(sum), scales[begin / group * w.panel + column], acc);
          }
        }
        y[r * y_stride + column] = acc * x.scales[r].scale;
      }
    }
  }
}

const Kernels& portable_kernels() {
  static const Kernels kernels = [] {
    Kernels set = lane_kernels<PortableLanes, PortableLanes>();
    set.name = "portable";
    set.coded_panel = 8;
    set.biased_i8 = false;
    set.complements_i8 = false;
    set.v_chunk = 32;
    set.coded_linear = coded_linear;
    set.channel_linear = portable_channel_linear;
    return set;
  }();
  return kernels;
}

int tile_queries(int group) {
  return std::clamp(kTileRows / group, 1, 32);
}

size_t attention_scratch(const KvLayout& layout, int group) {
  return TileScratch::bytes(layout, tile_queries(group) * group);
}

}  // namespace gristmill::device::cpu
