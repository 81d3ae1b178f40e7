// Whole forward passes of a model on the CPU back end, as its file has it or quantized at load: prefill and batched
// decode at several depths, as tokens per second of CPU time (all threads together) and of wall time.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "clock.h"
#include "device/backend.h"
#include "model/model.h"

namespace gristmill::bench {
namespace {

constexpr int kContext = 8192, kTokens = 512, kSeqs = 64;

class Runner {
 public:
  Runner(const std::string& path, int threads, DType cache, int block_size, const std::string& quantization)
      : blocks_per_sequence_(kContext / block_size) {
    const model::Model loaded = model::load_model(path, {.quantization = quantization});
    vocabulary_ = loaded.config.vocabulary;
    backend_ = device::make_cpu_backend(threads, device::ActivationMode::int8);
    executable_ = backend_->compile(loaded.program, {kTokens, kSeqs, kSeqs, kContext}, {cache, block_size});
    const double start = wall_seconds(), cpu = process_seconds();
    executable_->bind({kSeqs * blocks_per_sequence_, nullptr});
    const auto& plan = executable_->memory();
    std::printf("%s%s%s, KV %s\nweights %.1f MB, scratch %.1f MB, %zu bytes per block; packed in %.2f s (%.2f CPU s)\n",
                backend_->describe().c_str(), quantization.empty() ? "" : ", ", quantization.c_str(), name_of(cache),
                plan.weights / 1e6, plan.scratch / 1e6, plan.bytes_per_block, wall_seconds() - start,
                process_seconds() - cpu);
    for (int i = 0; i < kSeqs * blocks_per_sequence_; ++i) blocks_.push_back(i);
  }

  /// One step in which each of `seqs` sequences at `context` gets `rows` tokens; the last row goes through the head.
  void step(int seqs, int rows, int context) {
    ids_.resize(static_cast<size_t>(seqs * rows));
    for (int32_t& id : ids_)
      id = static_cast<int32_t>((seed_ = seed_ * 1664525u + 1013904223u) % static_cast<uint32_t>(vocabulary_));
    sequences_.clear();
    logit_rows_.clear();
    for (int i = 0; i < seqs; ++i) {
      sequences_.push_back({i * rows, rows, context,
                            std::span(blocks_).subspan(static_cast<size_t>(i * blocks_per_sequence_),
                                                       static_cast<size_t>(blocks_per_sequence_))});
      logit_rows_.push_back(i * rows + rows - 1);
    }
    want_.assign(logit_rows_.size(), 0);
    executable_->wait(
        executable_->launch({seqs * rows, seqs, seqs, rows == 1}, {ids_, sequences_, logit_rows_, want_}));
  }
  void fill(int seqs, int depth) {
    for (int i = 0; i < depth; i += kTokens / seqs) step(seqs, std::min(kTokens / seqs, depth - i), i);
  }

  void prefill(int depth) {
    fill(1, depth);
    measure("prefill", 1, depth, kTokens, 5, [&](int) { step(1, kTokens, depth); });
  }
  void decode(int seqs, int depth) {
    fill(seqs, depth);
    measure("decode", seqs, depth, seqs * 16, 7, [&](int) {
      for (int i = 0; i < 16; ++i) step(seqs, 1, depth + i);
    });
  }

 private:
  template <class Work>
  void measure(const char* what, int seqs, int depth, int tokens, int repeats, Work work) {
    work(0);
    std::vector<double> cpu, wall;
    for (int i = 0; i < repeats; ++i) {
      const double c = process_seconds(), w = wall_seconds();
      work(i);
      cpu.push_back(process_seconds() - c);
      wall.push_back(wall_seconds() - w);
    }
    const double best = *std::min_element(cpu.begin(), cpu.end());
    std::printf("%-8s %3d x depth %5d: %8.1f tok/cpu-s median, %8.1f best, %8.1f tok/s wall\n", what, seqs, depth,
                tokens / median(cpu), tokens / best, tokens / median(wall));
    std::fflush(stdout);
  }

  int blocks_per_sequence_;  // enough for the longest; pages that are not used are not committed
  int vocabulary_ = 0;
  uint32_t seed_ = 1;
  std::unique_ptr<device::Backend> backend_;
  std::unique_ptr<device::Executable> executable_;
  std::vector<int32_t> blocks_, ids_, logit_rows_;
  std::vector<device::SequenceStep> sequences_;
  std::vector<uint8_t> want_;
};

int run(int argc, char** argv) {
  const char* fallback = std::getenv("GRISTMILL_DEFAULT_MODEL");
  const std::string path = argc > 1 ? argv[1] : fallback == nullptr ? "" : fallback;
  if (path.empty())
    throw Error("usage: gristmill_bench_forward MODEL [threads] [bf16|f16|f32|i8|fp8] [block size] [w8a8|w4a8]");
  const std::string cache = argc > 3 ? argv[3] : "bf16";
  Runner runner(path, argc > 2 ? std::atoi(argv[2]) : 1,
                cache == "f32"   ? DType::f32
                : cache == "f16" ? DType::f16
                : cache == "i8"  ? DType::i8
                : cache == "fp8" ? DType::fp8_e4m3
                                 : DType::bf16,
                argc > 4 ? std::atoi(argv[4]) : 16, argc > 5 ? argv[5] : "");
  runner.prefill(0);
  for (int seqs : {1, 2, 4, 8, 16, 32, 64}) runner.decode(seqs, 16);
  runner.decode(32, 256);
  for (int depth : {2048, 7500}) {
    runner.prefill(depth);
    runner.decode(1, depth);
  }
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
