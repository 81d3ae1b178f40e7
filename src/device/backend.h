#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/progress.h"
#include "base/topology.h"
#include "device/program.h"

namespace gristmill::device {

/// The largest step an Executable must take.
struct Limits {
  int tokens = 0;   ///< rows in one step, of all sequences together
  int seqs = 0;     ///< sequences in one step
  int rows = 0;     ///< rows that may ask for logits in one step
  int context = 0;  ///< longest sequence, in tokens
};

struct CacheOptions {
  DType dtype = DType::bf16;  ///< of K and V; int8 and fp8_e4m3 with a float32 scale per token and head
  int block_size = 16;        ///< tokens per block; a power of two from 8 to 256
};

/// Where packed weights live.
enum class Residence : uint8_t {
  automatic,  ///< mapped when they come from the cache, are large, and there is one NUMA node; else owned
  mapped,     ///< used in place in the cache's file: pages are shared with other processes and outlive this one
  owned,      ///< in this process's own huge pages
};

/// Packed weights kept on disk between starts (device/cpu/weight_cache.h).
struct WeightCacheOptions {
  std::string directory;     ///< empty: none is kept
  std::string identity;      ///< of what the weights are made from (model::Model); empty: none is kept
  uint64_t most_bytes = 0;   ///< all files together; the least recently used make room
  uint64_t least_bytes = 0;  ///< smaller sets of weights are packed anew each time
  Residence residence = Residence::automatic;
};

/// What each part takes, in bytes, known before anything is allocated.
struct MemoryPlan {
  size_t weights = 0;          ///< packed weights
  size_t scratch = 0;          ///< activations and workspaces for Limits
  size_t bytes_per_block = 0;  ///< all layers' K and V of one cache block
  size_t bytes_per_state = 0;  ///< all layers' recurrent state in one slot; 0 for models without
  /// The weights are pages of a file in the cache, which other processes may share.
  bool weights_mapped = false;
};

/// What planning knows of a step.
struct StepShape {
  int tokens = 0;
  int seqs = 0;
  int rows = 0;
  bool decode_only = false;  ///< one token per sequence
};

/// One sequence's share of a step: rows [first_row, first_row + rows) are its next tokens, at positions context,
/// context + 1, ... `blocks` is its block table and covers context + rows tokens.
struct SequenceStep {
  int32_t first_row = 0;
  int32_t rows = 0;
  int32_t context = 0;
  std::span<const int32_t> blocks;
  /// Slot of the recurrent state, for models that have one; no two sequences of a step share it. A sequence at context
  /// 0 starts from zeros whatever the slot holds.
  int32_t state = -1;
};

/// Late-bound inputs; everything a span points at lives until wait() returns.
struct StepInputs {
  std::span<const int32_t> ids;  ///< [tokens]
  std::span<const SequenceStep> sequences;
  std::span<const int32_t> logit_rows;   ///< ascending rows that go through the head
  std::span<const uint8_t> want_logits;  ///< per logit row: 1 = the full logits, 0 = the argmax is enough
};

/// Valid until the next launch.
struct StepResult {
  std::span<const int32_t> argmax;           ///< per logit row; the lowest id among equal maxima, -1 if not finite
  std::span<const float* const> logits;      ///< per logit row: [vocabulary], null where want_logits was 0
  std::vector<std::span<const float>> taps;  ///< per slot: [tokens][tap_width]
  std::vector<ValueRange> ranges;            ///< per slot of Program::watched()
};

struct Ticket {
  uint64_t id = 0;
};

/// A step could not be computed.
class StepError : public Error {
 public:
  using Error::Error;
};

struct BindOptions {
  int num_blocks = 0;            ///< cache blocks; address space is reserved, pages are committed on first use
  Progress* progress = nullptr;  ///< null: silent
  int num_states = 0;            ///< slots of recurrent state, reserved like the blocks
};

class Executable {
 public:
  virtual ~Executable() = default;
  virtual const MemoryPlan& memory() const = 0;
  /// Allocates and packs the weights, reserves the cache. Once.
  virtual void bind(const BindOptions& options) = 0;
  /// Starts a step. At most one is in flight.
  virtual Ticket launch(const StepShape& shape, const StepInputs& inputs) = 0;
  /// The caller's thread joins the work. Throws StepError.
  virtual const StepResult& wait(Ticket ticket) = 0;
  /// What has gone wrong with its memory for good, e.g. a weight that its file no longer holds; "" while all is well.
  /// From then on every step fails. Any thread.
  virtual std::string fault() const { return {}; }
  /// Copies whole slots of recurrent state, all layers: pairs (from, to). Not while a step is in flight.
  /// Nothing to do for models without.
  virtual void copy_states(std::span<const std::pair<int32_t, int32_t>> pairs) { static_cast<void>(pairs); }
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  /// One line for the start-up log: instruction set, threads.
  virtual std::string describe() const = 0;
  /// The program is shared: its weight sources are read during bind(), unless the weights are found in `weights`. The
  /// reference back end packs nothing and keeps none.
  virtual std::unique_ptr<Executable> compile(std::shared_ptr<const Program> program, const Limits& limits,
                                              const CacheOptions& cache, const WeightCacheOptions& weights = {}) = 0;
};

/// The shared scalar decomposition as a complete, slow back end: one thread, float32 arithmetic on exact weights.
std::unique_ptr<Backend> make_reference_backend();

/// Arithmetic of quantized linears on the CPU.
enum class ActivationMode : uint8_t {
  int8,  ///< activations quantized to int8 per 32 columns for coded weights
  f32,   ///< float32 activations, weights dequantized to float32 at load (--dtype float32)
};

/// The CPU back end. `threads` >= 1, spread over the topology's domains. GRISTMILL_ISA forces an instruction set;
/// unknown or missing ones throw Error.
std::unique_ptr<Backend> make_cpu_backend(int threads, ActivationMode mode, const Topology& topology = {});

}  // namespace gristmill::device
