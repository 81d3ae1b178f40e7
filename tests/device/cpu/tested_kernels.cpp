#include "device/cpu/tested_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "base/float8.h"
#include "device/cpu/amx_linear.h"
#include "device/cpu/attention_layout.h"
#include "device/cpu/avx2_channel_linear.h"
#include "device/cpu/avx2_coded_linear.h"
#include "device/cpu/avx512_channel_linear.h"
#include "device/cpu/avx512_coded_linear.h"
#include "device/cpu/emulated_amx.h"
#include "device/cpu/emulated_x86.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernel_table.h"
#include "device/cpu/portable_lanes.h"

namespace gristmill::device::cpu {
namespace {

template <class Isa>
Kernels emulated_256(const char* name) {
  Kernels set = portable_kernels();  // the lane kernels of 8 lanes
  set.name = name;
  set.coded_panel = 8;
  set.biased_i8 = Isa::kDot;
  set.complements_i8 = !Isa::kDot;
  set.coded_linear = avx2_coded_linear<Isa>;
  set.channel_linear = avx2_channel_linear<Isa>;
  return set;
}

Kernels emulated_512() {
  Kernels set = lane_kernels<PortableLanesOf<16>, PortableLanes>();
  set.name = "avx512-emulated";
  set.coded_panel = kPanel512;
  set.biased_i8 = true;
  set.complements_i8 = false;
  set.v_chunk = 64;
  set.coded_linear = avx512_coded_linear<EmulatedVnni<16>>;
  set.channel_linear = avx512_channel_linear<EmulatedVnni<16>>;
  return set;
}

/// As in amx.cpp, but in tiles for any number of rows.
Kernels emulated_amx() {
  Kernels set = emulated_512();
  set.name = "amx-emulated";
  set.coded_linear = amx_coded_linear<EmulatedTiles, EmulatedVnni<16>>;
  set.channel_linear = [](const PackedWeight& w, int64_t first, int64_t panels, const TokenBlock& x, float* y,
                          int64_t y_stride) {
    if (!amx_takes(w)) return portable_channel_linear(w, first, panels, x, y, y_stride);
    amx_channel_linear<EmulatedTiles, EmulatedVnni<16>>(w, first, panels, x, y, y_stride);
  };
  return set;
}

}  // namespace

std::vector<const Kernels*> tested_kernels() {
  static const Kernels emulated[] = {emulated_256<EmulatedAvx2>("avx2-emulated"),
                                     emulated_256<EmulatedVnni<8>>("avxvnni-emulated"), emulated_512(), emulated_amx()};
  std::vector<const Kernels*> sets = usable_kernels();
  if (std::getenv("GRISTMILL_TEST_NO_EMULATION") != nullptr) return sets;
  for (const Kernels& set : emulated) sets.push_back(&set);
  return sets;
}

}  // namespace gristmill::device::cpu
