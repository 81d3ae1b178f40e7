// Kernels of the CPU back end against the limits of the machine, one thread, per second of CPU time. The weights of a
// set are those of all linears of a 135M-parameter llama (30 layers) or its head, several times over where they would
// fit the last-level cache; every rate stands beside the roof: ops / peak or bytes / bandwidth, whichever is longer.
#include "device/cpu/kernels.h"

#include <sys/mman.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "clock.h"
#include "delta_net.h"
#include "device/cpu/isa.h"
#include "moe.h"
#include "roofs.h"

namespace gristmill::bench {
namespace {

using device::ComputeClass;
using device::cpu::Kernels;
using device::cpu::kGroup;
using device::cpu::kRowBlock;
using device::cpu::PackedWeight;

constexpr size_t kSetBytes = 192 << 20;
constexpr int kChunk = 64;  // outputs per call, as in LinearStage

struct Shape {
  int64_t outputs, inputs;
};

std::byte* reserve(size_t bytes, bool huge) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  if (huge) madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

/// Many weights of one class, with random codes and harmless scales.
struct WeightSet {
  std::vector<PackedWeight> weights;
  double ops = 0;  ///< for one row
  double bytes = 0;

  WeightSet(ComputeClass cls, bool has_min, float zero, int panel, const std::vector<Shape>& shapes, int group = 0) {
    size_t total = 0;
    while (total < kSetBytes) {
      for (const Shape& shape : shapes) {
        PackedWeight w;
        w.cls = cls;
        w.has_min = has_min;
        w.zero = zero;
        w.outputs = shape.outputs;
        w.inputs = shape.inputs;
        if (w.coded()) {
          w.panel = panel;
          w.block_bytes = static_cast<size_t>(panel) * ((cls == ComputeClass::i4_group ? 16 : 32) + (has_min ? 4 : 2));
          w.panel_bytes = static_cast<size_t>(shape.inputs / kGroup) * w.block_bytes;
        } else if (w.channel()) {
          w.panel = panel;
          w.group = group;
          w.block_bytes = static_cast<size_t>(panel) * (cls == ComputeClass::i4_channel ? 16 : 32);
          w.panel_bytes = static_cast<size_t>(w.blocks()) * w.block_bytes +
                          static_cast<size_t>(w.scale_groups() + (group == 0 ? 1 : 0)) * panel * sizeof(float);
        } else {
          w.panel_bytes = static_cast<size_t>(shape.inputs) * 32 * (cls == ComputeClass::f32 ? 4 : 2);
        }
        w.panel_stride = w.panel_bytes;
        weights.push_back(w);
        total += w.bytes();
        ops += 2.0 * static_cast<double>(shape.outputs * shape.inputs);
      }
    }
    bytes = static_cast<double>(total);
    std::byte* next = reserve(total + 4096, true);
    std::mt19937 random(1);
    for (PackedWeight& w : weights) {
      fill(w, next, random);
      w.data = next;
      next += w.bytes();
    }
  }

 private:
  static void fill(const PackedWeight& w, std::byte* data, std::mt19937& random) {
    auto* const words = reinterpret_cast<uint32_t*>(data);
    for (size_t i = 0; i < w.bytes() / 4; ++i) {
      // Floats near 1, whatever their width; any byte is a code.
      words[i] = w.coded() || w.channel() ? random() : (0x3f803f80u | (random() & 0x000f000fu));
    }
    if (w.channel()) {
      const size_t codes = static_cast<size_t>(w.blocks()) * w.block_bytes;
      for (size_t panel = 0; panel < w.bytes(); panel += w.panel_bytes) {
        auto* const table = reinterpret_cast<float*>(data + panel + codes);
        std::fill_n(table, (w.panel_bytes - codes) / sizeof(float), 0.01f);
      }
    }
    if (!w.coded()) return;
    const size_t codes = static_cast<size_t>(w.panel) * (w.cls == ComputeClass::i4_group ? 16 : 32);
    for (size_t block = 0; block < w.bytes(); block += w.block_bytes) {
      auto* const table = reinterpret_cast<uint16_t*>(data + block + codes);
      for (size_t i = 0; i < (w.block_bytes - codes) / 2; ++i) table[i] = f32_to_f16(0.01f);
    }
  }
};

/// Seconds of CPU time of `work`, the median and the best of several runs.
struct Times {
  double median, best;
};
Times time_of(const std::function<void()>& work, int repeats) {
  work();
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const double start = thread_seconds();
    work();
    times.push_back(thread_seconds() - start);
  }
  return {median(times), *std::min_element(times.begin(), times.end())};
}

void bench_linears(const Kernels& kernels, const char* name, const WeightSet& set, double peak, bool large) {
  std::mt19937 random(2);
  for (int rows : {1, 2, 3, 4, 6, 8, 16, 32, 64, 512}) {
    if (rows == 512 && !large) continue;
    int64_t widest = 0;
    for (const PackedWeight& w : set.weights) {
      widest = std::max(widest, w.inputs);
    }
    std::vector<float> x(static_cast<size_t>(rows * widest)), y(kRowBlock * kChunk);
    std::vector<int8_t> codes(static_cast<size_t>(rows * widest));
    for (float& value : x) value = 1.0f + static_cast<float>(random() % 100) * 0.001f;
    for (int8_t& code : codes) code = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
    const std::vector<device::cpu::GroupScale> scales(static_cast<size_t>(rows * widest / kGroup),
                                                      {0.01f, 0.1f, -1280});
    const std::vector<int32_t> sums(static_cast<size_t>(rows * widest / kGroup), 10);
    const std::vector<device::cpu::TokenScale> token_scales(static_cast<size_t>(rows), {0.01f, 180});
    // Enough of the set to leave the cache, little enough to end soon.
    const size_t count =
        rows < 64 ? set.weights.size() : std::max<size_t>(1, set.weights.size() / static_cast<size_t>(rows / 16));
    double ops = 0, bytes = 0;
    for (size_t i = 0; i < count; ++i) {
      ops += 2.0 * rows * static_cast<double>(set.weights[i].outputs * set.weights[i].inputs);
      bytes += static_cast<double>(set.weights[i].bytes());
    }
    const auto work = [&] {
      for (size_t i = 0; i < count; ++i) {
        const PackedWeight& w = set.weights[i];
        const int64_t step = kChunk / w.panel;
        for (int first_row = 0; first_row < rows; first_row += kRowBlock) {
          const int block = std::min(kRowBlock, rows - first_row);
          for (int64_t first = 0; first < w.panels(); first += step) {
            const int64_t panels = std::min(step, w.panels() - first);
            if (w.coded()) {
              kernels.coded_linear(
                  w, first, panels,
                  {codes.data() + first_row * w.inputs, scales.data() + first_row * w.inputs / kGroup, block}, y.data(),
                  kChunk);
            } else if (w.channel()) {
              kernels.channel_linear(w, first, panels,
                                     {codes.data() + first_row * w.inputs, sums.data() + first_row * w.inputs / kGroup,
                                      token_scales.data() + first_row, block},
                                     y.data(), kChunk);
            } else {
              kernels.float_linear(w, first, panels, x.data() + first_row * w.inputs, w.inputs, block, y.data(),
                                   kChunk);
            }
          }
        }
      }
    };
    const double bandwidth = measure_read(96 << 20);
    const Times times = time_of(work, 5);
    const double roof = std::max(ops / peak, bytes / bandwidth);
    std::printf("%-9s %-14s M %4d  %7.1f GOP/s best %7.1f median  %5.1f GB/s  %4.2f of the roof (%s %.0f G/s)\n",
                kernels.name, name, rows, ops / times.best * 1e-9, ops / times.median * 1e-9, bytes / times.best * 1e-9,
                roof / times.best, ops / peak > bytes / bandwidth ? "ops" : "read",
                (ops / peak > bytes / bandwidth ? peak : bandwidth) * 1e-9);
    std::fflush(stdout);
  }
}

/// Attention of one layer after another over a cache of blocks in order.
void bench_attention(const Kernels& kernels, DType dtype, int block_size, double fma_peak) {
  constexpr int kHeads = 3, kGroupHeads = 3, kDim = 64, kLayers = 30;
  const device::cpu::KvLayout layout(dtype, kHeads, kDim, block_size, kernels.v_chunk);
  std::vector<std::byte> scratch(device::cpu::attention_scratch(layout, kGroupHeads));
  std::mt19937 random(3);
  for (int context : {512, 2048, 7500}) {
    const size_t blocks = static_cast<size_t>((context + 512 + block_size - 1) / block_size);
    const size_t group_blocks = static_cast<size_t>(device::cpu::kGroupTokens / block_size);
    const size_t layer_bytes = group_blocks * layout.block_bytes(), group_bytes = layer_bytes * kLayers;
    const size_t cache_bytes = group_bytes * ((blocks + group_blocks - 1) / group_blocks);
    std::byte* const cache = reserve(cache_bytes, true);
    std::vector<float> row(kDim);
    std::vector<uint16_t> rounded(kDim);
    for (int layer = 0; layer < kLayers; ++layer) {
      for (size_t block = 0; block < blocks; ++block) {
        for (int slot = 0; slot < block_size; ++slot) {
          for (float& value : row) value = static_cast<float>(random() % 1000) * 0.002f - 1.0f;
          for (int head = 0; head < kHeads; ++head) {
            const device::cpu::KvPool pool{cache + static_cast<size_t>(layer) * layer_bytes, group_bytes};
            std::byte* const k = pool.k(layout, head, static_cast<int32_t>(block));
            std::byte* const v = pool.v(layout, head, static_cast<int32_t>(block));
            if (layout.scaled()) {
              uint8_t codes[kDim];
              const float scale = kernels.encode(dtype, row.data(), kDim, codes);
              layout.write_k(k, slot, codes, scale);
              layout.write_v(v, slot, codes, scale);
              continue;
            }
            if (dtype == DType::f32) {
              layout.write_k(k, slot, row.data());
              layout.write_v(v, slot, row.data());
              continue;
            }
            kernels.round(dtype, row.data(), kDim, rounded.data());
            layout.write_k(k, slot, rounded.data());
            layout.write_v(v, slot, rounded.data());
          }
        }
      }
    }
    std::vector<int32_t> table(blocks);
    for (size_t i = 0; i < blocks; ++i) table[i] = static_cast<int32_t>(i);
    constexpr int kWidth = kHeads * kGroupHeads * kDim;
    std::vector<float> q(static_cast<size_t>(512 * kWidth)), out(q.size());
    for (float& value : q) value = static_cast<float>(random() % 1000) * 0.0002f - 0.1f;
    const int partitions = (context + 255) / 256;
    const int64_t partial = device::cpu::partial_floats(layout);
    std::vector<float> partials(static_cast<size_t>(kHeads * kGroupHeads * partitions * partial));
    const auto head_of = [&](int layer, int head) {
      return device::cpu::KvPool{cache + static_cast<size_t>(layer) * layer_bytes, group_bytes}.head(layout, head,
                                                                                                     table.data());
    };
    const double bandwidth = measure_read(96 << 20);
    const Times decode = time_of(
        [&] {
          for (int layer = 0; layer < kLayers; ++layer) {
            for (int head = 0; head < kHeads; ++head) {
              for (int p = 0; p < partitions; ++p) {
                const device::cpu::AttentionQuery query{q.data() + head * kGroupHeads * kDim, kWidth, 1, kGroupHeads,
                                                        context - 1};
                kernels.attend_partition(
                    layout, head_of(layer, head), query, p, std::min(256, context - p * 256), scratch.data(),
                    partials.data() + (head * kGroupHeads * partitions + p) * partial, partitions * partial);
              }
            }
            for (int h = 0; h < kHeads * kGroupHeads; ++h) {
              kernels.merge_partitions(partials.data() + h * partitions * partial, partial, partitions, layout.v_dim,
                                       kDim, out.data() + h * kDim);
            }
          }
        },
        7);
    const double flops = 4.0 * kLayers * context * kWidth;
    const double bytes = kLayers * context * static_cast<double>(layout.block_bytes()) / block_size;
    const double roof = std::max(flops / fma_peak, bytes / bandwidth);
    std::printf(
        "%-9s decode attention %s, blocks of %3d, %5d keys: %6.2f ns per key and K/V head, %5.1f GB/s, %5.1f GFLOP/s, "
        "%4.2f of the "
        "roof (%s)\n",
        kernels.name, name_of(dtype), block_size, context, decode.best * 1e9 / (kLayers * context * kHeads),
        bytes / decode.best * 1e-9, flops / decode.best * 1e-9, roof / decode.best,
        flops / fma_peak > bytes / bandwidth ? "fma" : "read");
    const int step = device::cpu::tile_queries(kGroupHeads);
    const Times prefill = time_of(
        [&] {
          for (int head = 0; head < kHeads; ++head) {
            for (int first = 0; first < 512; first += step) {
              const device::cpu::AttentionQuery query{q.data() + first * kWidth + head * kGroupHeads * kDim, kWidth,
                                                      step, kGroupHeads, context + first};
              kernels.attend_tile(layout, head_of(0, head), query, scratch.data(),
                                  out.data() + first * kWidth + head * kGroupHeads * kDim, kWidth);
            }
          }
        },
        5);
    const double work = 4.0 * 512 * (context + 256.5) * kWidth;
    std::printf("%-9s prefill attention %s, 512 more at %5d: %5.1f GFLOP/s, %4.2f of fp32 peak\n", kernels.name,
                name_of(dtype), context, work / prefill.best * 1e-9, work / prefill.best / fma_peak);
    std::fflush(stdout);
    munmap(cache, cache_bytes);
  }
}

void bench_rows(const Kernels& kernels) {
  constexpr int kWidth = 576, kInner = 1536, kRows = 256;
  std::mt19937 random(4);
  std::vector<float> x(kInner * 2), y(kInner * 2), w(kInner, 1.0f), cosines(32, 0.5f);
  for (float& value : x) value = static_cast<float>(random() % 1000) * 0.002f - 1.0f;
  std::vector<int8_t> codes(kInner);
  std::vector<device::cpu::GroupScale> scales(kInner / kGroup);
  std::vector<int32_t> sums(kInner / kGroup);
  device::cpu::TokenScale token;
  const auto show = [&](const char* name, const std::function<void()>& work) {
    const Times t = time_of(
        [&] {
          for (int i = 0; i < kRows; ++i) work();
        },
        9);
    std::printf("%-9s %-22s %7.1f ns\n", kernels.name, name, t.best * 1e9 / kRows);
  };
  show("rms_norm 576", [&] { kernels.rms_norm(x.data(), w.data(), 1e-5f, kWidth, y.data()); });
  show("add 576", [&] { kernels.add(x.data(), w.data(), kWidth, y.data()); });
  show("quantize 576", [&] { kernels.quantize(x.data(), kWidth / kGroup, codes.data(), kGroup, scales.data(), 1); });
  show("quantize_token 576",
       [&] { kernels.quantize_token(x.data(), kWidth, nullptr, codes.data(), kGroup, sums.data(), 1, &token); });
  show("silu_mul 1536", [&] { kernels.silu_mul(x.data(), x.data() + kInner, kInner, y.data()); });
  show("rotate 64", [&] { kernels.rotate(x.data(), cosines.data(), cosines.data(), 32, 64, 1.0f, y.data()); });
  show("encode int8 64",
       [&] { y[0] = kernels.encode(DType::i8, x.data(), 64, reinterpret_cast<uint8_t*>(codes.data())); });
  show("encode fp8 64",
       [&] { y[0] = kernels.encode(DType::fp8_e4m3, x.data(), 64, reinterpret_cast<uint8_t*>(codes.data())); });
  show("argmax 1536", [&] { y[0] = static_cast<float>(kernels.argmax(x.data(), kInner)); });
}

int run(int argc, char** argv) {
  const std::string only_isa = argc > 1 ? argv[1] : "", only = argc > 2 ? argv[2] : "";
  std::printf("frequency %.2f GHz (dependent additions), read %.1f GB/s from 96 MB\n", measure_frequency() * 1e-9,
              measure_read(96 << 20) * 1e-9);
  const auto peaks = measure_peaks();
  for (const Peaks& p : peaks) {
    for (const Roof* roof : {&p.fma, &p.nibbles, &p.bytes}) {
      std::printf("%s %s: %.0f G/s, %.1f per cycle", p.isa.c_str(), roof->name.c_str(), roof->rate * 1e-9,
                  roof->per_cycle);
      if (roof->expected > 0) std::printf(" (two units give %.0f)", roof->expected);
      std::printf("\n");
    }
  }
  const std::vector<Shape> layer{{960, 576}, {576, 576}, {3072, 576}, {576, 1536}};
  for (const Kernels* kernels : device::cpu::usable_kernels()) {
    if (!only_isa.empty() && only_isa != kernels->name) continue;
    const Peaks* peak = nullptr;
    for (const Peaks& p : peaks) {
      if (p.isa == kernels->name) peak = &p;
    }
    if (peak == nullptr) continue;  // the portable set has no roof of its own
    const auto wanted = [&](const char* name) { return only.empty() || only == name; };
    if (wanted("rows")) bench_rows(*kernels);
    if (wanted("delta-net")) bench_delta_net(*kernels, peak->fma.rate);
    if (wanted("moe")) bench_moe(*kernels, *peak);
    const auto linears = [&](const char* name, ComputeClass cls, bool has_min, float zero, double rate,
                             const std::vector<Shape>& shapes, bool large, int group = 0) {
      if (wanted(name))
        bench_linears(*kernels, name, WeightSet(cls, has_min, zero, kernels->coded_panel, shapes, group), rate, large);
    };
    linears("q4_1", ComputeClass::i4_group, true, 0, peak->nibbles.rate, layer, true);
    linears("q4_0", ComputeClass::i4_group, false, 8, peak->nibbles.rate, layer, true);
    linears("q8_0", ComputeClass::i8_group, false, 0, peak->bytes.rate, layer, true);
    linears("q8_0-head", ComputeClass::i8_group, false, 0, peak->bytes.rate, {{49152, 576}}, false);
    linears("w8a8", ComputeClass::i8_channel, false, 0, peak->bytes.rate, layer, true);
    linears("w4a8", ComputeClass::i4_channel, false, 0, peak->nibbles.rate, layer, true);
    linears("w4a8-group64", ComputeClass::i4_channel, false, 0, peak->nibbles.rate, layer, true, 64);
    linears("bf16", ComputeClass::bf16, false, 0, peak->fma.rate, layer, true);
    linears("f32", ComputeClass::f32, false, 0, peak->fma.rate, layer, true);
    for (DType dtype : {DType::bf16, DType::f16, DType::f32, DType::i8, DType::fp8_e4m3}) {
      if (wanted("attention") || wanted(name_of(dtype)))
        for (int block : {16, 32, 128}) bench_attention(*kernels, dtype, block, peak->fma.rate);
    }
  }
  return 0;
}

}  // namespace
}  // namespace gristmill::bench

int main(int argc, char** argv) {
  return gristmill::bench::run(argc, argv);
}
