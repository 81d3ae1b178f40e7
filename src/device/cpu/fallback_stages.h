#pragma once
// Stages that run an op's scalar definition (device/reference/) in parallel over rows or heads, for ops without kernels
// of their own.
#include "device/cpu/stage.h"
#include "device/reference/delta_net.h"

namespace gristmill::device::cpu {

/// Norms of queries or keys: one part of a row after the other, each as wide as the weight.
class PartNormStage final : public Stage {
 public:
  PartNormStage(Rows in, const float* const& weight, int weight_width, float eps, Rows out)
      : in_(in), weight_(weight), weight_width_(weight_width), eps_(eps), out_(out) {}
  uint32_t items(const Frame& frame) const override { return row_items(frame, frame.tokens); }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;

 private:
  Rows in_;
  const float* const& weight_;
  int weight_width_;
  float eps_;
  Rows out_;
};

/// x * sigmoid(gate).
class GateStage final : public Stage {
 public:
  GateStage(Rows x, Rows gate, Rows out) : x_(x), gate_(gate), out_(out) {}
  uint32_t items(const Frame& frame) const override { return row_items(frame, frame.tokens); }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;

 private:
  Rows x_, gate_, out_;
};

/// Where one layer's recurrent state is.
struct LayerState {
  reference::DeltaNetLayout layout;
  size_t offset = 0;  ///< in a slot, in bytes
};

/// An item is one group of heads of one sequence, token after token.
class DeltaNetStage final : public Stage {
 public:
  struct Weights {
    const float* const* conv;
    const float* const* a_log;
    const float* const* dt_bias;
    const float* const* out_norm;
  };
  DeltaNetStage(const DeltaNet& op, const LayerState& state, size_t slot_bytes, Weights weights, Rows qkv, Rows z,
                Rows b, Rows a, Rows out)
      : op_(op), state_(state), slot_bytes_(slot_bytes), weights_(weights), qkv_(qkv), z_(z), b_(b), a_(a), out_(out) {}
  uint32_t items(const Frame& frame) const override {
    return static_cast<uint32_t>(frame.inputs.sequences.size()) * static_cast<uint32_t>(op_.k_heads);
  }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;
  size_t working_bytes() const override { return sizeof(float) * reference::delta_net_work(state_.layout, op_); }

 private:
  DeltaNet op_;
  LayerState state_;
  size_t slot_bytes_;
  Weights weights_;
  Rows qkv_, z_, b_, a_, out_;
};

}  // namespace gristmill::device::cpu
