#include "delta_net.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "clock.h"
#include "device/cpu/delta_net_stages.h"
#include "device/cpu/region.h"
#include "roofs.h"

namespace gristmill::bench {
namespace {

using device::SequenceStep;
using device::cpu::DeltaNetFrame;
using device::cpu::DeltaNetHeadStage;
using device::cpu::DeltaNetInputStage;
using device::cpu::DeltaNetLayout;
using device::cpu::kDeltaChunk;
using device::cpu::Rows;

constexpr int kKeyHeads = 16, kValueHeads = 64, kDim = 128, kConv = 4, kTokens = 1024;
constexpr int kSlots = 32;  // 150 MB: steps take turns over them, as the layers of a model do

class Layer {
 public:
  explicit Layer(const device::cpu::Kernels& kernels)
      : shared_({DeltaNetLayout({kValueHeads, kKeyHeads, kDim, kDim, kConv}), 0},
                DeltaNetLayout({kValueHeads, kKeyHeads, kDim, kDim, kConv}).floats * sizeof(float)) {
    device::DeltaNet op;
    op.k_heads = kKeyHeads, op.v_heads = kValueHeads, op.k_dim = op.v_dim = kDim, op.conv_width = kConv;
    const int width = kValueHeads * kDim, channels = 2 * kKeyHeads * kDim + width;
    conv_.assign(static_cast<size_t>(channels * kConv), 0.3f);
    vectors_.assign(static_cast<size_t>(std::max(kDim, kValueHeads)), 0.5f);
    device::cpu::Layout scratch;
    const auto rows = [&](int columns) {
      const int64_t stride = (columns + 31) / 32 * 32;
      return Rows{scratch.add(sizeof(float) * static_cast<size_t>(stride * kTokens)), stride, columns};
    };
    qkv_ = rows(channels);
    const Rows z = rows(width), b = rows(kValueHeads), a = rows(kValueHeads), out = rows(width);
    shared_.mixed = rows(channels);
    shared_.products = rows(kKeyHeads * 2 * kDeltaChunk);
    shared_.panels = scratch.add(sizeof(float) * DeltaNetFrame::most_panels(kTokens, kSlots) * kKeyHeads *
                                 shared_.state.layout.key_floats());
    input_ = std::make_unique<DeltaNetInputStage>(op, shared_, conv_data_ = conv_.data(), qkv_);
    vector_ = vectors_.data();
    heads_ = std::make_unique<DeltaNetHeadStage>(op, shared_, DeltaNetHeadStage::Weights{&vector_, &vector_, &vector_},
                                                 z, b, a, out);
    frame_.kernels = &kernels;
    frame_.member_bytes = std::max(input_->working_bytes(), heads_->working_bytes());
    frame_.member_offset = scratch.add(frame_.member_bytes);
    scratch_ = device::cpu::Region(scratch.size(), true, "activations");
    states_ = device::cpu::Region(kSlots * shared_.slot_bytes, true, "recurrent state");
    frame_.scratch = scratch_.data();
    frame_.states = states_.data();
    std::mt19937 random(1);
    for (const Rows& each : {qkv_, z, b, a})
      for (int t = 0; t < kTokens; ++t)
        for (int i = 0; i < each.width; ++i)
          each.row(frame_, t)[i] = static_cast<float>(random() % 1000) * 0.002f - 1.0f;
    input_->weights_loaded();
    for (int slot = 0; slot < kSlots; ++slot) step({{0, 64, 0, {}, slot}});
  }

  void step(const std::vector<SequenceStep>& sequences) {
    frame_.inputs.sequences = sequences;
    frame_.tokens = sequences.back().first_row + sequences.back().rows;
    for (const device::cpu::Stage* stage :
         {static_cast<const device::cpu::Stage*>(input_.get()), static_cast<const device::cpu::Stage*>(heads_.get())})
      for (uint32_t item = 0; item < stage->items(frame_); ++item) stage->run(frame_, item, 0);
  }

  double state_bytes() const { return static_cast<double>(shared_.slot_bytes); }

 private:
  std::vector<float> conv_, vectors_;
  const float *conv_data_ = nullptr, *vector_ = nullptr;
  Rows qkv_;
  DeltaNetFrame shared_;
  std::unique_ptr<DeltaNetInputStage> input_;
  std::unique_ptr<DeltaNetHeadStage> heads_;
  device::cpu::Region scratch_, states_;
  device::cpu::Frame frame_;
};

}  // namespace

void bench_delta_net(const device::cpu::Kernels& kernels, double fma_peak) {
  Layer layer(kernels);
  const double bandwidth = measure_read(96 << 20);
  // Per token and head: S'k, S'q, and a sixteenth of a fold of sixteen rank-1 updates; the state is read for every
  // step, and written for every sixteenth token.
  const double token_flops = 2.0 * 3 * kValueHeads * kDim * kDim;
  const auto show = [&](const char* what, int seqs, int rows, int context) {
    std::vector<double> times;
    const int steps = rows == kTokens ? 1 : kDeltaChunk;  // every place in a chunk counts once
    for (int repeat = 0; repeat < 7; ++repeat) {
      double seconds = 0;
      for (int i = 0, slot = 0; i < steps; ++i) {
        std::vector<SequenceStep> sequences;
        for (int n = 0; n < seqs; ++n, slot = (slot + 1) % kSlots)
          sequences.push_back({n * rows, rows, context + i, {}, slot});
        const double start = thread_seconds();
        layer.step(sequences);
        seconds += thread_seconds() - start;
      }
      times.push_back(seconds / steps);
    }
    const double best = *std::min_element(times.begin(), times.end());
    const double folds = static_cast<double>(rows) / kDeltaChunk;
    const double bytes = seqs * layer.state_bytes() * (1 + 2 * folds);
    const double ops_time = token_flops * seqs * rows / fma_peak, read_time = bytes / bandwidth;
    std::printf(
        "%-9s delta net %-8s %2d x %4d at %6d: %8.1f us per token, %5.1f GB/s, %5.1f GFLOP/s, %4.2f of the roof (%s)\n",
        kernels.name, what, seqs, rows, context, best * 1e6 / (seqs * rows), bytes / best * 1e-9,
        token_flops * seqs * rows / best * 1e-9, std::max(ops_time, read_time) / best,
        ops_time > read_time ? "fma" : "read");
    std::fflush(stdout);
  };
  for (const int context : {1 << 10, 1 << 14, 1 << 17}) show("decode", 1, 1, context);
  for (const int seqs : {2, 4, 8, 16}) show("decode", seqs, 1, 1 << 10);
  for (const int rows : {2, 3, 4, 5, 6}) show("verify", 1, rows, 1 << 10);
  show("prefill", 1, kTokens, 1 << 10);
}

}  // namespace gristmill::bench
