// What a token costs against context and number of sequences, on slices of a large model: two layers of each kind at
// their true widths, with weights made up for its config.json. Prints time and memory per token, and what the whole
// model would take on a larger machine by the bytes that a step reads.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "clock.h"
#include "device/backend.h"
#include "model/model.h"
#include "roofs.h"

namespace gristmill::bench {
namespace {

constexpr int kBlock = 16, kMostSeqs = 64, kMostContext = 128 << 10, kSliceLayers = 2, kPrompt = 256;
constexpr double kCacheBudget = 1.2e9;

/// What one step reads. Experts are those that it touches.
struct Bytes {
  double dense = 0;     ///< matrices that every token goes through, the head included
  double expert = 0;    ///< one expert of every layer
  double kv_token = 0;  ///< K and V of one token
  double state = 0;     ///< recurrent state of one sequence
  int experts = 0, top_k = 0;

  /// Expected number of different experts that n tokens choose, choices being even and independent.
  double distinct(int n) const {
    return experts == 0 ? 0 : experts * (1 - std::pow(1 - static_cast<double>(top_k) / experts, n));
  }
  double step(int seqs, int context) const {
    // A state is written once in sixteen tokens.
    return dense + expert * distinct(seqs) + seqs * (kv_token * context + state * (1 + 2.0 / 16));
  }
};

Bytes bytes_of(const model::Model& model) {
  Bytes bytes;
  const device::Program& program = *model.program;
  const auto add = [&](device::WeightRef ref) { bytes.dense += static_cast<double>(program.weight(ref).file_bytes()); };
  for (const device::Op& op : program.ops()) {
    if (const auto* linear = std::get_if<device::LinearOp>(&op))
      for (const device::Linear& each : linear->linears) add(each.weight);
    if (const auto* head = std::get_if<device::HeadOp>(&op)) add(head->vocabulary);
    if (const auto* moe = std::get_if<device::MoeOp>(&op)) {
      add(moe->moe.router);
      bytes.experts = moe->moe.experts, bytes.top_k = moe->moe.top_k;
      for (const device::WeightRef ref : {moe->moe.gate_up, moe->moe.down})
        bytes.expert += static_cast<double>(program.weight(ref).file_bytes()) / moe->moe.experts;
    }
  }
  for (const device::CacheDecl& cache : program.caches()) bytes.kv_token += 2.0 * 2 * cache.kv_heads * cache.head_dim;
  for (const device::StateDecl& state : program.states())
    bytes.state += 4.0 * state.v_heads * state.k_dim * state.v_dim;
  return bytes;
}

model::Model load(const std::string& folder, device::ComputeClass cls, const std::string& overrides) {
  model::BuildOptions options;
  options.load_format = model::LoadFormat::dummy;
  options.dummy_class = cls;
  options.hf_overrides = overrides;
  return model::load_model(folder, options);
}

/// Decode steps of a slice.
class Slice {
 public:
  Slice(const std::string& name, const model::Model& model, int threads)
      : name_(name), bytes_(bytes_of(model)), vocabulary_(model.config.vocabulary) {
    context_limit_ = std::min(kMostContext, model.config.context - kBlock);
    const double of_one = bytes_.kv_token * context_limit_;
    blocks_ = static_cast<int>(std::max(of_one, std::min(kCacheBudget, of_one * kMostSeqs)) /
                               std::max(1.0, bytes_.kv_token) / kBlock);
    if (bytes_.kv_token == 0) blocks_ = kMostSeqs * (context_limit_ / kBlock + 1);
    blocks_ += 2 * kMostSeqs;
    backend_ = device::make_cpu_backend(threads, device::ActivationMode::int8);
    executable_ = backend_->compile(model.program, {kPrompt, kMostSeqs, kMostSeqs, context_limit_ + kBlock},
                                    {DType::bf16, kBlock});
    device::BindOptions options;
    options.num_blocks = blocks_;
    options.num_states = kMostSeqs;
    const double start = wall_seconds();
    executable_->bind(options);
    const device::MemoryPlan& plan = executable_->memory();
    std::printf(
        "\n%s: %d layers, weights %.2f GB made and packed in %.1f s, KV %.2f KiB per token, state %.2f MiB per "
        "sequence, both per layer\n",
        name.c_str(), kSliceLayers, static_cast<double>(plan.weights) / 1e9, wall_seconds() - start,
        static_cast<double>(plan.bytes_per_block) / kBlock / 1024 / kSliceLayers,
        static_cast<double>(plan.bytes_per_state) / (1 << 20) / kSliceLayers);
    fill();
  }

  const Bytes& bytes() const { return bytes_; }
  bool fits(int seqs, int context) const {
    return context <= context_limit_ && static_cast<int64_t>(seqs) * (context / kBlock + 2) <= blocks_;
  }
  /// Seconds of CPU time of a step in which each of `seqs` sequences at `context` gets a token.
  double decode(int seqs, int context) {
    std::vector<double> times;
    for (int i = 0; i < (seqs < 16 ? 3 : 1); ++i) {
      const double start = process_seconds();
      for (int at = 0; at < kBlock; ++at) step(seqs, 1, context - kBlock + at);
      times.push_back((process_seconds() - start) / kBlock);
    }
    return *std::min_element(times.begin(), times.end());
  }
  const std::string& name() const { return name_; }

 private:
  /// Real pages everywhere: those that nobody wrote would all be one page.
  void fill() {
    if (bytes_.state > 0) {
      step(1, kPrompt, 0);
      std::vector<std::pair<int32_t, int32_t>> copies;
      for (int32_t to = 1; to < kMostSeqs; ++to) copies.emplace_back(0, to);
      executable_->copy_states(copies);
    }
    if (bytes_.kv_token == 0) return;
    for (int first = 0; first < blocks_; first += kMostSeqs) {
      ids_.assign(kMostSeqs, 1);
      tables_.resize(kMostSeqs);
      sequences_.clear(), rows_ = {0}, want_ = {0};
      for (int i = 0; i < kMostSeqs; ++i) {
        tables_[static_cast<size_t>(i)] = std::min(first + i, blocks_ - 1);
        sequences_.push_back({i, 1, 0, std::span(tables_).subspan(static_cast<size_t>(i), 1), i});
      }
      executable_->wait(executable_->launch({kMostSeqs, kMostSeqs, 1, true}, {ids_, sequences_, rows_, want_}));
    }
  }

  void step(int seqs, int rows, int context) {
    ids_.resize(static_cast<size_t>(seqs * rows));
    for (int32_t& id : ids_) id = static_cast<int32_t>((seed_ = seed_ * 1664525u + 1013904223u) >> 8) % vocabulary_;
    const int each = (context + rows + kBlock - 1) / kBlock;
    tables_.resize(static_cast<size_t>(seqs * each));
    for (size_t i = 0; i < tables_.size(); ++i) tables_[i] = static_cast<int32_t>(i) % blocks_;
    sequences_.clear(), rows_.clear();
    for (int i = 0; i < seqs; ++i) {
      sequences_.push_back({i * rows, rows, context,
                            std::span(tables_).subspan(static_cast<size_t>(i * each), static_cast<size_t>(each)), i});
      rows_.push_back(i * rows + rows - 1);
    }
    want_.assign(rows_.size(), 0);
    executable_->wait(executable_->launch({seqs * rows, seqs, seqs, rows == 1}, {ids_, sequences_, rows_, want_}));
  }

  std::string name_;
  Bytes bytes_;
  int vocabulary_, context_limit_ = 0, blocks_ = 0;
  uint32_t seed_ = 1;
  std::unique_ptr<device::Backend> backend_;
  std::unique_ptr<device::Executable> executable_;
  std::vector<int32_t> ids_, tables_, rows_;
  std::vector<device::SequenceStep> sequences_;
  std::vector<uint8_t> want_;
};

/// The tables of one slice; returns the share of the read bandwidth that its steps reach.
double measure(Slice& slice, double bandwidth) {
  std::printf("  ms of CPU time per token and layer\n  %8s", "context");
  for (int seqs = 1; seqs <= kMostSeqs; seqs *= 4) std::printf(" %6d seq", seqs);
  std::printf("\n");
  double first = 0, last = 0;
  int last_context = 0;
  for (const int context : {1 << 10, 8 << 10, 32 << 10, kMostContext - kBlock}) {
    if (!slice.fits(1, context)) break;
    std::printf("  %8d", context);
    for (int seqs = 1; seqs <= kMostSeqs; seqs *= 4) {
      if (!slice.fits(seqs, context)) {
        std::printf(" %10s", "-");
        continue;
      }
      const double seconds = slice.decode(seqs, context);
      std::printf(" %10.3f", seconds * 1e3 / seqs / kSliceLayers);
      if (seqs == 1) (context == 1 << 10 ? first : last) = seconds;
      if (seqs == 1) last_context = context;
      std::fflush(stdout);
    }
    std::printf("\n");
  }
  if (slice.bytes().kv_token > 0) {
    std::printf("  one sequence: %.3f us per layer and 1000 tokens of context\n",
                (last - first) / kSliceLayers / (last_context - (1 << 10)) * 1e9);
  } else {
    std::printf("  one sequence: %.2f times the time of context 1024 at %d\n", last / first, last_context);
  }
  std::printf("  sequences at context 1024, distinct experts per layer if choices are even\n");
  double share = 0;
  for (const int seqs : {1, 2, 4, 8, 32}) {
    const double seconds = slice.decode(seqs, 1 << 10), bytes = slice.bytes().step(seqs, 1 << 10);
    if (seqs == 1) share = bytes / seconds / bandwidth;
    std::printf("  %3d seq: %8.3f ms per step and layer, %6.1f experts, %6.1f MB read per layer, %5.1f GB/s\n", seqs,
                seconds * 1e3 / kSliceLayers, slice.bytes().distinct(seqs), bytes / kSliceLayers / 1e6,
                bytes / seconds * 1e-9);
    std::fflush(stdout);
  }
  return share;
}

void extrapolate(const Bytes& whole, double share) {
  constexpr double kChannels = 24, kTransfers = 6.4e9, kSustained = 0.8;
  const double bandwidth = kChannels * kTransfers * 8 * kSustained;
  std::printf(
      "\nThe whole model on 2 x AMD EPYC 9755 (24 channels of DDR5-6400, 1229 GB/s by the data sheet), estimated.\n"
      "Assumptions: decode is bound by memory; %.0f %% of that bandwidth is sustained, every byte is read by the\n"
      "socket that holds it, and the kernels reach the share of it that one thread reached here (%.2f of the read\n"
      "bandwidth, at most 1); experts are chosen evenly. Weights of a step: %.2f GB, and %.1f MB per expert.\n",
      kSustained * 100, share, whole.dense / 1e9, whole.expert / 1e6);
  for (const int seqs : {1, 8, 64})
    for (const int context : {1 << 10, 32 << 10, 128 << 10}) {
      const double bytes = whole.step(seqs, context), seconds = bytes / (bandwidth * std::min(share, 1.0));
      std::printf("  %3d seq at %6d: %7.2f GB a step, %7.1f ms, %7.1f tok/s in all; cache %7.2f GB\n", seqs, context,
                  bytes / 1e9, seconds * 1e3, seqs / seconds, seqs * (whole.kv_token * context + whole.state) / 1e9);
    }
}

int run(int argc, char** argv) {
  if (argc < 2)
    throw Error("usage: gristmill_bench_context FOLDER [threads] [i4|i8|bf16]; FOLDER holds the model's config.json");
  const std::string folder = argv[1], weights = argc > 3 ? argv[3] : "i4";
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
  const device::ComputeClass cls = weights == "bf16" ? device::ComputeClass::bf16
                                   : weights == "i8" ? device::ComputeClass::i8_group
                                                     : device::ComputeClass::i4_group;
  const double bandwidth = measure_read(96 << 20) * threads;
  const model::Model whole = load(folder, cls, "");
  std::printf("%s, weights %s, %d threads, one reads %.1f GB/s\n", whole.config.architecture.c_str(), name_of(cls),
              threads, bandwidth * 1e-9 / threads);
  // A small vocabulary: the head belongs to no layer, and is counted by its bytes.
  const auto slice_of = [&](const std::string& types) {
    return load(folder, cls, cat("{\"num_hidden_layers\": ", kSliceLayers, ", \"vocab_size\": 4096", types, "}"));
  };
  double share = 0;
  if (!whole.program->states().empty()) {
    Slice slice("Gated DeltaNet layers", slice_of(", \"layer_types\": [\"linear_attention\", \"linear_attention\"]"),
                threads);
    share = measure(slice, bandwidth);
  }
  {
    Slice slice(
        "attention layers",
        slice_of(whole.program->states().empty() ? "" : ", \"layer_types\": [\"full_attention\", \"full_attention\"]"),
        threads);
    const double of_attention = measure(slice, bandwidth);
    share = share == 0 ? of_attention : std::min(share, of_attention);
  }
  extrapolate(bytes_of(whole), share);
  return 0;
}

}  // namespace
}  // namespace gristmill::bench

int main(int argc, char** argv) {
  try {
    return gristmill::bench::run(argc, argv);
  } catch (const gristmill::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
