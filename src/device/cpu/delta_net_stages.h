#pragma once
// Gated DeltaNet on the CPU (device/reference/delta_net.h has the definition): first what the value heads of a group
// share, then each value head. A step may hold any part of a chunk or several chunks of a sequence; the arithmetic of a
// token depends on its absolute position only.
#include <vector>

#include "device/cpu/stage.h"

namespace gristmill::device::cpu {

/// What the two stages of a DeltaNet pass on to each other, and where its state is.
struct DeltaNetFrame {
  DeltaNetFrame(const LayerState& layer, size_t bytes_of_slot) : state(layer), slot_bytes(bytes_of_slot) {}

  LayerState state;
  size_t slot_bytes;  ///< of all layers
  Rows mixed;         ///< qkv behind convolution and norms
  /// [tokens][k_heads][2][kDeltaChunk]: k_i.k_j, then q_i.k_j.
  Rows products;
  /// Keys [panel][k_heads][k_dim][kDeltaChunk] of the chunks that the step completes; those of a sequence's last chunk
  /// are in its state.
  size_t panels = 0;

  /// Most chunks of a step that are not the last one of their sequence.
  static size_t most_panels(int tokens, int seqs) { return static_cast<size_t>(tokens / kDeltaChunk + seqs); }
  float* slot(const Frame& frame, const SequenceStep& sequence) const {
    return reinterpret_cast<float*>(frame.states + static_cast<size_t>(sequence.state) * slot_bytes + state.offset);
  }
  float* products_of(const Frame& frame, int row, int group) const {
    return products.row(frame, row) + group * 2 * kDeltaChunk;
  }
  /// Keys of the chunk at `chunk` (position / kDeltaChunk) for a group.
  float* keys(const Frame& frame, int sequence, int chunk, int group) const;
};

/// Convolution, norms of queries and keys, products of keys. An item is one group of heads of one sequence.
class DeltaNetInputStage final : public Stage {
 public:
  DeltaNetInputStage(const DeltaNet& op, const DeltaNetFrame& shared, const float* const& conv, Rows qkv)
      : op_(op), shared_(shared), conv_(conv), qkv_(qkv) {}
  uint32_t items(const Frame& frame) const override {
    return static_cast<uint32_t>(frame.inputs.sequences.size()) * static_cast<uint32_t>(op_.k_heads);
  }
  void weights_loaded() override;
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;

 private:
  void convolve(const Frame& frame, float* inputs, int row, int rows, int32_t position, int first, int count) const;

  DeltaNet op_;
  DeltaNetFrame shared_;
  const float* const& conv_;  ///< [channels][conv_width]
  std::vector<float> taps_;   ///< [conv_width][channels]
  Rows qkv_;
};

/// The recurrence and the norm behind it. An item is one value head of one sequence.
class DeltaNetHeadStage final : public Stage {
 public:
  struct Weights {
    const float* const* a_log;
    const float* const* dt_bias;
    const float* const* out_norm;
  };
  DeltaNetHeadStage(const DeltaNet& op, const DeltaNetFrame& shared, Weights weights, Rows z, Rows b, Rows a, Rows out)
      : op_(op), shared_(shared), weights_(weights), z_(z), b_(b), a_(a), out_(out) {}
  uint32_t items(const Frame& frame) const override {
    return static_cast<uint32_t>(frame.inputs.sequences.size()) * static_cast<uint32_t>(op_.v_heads);
  }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;
  size_t working_bytes() const override;

 private:
  struct Work;
  struct Chunk;
  void weigh(const Frame& frame, const Chunk& chunk, float* totals, const Work& work) const;
  void read_state(const Frame& frame, const Chunk& chunk, const float* folded, const Work& work) const;
  void finish_rows(const Frame& frame, const Chunk& chunk, const Work& work) const;
  void fold(const Frame& frame, const Chunk& chunk, const float* totals, const float* writes, float* folded,
            const Work& work) const;

  DeltaNet op_;
  DeltaNetFrame shared_;
  Weights weights_;
  Rows z_, b_, a_, out_;
};

}  // namespace gristmill::device::cpu
