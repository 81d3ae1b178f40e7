#include "moe.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "clock.h"
#include "device/cpu/expert_stages.h"
#include "device/cpu/region.h"

namespace gristmill::bench {
namespace {

using device::ComputeClass;
using device::cpu::ExpertBuffers;
using device::cpu::Frame;
using device::cpu::Kernels;
using device::cpu::kGroup;
using device::cpu::PackedWeight;
using device::cpu::Region;
using device::cpu::Rows;
using device::cpu::Stage;
using device::cpu::TokenRows;

constexpr int kExperts = 256, kTopK = 8, kHidden = 3072, kTokens = 64, kPairs = kTokens * kTopK;

/// The matrices of all experts one after the other, with random codes and harmless scales.
class ExpertMatrix {
 public:
  ExpertMatrix(ComputeClass cls, const Kernels& kernels, int64_t outputs_each, int64_t inputs) {
    weight.cls = cls;
    weight.panel = kernels.coded_panel;
    weight.biased = cls == ComputeClass::i8_channel && kernels.biased_i8;
    weight.outputs = outputs_each * kExperts;
    weight.inputs = inputs;
    weight.block_bytes = static_cast<size_t>(weight.panel) * (cls == ComputeClass::i4_channel ? kGroup / 2 : kGroup);
    const size_t codes = static_cast<size_t>(weight.blocks()) * weight.block_bytes;
    const size_t words = 2 * static_cast<size_t>(weight.panel);  // a scale and an addend per output
    weight.panel_stride = weight.panel_bytes = codes + words * sizeof(float);
    memory_ = Region(weight.bytes(), true, "experts");
    weight.data = memory_.data();
    std::mt19937 random(1);
    std::vector<uint32_t> noise(weight.panel_bytes / sizeof(uint32_t) + 1024);
    for (uint32_t& each : noise) each = random();
    for (int64_t panel = 0; panel < weight.panels(); ++panel) {
      std::byte* const to = memory_.data() + static_cast<size_t>(panel) * weight.panel_bytes;
      std::memcpy(to, noise.data() + random() % 1024, codes);
      std::fill_n(reinterpret_cast<float*>(to + codes), weight.panel, 1e-4f);
      std::fill_n(reinterpret_cast<int32_t*>(to + codes) + weight.panel, weight.panel, 0);
    }
  }
  double bytes_each() const { return static_cast<double>(weight.bytes()) / kExperts; }

  PackedWeight weight;

 private:
  Region memory_;
};

/// From quantized rows and chosen experts to the combined rows, as a step runs it.
class Layer {
 public:
  Layer(ComputeClass cls, const Kernels& kernels, int width)
      : gate_up_(cls, kernels, 2 * width, kHidden), down_(cls, kernels, kHidden, width) {
    device::cpu::Layout scratch;
    const auto rows = [&](int count, int columns) {
      const int64_t stride = (columns + 31) / 32 * 32;
      return Rows{scratch.add(sizeof(float) * static_cast<size_t>(stride * count)), stride, columns};
    };
    const auto tokens = [&](int count, int columns) {
      TokenRows made;
      made.width = columns;
      made.codes = scratch.add(static_cast<size_t>(count * made.blocks() * kGroup));
      made.sums = scratch.add(static_cast<size_t>(count * made.blocks()) * sizeof(int32_t));
      made.scales = scratch.add(static_cast<size_t>(count) * sizeof(device::cpu::TokenScale));
      return made;
    };
    in_ = rows(kTokens, kHidden);
    quantized_ = tokens(kTokens, kHidden);
    ExpertBuffers b;
    b.experts = kExperts, b.top_k = kTopK, b.hidden = kHidden, b.width = width;
    b.gate_up = &gate_up_.weight, b.down = &down_.weight;
    b.chosen = scratch.add(sizeof(int32_t) * kPairs);
    b.weights = scratch.add(sizeof(float) * kPairs);
    b.first = scratch.add(sizeof(int32_t) * (kExperts + 1));
    b.place = scratch.add(sizeof(int32_t) * kPairs);
    b.active = scratch.add(sizeof(int32_t) * (kExperts + 1));
    b.in.tokens.push_back(tokens(kPairs, kHidden));
    b.inner.tokens.push_back(tokens(kPairs, width));
    b.inner.floats = rows(kPairs, width);
    b.results = rows(kPairs, kHidden);
    stages_.push_back(std::make_unique<device::cpu::PlaceStage>(b));
    stages_.push_back(std::make_unique<device::cpu::DispatchStage>(in_, std::vector{quantized_}, b));
    stages_.push_back(std::make_unique<device::cpu::ExpertGateStage>(b.gate_up[0], b));
    stages_.push_back(std::make_unique<device::cpu::ExpertQuantizeStage>(b));
    stages_.push_back(std::make_unique<device::cpu::ExpertDownStage>(b.down[0], b));
    stages_.push_back(std::make_unique<device::cpu::CombineStage>(b, rows(kTokens, kHidden)));
    for (const auto& stage : stages_) frame_.member_bytes = std::max(frame_.member_bytes, stage->working_bytes());
    frame_.member_offset = scratch.add(frame_.member_bytes);
    frame_.kernels = &kernels;
    scratch_ = Region(scratch.size(), true, "activations");
    frame_.scratch = scratch_.data();
    for (int t = 0; t < kTokens; ++t)
      for (int i = 0; i < kHidden; ++i)
        in_.row(frame_, t)[i] = static_cast<float>((t * 131 + i * 17) % 1000) * 0.002f - 1.0f;
    std::fill_n(b.weights_of(frame_), kPairs, 1.0f / kTopK);
    chosen_ = b.chosen_of(frame_);
  }

  /// Every token goes to kTopK different experts at random. Returns how many different experts there are in all.
  int route(int tokens, std::mt19937& random) {
    frame_.tokens = tokens;
    std::vector<bool> touched(kExperts);
    for (int t = 0; t < tokens; ++t) {
      for (int r = 0; r < kTopK; ++r) {
        const auto before = chosen_ + t * kTopK, end = before + r;
        do {
          *end = static_cast<int32_t>(random() % kExperts);
        } while (std::find(before, end, *end) != end);
        touched[static_cast<size_t>(*end)] = true;
      }
    }
    for (int t = 0; t < tokens; ++t) quantized_.quantize(frame_, tokens, t, in_.row(frame_, t));
    return static_cast<int>(std::count(touched.begin(), touched.end(), true));
  }
  void step() {
    for (const auto& stage : stages_)
      for (uint32_t item = 0; item < stage->items(frame_); ++item) stage->run(frame_, item, 0);
  }
  double expert_bytes() const { return gate_up_.bytes_each() + down_.bytes_each(); }

 private:
  ExpertMatrix gate_up_, down_;
  Rows in_;
  TokenRows quantized_;
  std::vector<std::unique_ptr<Stage>> stages_;
  Region scratch_;
  Frame frame_;
  int32_t* chosen_ = nullptr;
};

}  // namespace

void bench_moe(const Kernels& kernels, const Peaks& peaks) {
  for (const int width : {1536, 1024}) {
    for (const ComputeClass cls : {ComputeClass::i8_channel, ComputeClass::i4_channel}) {
      const bool nibbles = cls == ComputeClass::i4_channel;
      const double peak = nibbles ? peaks.nibbles.rate : peaks.bytes.rate;
      Layer layer(cls, kernels, width);
      std::mt19937 random(5);
      for (const int tokens : {1, 8, 64}) {
        const double bandwidth = measure_read(96 << 20);
        const double ops = 2.0 * 3 * kHidden * width * kTopK * tokens;
        struct Step {
          double share, seconds, bytes;
        };
        std::vector<Step> all;
        double experts = 0;
        const int steps = tokens == 1 ? 24 : tokens == 8 ? 8 : 4;
        for (int i = 0; i <= steps; ++i) {
          const int touched = layer.route(tokens, random);
          const double start = thread_seconds();
          layer.step();
          const double seconds = thread_seconds() - start;
          if (i == 0) continue;
          const double bytes = touched * layer.expert_bytes();
          all.push_back({std::max(ops / peak, bytes / bandwidth) / seconds, seconds, bytes});
          experts += static_cast<double>(touched) / steps;
        }
        std::sort(all.begin(), all.end(), [](const Step& a, const Step& b) { return a.share < b.share; });
        const Step& middle = all[all.size() / 2];
        std::printf(
            "%-9s experts %s 256 x %d x %d, %2d tokens (%5.1f experts): %7.2f ms, %5.1f GB/s, %6.1f GOP/s, "
            "%4.2f of the roof (%s)\n",
            kernels.name, nibbles ? "int4" : "int8", kHidden, width, tokens, experts, middle.seconds * 1e3,
            middle.bytes / middle.seconds * 1e-9, ops / middle.seconds * 1e-9, middle.share,
            middle.bytes / bandwidth > ops / peak ? "read" : "ops");
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace gristmill::bench
