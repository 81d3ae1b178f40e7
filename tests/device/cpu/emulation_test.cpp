// The emulated instructions against the machine's own, where it has them. Tiles cannot be compared here: their
// emulation is held against plain sums.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/half.h"
#include "device/cpu/emulated_amx.h"
#include "device/cpu/emulated_x86.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernels.h"
#include "device/cpu/target.h"
#if defined(__x86_64__)
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // as in avx512.cpp
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

GRISTMILL_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma,f16c")

#include "device/cpu/avx2_dot.h"
#include "device/cpu/avx512_bf16.h"
#include "device/cpu/avx512_vnni.h"

GRISTMILL_TARGET_END
#endif

namespace gristmill::device::cpu {
namespace {

#if defined(__x86_64__)
struct Operands {
  uint8_t a[64], b[64], c[64];
  float x[16], y[16], z[16];
  uint16_t halves[16];
};

/// Random bytes with extremes among them; floats of many sizes.
std::vector<Operands> operands() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const uint8_t extremes[] = {0x80, 0x7f, 0x81, 0xff, 0x00, 0x01};
  std::vector<Operands> all(200);
  for (Operands& o : all) {
    for (uint8_t* bytes : {o.a, o.b, o.c})
      for (int i = 0; i < 64; ++i)
        bytes[i] = random() % 2 == 0 ? extremes[random() % 6] : static_cast<uint8_t>(random());
    for (float* floats : {o.x, o.y, o.z})
      for (int i = 0; i < 16; ++i) floats[i] = std::ldexp(normal(random), static_cast<int>(random() % 40) - 20);
    for (uint16_t& half : o.halves) half = static_cast<uint16_t>(random() & 0xbbff);  // no infinity, no NaN
  }
  return all;
}

GRISTMILL_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")

/// The bytes that every instruction of a class gives.
template <class Isa>
std::vector<uint8_t> results(const Operands& o) {
  std::vector<uint8_t> out;
  const auto keep = [&](const auto& value) {
    uint8_t bytes[4 * Isa::kLanes];
    std::memcpy(bytes, &value, sizeof bytes);
    out.insert(out.end(), bytes, bytes + sizeof bytes);
  };
  const auto a = Isa::load_ints(o.a), b = Isa::load_ints(o.b), c = Isa::load_ints(o.c);
  const auto x = Isa::load(o.x), y = Isa::load(o.y), z = Isa::load(o.z);
  keep(Isa::zero_ints());
  keep(Isa::all_ints(-7));
  keep(Isa::add(a, b));
  keep(Isa::sub(a, b));
  keep(Isa::low_nibbles(a));
  keep(Isa::high_nibbles(a));
  keep(Isa::zero());
  keep(Isa::all(1.5f));
  keep(Isa::halves(o.halves));
  keep(Isa::floats(a));
  keep(Isa::mul(x, y));
  keep(Isa::fma(x, y, z));
  keep(Isa::fnma(x, y, z));
  if constexpr (requires { Isa::dot(a, b, c); }) {
    keep(Isa::dot(a, b, c));
  } else {
    keep(Isa::pairs(a, b));
    keep(Isa::add_pairs(a, b));
    keep(Isa::widen(a));
    keep(Isa::sizes(a));
    keep(Isa::signed_like(a, b));
    keep(Isa::negative(a));
    keep(Isa::flip(a, b));
  }
  float stored[Isa::kLanes];
  Isa::store(stored, x);
  keep(stored);
  return out;
}

GRISTMILL_TARGET_END

TEST(EmulatedInstructions, GiveTheBitsOfTheMachines) {
  bool has_avx512 = false;
  for (const Kernels* kernels : usable_kernels()) has_avx512 |= std::string(kernels->name) == "avx512";
  if (!has_avx512) GTEST_SKIP() << "this machine has no AVX-512 VNNI";
  for (const Operands& o : operands()) {
    ASSERT_EQ(results<EmulatedVnni<16>>(o), results<Avx512Vnni>(o));
    ASSERT_EQ(results<EmulatedAvx2>(o), results<Avx2Dot>(o));
  }
}

TEST(EmulatedInstructions, RoundToBfloat16AsTheMachineDoes) {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512bf16")) GTEST_SKIP() << "this machine has no AVX-512 BF16";
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) {
    float x[32];
    for (float& value : x) {
      // Any bits: denormals, infinities and NaN too, and ties.
      const auto bits = static_cast<uint32_t>(random());
      value = std::bit_cast<float>(i % 2 == 0 ? bits : (bits & 0xffff0000u) | 0x8000u);
    }
    if (i % 5 == 0) x[i % 32] = std::bit_cast<float>(static_cast<uint32_t>(random() & 0x807fffffu));
    for (const int count : {32, 31, 17, 16, 5, 0}) {
      uint16_t expected[32], got[32];
      EmulatedBf16::round(x, count, expected);
      Avx512Bf16::round(x, count, got);
      ASSERT_EQ(std::memcmp(got, expected, sizeof got), 0) << count;
    }
  }
}
#endif

TileConfig shapes(int rows, int outputs, int depth) {
  TileConfig config;
  const auto set = [&](int tile, int height, int bytes) {
    config.rows[tile] = static_cast<uint8_t>(height);
    config.row_bytes[tile] = static_cast<uint16_t>(bytes);
  };
  set(0, rows, 4 * outputs);
  set(1, rows, depth);
  set(2, depth / 4, 4 * outputs);
  return config;
}

TEST(EmulatedTiles, MultiplyAsPlainSums) {
  std::mt19937 random(2);
  for (const auto& [rows, outputs, depth] : {std::tuple{16, 16, 64}, {1, 16, 32}, {5, 3, 12}}) {
    int8_t a[16][64];
    uint8_t b[16][64];
    int32_t sums[16][16], expected[16][16];
    for (auto& row : a)
      for (int8_t& code : row) code = static_cast<int8_t>(random() % 3 == 0 ? -128 : static_cast<int>(random()));
    for (auto& row : b)
      for (uint8_t& code : row) code = static_cast<uint8_t>(random() % 3 == 0 ? 255 : random());
    for (int m = 0; m < rows; ++m)
      for (int n = 0; n < outputs; ++n) {
        expected[m][n] = sums[m][n] = static_cast<int32_t>(random());
        for (int k = 0; k < depth; ++k)
          expected[m][n] =
              static_cast<int32_t>(static_cast<uint32_t>(expected[m][n]) +
                                   static_cast<uint32_t>(a[m][k] * static_cast<int>(b[k / 4][4 * n + k % 4])));
      }
    EmulatedTiles::configure(shapes(rows, outputs, depth));
    EmulatedTiles::load<0>(sums, sizeof sums[0]);
    EmulatedTiles::load<1>(a, sizeof a[0]);
    EmulatedTiles::load<2>(b, sizeof b[0]);
    EmulatedTiles::dot_signed_unsigned<0, 1, 2>();
    EmulatedTiles::store<0>(sums, sizeof sums[0]);
    EmulatedTiles::release();
    for (int m = 0; m < rows; ++m)
      for (int n = 0; n < outputs; ++n) ASSERT_EQ(sums[m][n], expected[m][n]) << m << " " << n;
  }
}

TEST(EmulatedTiles, MultiplyBfloat16AsTheManualSays) {
  // One output, four inputs, and what was there: 0.5 + ((1 * 3 + 2^-9 * 5) + (2 * 4 + 2^100 * a denormal, as zero)).
  const uint16_t x[4] = {f32_to_bf16(1.0f), f32_to_bf16(2.0f), f32_to_bf16(0x1p-9f), f32_to_bf16(0x1p100f)};
  const uint16_t w[2][2] = {{f32_to_bf16(3.0f), f32_to_bf16(4.0f)}, {f32_to_bf16(5.0f), 0x0040}};
  float sum = 0.5f;
  EmulatedTiles::configure(shapes(1, 1, 8));
  EmulatedTiles::load<0>(&sum, 4);
  EmulatedTiles::load<1>(x, 8);
  EmulatedTiles::load<2>(w, 4);
  EmulatedTiles::dot_bf16<0, 1, 2>();
  EmulatedTiles::store<0>(&sum, 4);
  EmulatedTiles::release();
  EXPECT_EQ(sum, 0.5f + ((3.0f + 5.0f * 0x1p-9f) + 8.0f));
}

TEST(EmulatedTiles, RefuseWhatTheProcessorRefuses) {
  EXPECT_THROW(EmulatedTiles::zero<0>(), Error);  // not configured
  TileConfig config = shapes(16, 16, 64);
  config.rows[1] = 17;
  EXPECT_THROW(EmulatedTiles::configure(config), Error);
  config = shapes(16, 16, 64);
  config.rows[3] = 1;  // rows of no bytes
  EXPECT_THROW(EmulatedTiles::configure(config), Error);
  config = shapes(16, 16, 64);
  config.rows[1] = 8;  // fewer rows of activations than of sums
  EmulatedTiles::configure(config);
  EXPECT_THROW((EmulatedTiles::dot_signed_unsigned<0, 1, 2>()), Error);
  EXPECT_THROW(EmulatedTiles::zero<5>(), Error);  // a tile without rows
  EmulatedTiles::release();
  EXPECT_THROW(EmulatedTiles::zero<0>(), Error);
}

}  // namespace
}  // namespace gristmill::device::cpu
