#pragma once
// Integer products of codes for AArch64 with SVE vectors of 256 bits. Include inside a target region with sve and i8mm,
// after sve_lanes.h.
//
// A panel is 8 outputs, one per 32-bit lane of one register. As with NEON (neon_products.h) one row goes by sdot, with
// 16 bytes of activations in both halves of the register, and pairs of rows by smmla, which does in each half what
// NEON's does.
#include <arm_sve.h>

#include "device/cpu/kernels.h"
#include "device/cpu/sve_lanes.h"
#include "device/cpu/target.h"

namespace gristmill::device::cpu {
namespace {

/// The eight steps of a group. 4-bit codes hold steps i and i + 4 in the halves of a byte.
template <bool kNibbles>
struct SveGroup {
  SveBytes steps[8];

  explicit SveGroup(const std::byte* block) {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(block);
    const svbool_t every = svptrue_b8();
    GRISTMILL_UNROLL
    for (int i = 0; i < (kNibbles ? 4 : 8); ++i) {
      const svuint8_t both = svld1_u8(every, bytes + 32 * i);
      if constexpr (kNibbles) {
        steps[i] = svreinterpret_s8_u8(svand_n_u8_x(every, both, 0x0f));
        steps[i + 4] = svreinterpret_s8_u8(svlsr_n_u8_x(every, both, 4));
      } else {
        steps[i] = svreinterpret_s8_u8(both);
      }
    }
  }
};

/// Integer sums of kRows rows by the eight outputs of a panel.
template <int kRows>
struct SveSums {
  static constexpr bool kPairs = kRows % 2 == 0;
  /// By sdot, of row r: [r]. By smmla, of rows 2i and 2i + 1 and outputs 0 to 3 at [2i], 4 to 7 at [2i + 1]: in each
  /// half the first row's two, then the second's two.
  SveInts lanes[kRows];

  SveSums() {
    GRISTMILL_UNROLL
    for (int r = 0; r < kRows; ++r) lanes[r] = svdup_n_s32(0);
  }

  /// Adds a group's products; the codes of row r are codes + r * kGroup.
  template <bool kNibbles>
  void add(const SveGroup<kNibbles>& group, const int8_t* codes) {
    four_steps<0>(group, codes);
    four_steps<4>(group, codes + 16);
  }

  // Inlined always, as NeonSums::of.
  [[gnu::always_inline]] SveLanes::Ints of(int r) const {
    if constexpr (!kPairs) return {lanes[r]};
    const svint64_t low = svreinterpret_s64_s32(lanes[r / 2 * 2]), high = svreinterpret_s64_s32(lanes[r / 2 * 2 + 1]);
    return {svreinterpret_s32_s64(r % 2 == 0 ? svuzp1_s64(low, high) : svuzp2_s64(low, high))};
  }

 private:
  template <int kFirst, bool kNibbles>
  void four_steps(const SveGroup<kNibbles>& group, const int8_t* codes) {
    const svbool_t every = svptrue_b8();
    if constexpr (kPairs) {
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; r += 2) {
        // 8 inputs of one row and the same 8 of the next, in both halves: the first two steps, then the others.
        const svint64_t upper = svreinterpret_s64_s8(svld1rq_s8(every, codes + r * kGroup));
        const svint64_t lower = svreinterpret_s64_s8(svld1rq_s8(every, codes + (r + 1) * kGroup));
        two_steps<kFirst>(group, svreinterpret_s8_s64(svtrn1_s64(upper, lower)), r);
        two_steps<kFirst + 2>(group, svreinterpret_s8_s64(svtrn2_s64(upper, lower)), r);
      }
    } else {
      GRISTMILL_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const svint8_t x = svld1rq_s8(every, codes + r * kGroup);
        lanes[r] = svdot_lane_s32(lanes[r], group.steps[kFirst], x, 0);
        lanes[r] = svdot_lane_s32(lanes[r], group.steps[kFirst + 1], x, 1);
        lanes[r] = svdot_lane_s32(lanes[r], group.steps[kFirst + 2], x, 2);
        lanes[r] = svdot_lane_s32(lanes[r], group.steps[kFirst + 3], x, 3);
      }
    }
  }

  template <int kStep, bool kNibbles>
  void two_steps(const SveGroup<kNibbles>& group, svint8_t rows, int r) {
    const svint32_t a = svreinterpret_s32_s8(group.steps[kStep]), b = svreinterpret_s32_s8(group.steps[kStep + 1]);
    lanes[r] = svmmla_s32(lanes[r], rows, svreinterpret_s8_s32(svzip1_s32(a, b)));
    lanes[r + 1] = svmmla_s32(lanes[r + 1], rows, svreinterpret_s8_s32(svzip2_s32(a, b)));
  }
};

/// What the linears of codes for AArch64 (arm_coded_linear.h) are written over.
struct SveProducts {
  using Lanes = SveLanes;
  using Ints = SveLanes::Ints;
  template <bool kNibbles>
  using Group = SveGroup<kNibbles>;
  template <int kRows>
  using Sums = SveSums<kRows>;

  static Ints all(int32_t x) { return {svdup_n_s32(x)}; }
  static Ints load(const int32_t* p) { return {svld1_s32(svptrue_b32(), p)}; }
  static Ints add(Ints a, Ints b) { return {svadd_s32_x(svptrue_b32(), a.v, b.v)}; }
  static Ints sub(Ints a, Ints b) { return {svsub_s32_x(svptrue_b32(), a.v, b.v)}; }
};

}  // namespace
}  // namespace gristmill::device::cpu
