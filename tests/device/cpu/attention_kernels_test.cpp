// Attention of every kernel set: against float64, decode against prefill and sets against each other bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "device/cpu/isa.h"
#include "device/cpu/kernels.h"
#include "device/cpu/tested_kernels.h"

namespace gristmill::device::cpu {
namespace {

struct Shape {
  DType dtype;
  int kv_heads, group, head_dim, block_size, keys;
};

/// A cache filled with random K and V in a shuffled block table, and queries for every position.
struct Fixture {
  Shape shape;
  std::vector<float> k, v, q;  // [keys][kv_heads][dim]; q: [keys][kv_heads * group][dim]
  std::vector<int32_t> table;

  explicit Fixture(const Shape& s) : shape(s) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const size_t per_key = static_cast<size_t>(s.kv_heads * s.head_dim), keys = static_cast<size_t>(s.keys);
    for (size_t i = 0; i < keys * per_key; ++i) {
      k.push_back(normal(random));
      v.push_back(normal(random));
    }
    for (size_t i = 0; i < keys * per_key * static_cast<size_t>(s.group); ++i) {
      q.push_back(normal(random) * 0.3f);
    }
    for (int i = 0; i < (s.keys + s.block_size - 1) / s.block_size; ++i) table.push_back(i);
    std::shuffle(table.begin(), table.end(), random);
  }

  /// Results of all heads for queries [first, first + count), one row after the other.
  std::vector<float> attend(const Kernels& kernels, int first, int count, bool by_partitions) const {
    const KvLayout layout(shape.dtype, shape.kv_heads, shape.head_dim, shape.block_size, kernels.v_chunk);
    // A group holds two layers, and ours is the second.
    const size_t group_blocks = static_cast<size_t>(kGroupTokens / shape.block_size);
    const size_t layer_bytes = group_blocks * layout.block_bytes();
    std::vector<std::byte> bytes(2 * layer_bytes * (table.size() / group_blocks + 1));
    const KvPool pool{bytes.data() + layer_bytes, 2 * layer_bytes};
    std::vector<uint16_t> rounded(static_cast<size_t>(shape.head_dim));
    for (int key = 0; key < shape.keys; ++key) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        const size_t at = static_cast<size_t>((key * shape.kv_heads + head) * shape.head_dim);
        const int32_t block = table[static_cast<size_t>(key / shape.block_size)];
        const int slot = key % shape.block_size;
        if (layout.scaled()) {
          std::vector<uint8_t> codes(static_cast<size_t>(shape.head_dim));
          const float k_scale = kernels.encode(shape.dtype, k.data() + at, shape.head_dim, codes.data());
          layout.write_k(pool.k(layout, head, block), slot, codes.data(), k_scale);
          const float v_scale = kernels.encode(shape.dtype, v.data() + at, shape.head_dim, codes.data());
          layout.write_v(pool.v(layout, head, block), slot, codes.data(), v_scale);
        } else if (shape.dtype == DType::f32) {
          layout.write_k(pool.k(layout, head, block), slot, k.data() + at);
          layout.write_v(pool.v(layout, head, block), slot, v.data() + at);
        } else {
          kernels.round(shape.dtype, k.data() + at, shape.head_dim, rounded.data());
          layout.write_k(pool.k(layout, head, block), slot, rounded.data());
          kernels.round(shape.dtype, v.data() + at, shape.head_dim, rounded.data());
          layout.write_v(pool.v(layout, head, block), slot, rounded.data());
        }
      }
    }
    const int width = shape.kv_heads * shape.group * shape.head_dim;
    std::vector<std::byte> scratch(attention_scratch(layout, shape.group) + 64);
    auto* const aligned = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    std::vector<float> out(static_cast<size_t>(count * width));
    for (int head = 0; head < shape.kv_heads; ++head) {
      const KvHead kv = pool.head(layout, head, table.data());
      const int column = head * shape.group * shape.head_dim;
      if (!by_partitions) {
        for (int i = 0; i < count; i += tile_queries(shape.group)) {
          const AttentionQuery query{q.data() + (first + i) * width + column, width,
                                     std::min(tile_queries(shape.group), count - i), shape.group, first + i};
          kernels.attend_tile(layout, kv, query, aligned, out.data() + i * width + column, width);
        }
        continue;
      }
      for (int i = 0; i < count; ++i) {
        const int keys = first + i + 1, partitions = (keys + kPartition - 1) / kPartition;
        const int64_t stride = partial_floats(layout);
        std::vector<float> partials(static_cast<size_t>(shape.group * partitions * stride));
        const AttentionQuery query{q.data() + (first + i) * width + column, width, 1, shape.group, first + i};
        for (int p = partitions - 1; p >= 0; --p) {  // in any order
          kernels.attend_partition(layout, kv, query, p, std::min(kPartition, keys - p * kPartition), aligned,
                                   partials.data() + p * stride, partitions * stride);
        }
        for (int h = 0; h < shape.group; ++h) {
          kernels.merge_partitions(partials.data() + h * partitions * stride, stride, partitions, layout.v_dim,
                                   shape.head_dim, out.data() + i * width + column + h * shape.head_dim);
        }
      }
    }
    return out;
  }
};

class AttentionKernels : public testing::TestWithParam<Shape> {};

TEST_P(AttentionKernels, DecodePrefillAndAllSetsGiveTheSameBits) {
  const Fixture fixture(GetParam());
  const int keys = GetParam().keys, first = std::max(0, keys - 40);
  const auto expected = fixture.attend(portable_kernels(), first, keys - first, true);
  for (const Kernels* kernels : tested_kernels()) {
    EXPECT_EQ(fixture.attend(*kernels, first, keys - first, true), expected) << kernels->name;
    EXPECT_EQ(fixture.attend(*kernels, first, keys - first, false), expected) << kernels->name;
  }
}

TEST_P(AttentionKernels, FollowsFloat64) {
  const Shape& s = GetParam();
  const Fixture fixture(s);
  const auto got = fixture.attend(*usable_kernels().front(), s.keys - 1, 1, true);
  const double tolerance = s.dtype == DType::f32        ? 2e-6
                           : s.dtype == DType::f16      ? 2e-3
                           : s.dtype == DType::fp8_e4m3 ? 0.15
                           : s.dtype == DType::i8       ? 4e-2
                                                        : 1.5e-2;
  const int heads = s.kv_heads * s.group;
  for (int h = 0; h < heads; ++h) {
    std::vector<double> p;
    for (int key = 0; key < s.keys; ++key) {
      double score = 0;
      for (int d = 0; d < s.head_dim; ++d) {
        score += static_cast<double>(fixture.q[static_cast<size_t>(((s.keys - 1) * heads + h) * s.head_dim + d)]) *
                 fixture.k[static_cast<size_t>((key * s.kv_heads + h / s.group) * s.head_dim + d)];
      }
      p.push_back(std::exp2(score));  // the queries hold log2(e)
    }
    double total = 0;
    for (double weight : p) total += weight;
    for (int d = 0; d < s.head_dim; ++d) {
      double o = 0;
      for (int key = 0; key < s.keys; ++key) {
        o += p[static_cast<size_t>(key)] / total *
             fixture.v[static_cast<size_t>((key * s.kv_heads + h / s.group) * s.head_dim + d)];
      }
      ASSERT_NEAR(got[static_cast<size_t>(h * s.head_dim + d)], o, tolerance) << h << " " << d;
    }
  }
}

std::string name_of_shape(const testing::TestParamInfo<Shape>& test) {
  const Shape& s = test.param;
  return std::string(name_of(s.dtype)) + "_" + std::to_string(s.kv_heads) + "x" + std::to_string(s.group) + "x" +
         std::to_string(s.head_dim) + "_blocks_of_" + std::to_string(s.block_size) + "_keys_" + std::to_string(s.keys);
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionKernels,
                         testing::Values(Shape{DType::bf16, 1, 3, 64, 16, 700}, Shape{DType::bf16, 2, 1, 64, 32, 256},
                                         Shape{DType::bf16, 1, 4, 128, 64, 257}, Shape{DType::bf16, 2, 7, 40, 8, 300},
                                         Shape{DType::bf16, 1, 2, 22, 32, 45}, Shape{DType::bf16, 1, 5, 33, 16, 77},
                                         Shape{DType::f16, 1, 3, 64, 32, 520}, Shape{DType::f16, 1, 6, 80, 16, 90},
                                         Shape{DType::f16, 1, 2, 16, 8, 33}, Shape{DType::f32, 1, 3, 64, 128, 300},
                                         Shape{DType::f32, 1, 8, 48, 16, 100}, Shape{DType::f32, 1, 1, 1, 8, 9},
                                         Shape{DType::bf16, 1, 3, 64, 16, 1}, Shape{DType::f16, 2, 3, 32, 32, 2100},
                                         Shape{DType::i8, 1, 3, 64, 16, 700}, Shape{DType::i8, 2, 1, 64, 32, 256},
                                         Shape{DType::i8, 1, 4, 128, 64, 257}, Shape{DType::i8, 2, 7, 40, 8, 300},
                                         Shape{DType::i8, 1, 5, 33, 16, 77}, Shape{DType::i8, 1, 2, 22, 32, 45},
                                         Shape{DType::i8, 1, 3, 64, 16, 1}, Shape{DType::fp8_e4m3, 1, 3, 64, 16, 700},
                                         Shape{DType::fp8_e4m3, 2, 2, 128, 32, 257},
                                         Shape{DType::fp8_e4m3, 2, 7, 40, 8, 300},
                                         Shape{DType::fp8_e4m3, 1, 5, 33, 16, 77}),
                         name_of_shape);

}  // namespace
}  // namespace gristmill::device::cpu
