#include "device/cpu/fallback_stages.h"

#include "device/reference/scalar_ops.h"

namespace gristmill::device::cpu {

void PartNormStage::run(const Frame& frame, uint32_t item, uint32_t) const {
  const RowRange range = row_range(frame, frame.tokens, item);
  for (int t = range.first; t < range.end; ++t)
    for (int first = 0; first < in_.width; first += weight_width_)
      frame.kernels->rms_norm(in_.row(frame, t) + first, weight_, eps_, weight_width_, out_.row(frame, t) + first);
}

void GateStage::run(const Frame& frame, uint32_t item, uint32_t) const {
  const RowRange range = row_range(frame, frame.tokens, item);
  for (int t = range.first; t < range.end; ++t)
    reference::apply_gate(x_.row(frame, t), x_.width, gate_.row(frame, t), gate_.width, out_.row(frame, t));
}

void DeltaNetStage::run(const Frame& frame, uint32_t item, uint32_t member) const {
  const int group = static_cast<int>(item) % op_.k_heads;
  const SequenceStep& sequence = frame.inputs.sequences[item / static_cast<uint32_t>(op_.k_heads)];
  auto* const state =
      reinterpret_cast<float*>(frame.states + static_cast<size_t>(sequence.state) * slot_bytes_ + state_.offset) +
      static_cast<size_t>(group) * state_.layout.group_floats;
  const reference::DeltaNetWeights weights{*weights_.conv, *weights_.a_log, *weights_.dt_bias, *weights_.out_norm};
  auto* const work = reinterpret_cast<float*>(frame.working_memory(member));
  for (int32_t i = 0; i < sequence.rows; ++i) {
    const int t = sequence.first_row + i;
    const reference::DeltaNetRow row{qkv_.row(frame, t), z_.row(frame, t), b_.row(frame, t), a_.row(frame, t),
                                     out_.row(frame, t)};
    reference::delta_net_token(op_, state_.layout, weights, row, group, sequence.context + i, state, work);
  }
}

}  // namespace gristmill::device::cpu
