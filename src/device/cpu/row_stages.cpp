#include "device/cpu/row_stages.h"

#include <cstring>

#include "device/cpu/attention_stages.h"
#include "device/reference/scalar_ops.h"

namespace gristmill::device::cpu {

void EmbedStage::run(const Frame& frame, uint32_t item, uint32_t) const {
  const RowRange range = row_range(frame, frame.tokens, item);
  for (int t = range.first; t < range.end; ++t) read_packed_row(table_, frame.inputs.ids[t], out_.row(frame, t));
}

void PrepareStage::run(const Frame& frame, uint32_t item, uint32_t member) const {
  const Kernels& kernels = *frame.kernels;
  auto* const spare = reinterpret_cast<float*>(frame.working_memory(member));
  const RowRange range = row_range(frame, rows(frame), item);
  for (int r = range.first; r < range.end; ++r) {
    const int t = p_.logit_rows ? frame.inputs.logit_rows[r] : r;
    const float* x = p_.in.row(frame, t);
    if (p_.merge != nullptr) p_.merge->merge_row(frame, t);
    if (p_.addend) {
      float* const sum = p_.sum ? p_.sum->row(frame, t) : spare;
      kernels.add(x, p_.addend->row(frame, t), p_.in.width, sum);
      x = sum;
    }
    if (p_.norm_weight != nullptr) {
      float* const normed = p_.floats ? p_.floats->row(frame, r) : spare + p_.in.stride;
      kernels.rms_norm(x, *p_.norm_weight, p_.norm_eps, p_.in.width, normed);
      x = normed;
    } else if (p_.floats) {
      std::memcpy(p_.floats->row(frame, r), x, sizeof(float) * p_.in.width);
    }
    if (p_.codes) p_.codes->quantize(frame, rows(frame), r, x, 0, p_.codes->groups);
    for (const TokenRows& tokens : p_.tokens) tokens.quantize(frame, rows(frame), r, x);
  }
}

void PartNormStage::run(const Frame& frame, uint32_t item, uint32_t) const {
  const RowRange range = row_range(frame, frame.tokens, item);
  for (int t = range.first; t < range.end; ++t)
    for (int first = 0; first < in_.width; first += weight_width_)
      frame.kernels->rms_norm(in_.row(frame, t) + first, weight_, eps_, weight_width_, out_.row(frame, t) + first);
}

void GateStage::run(const Frame& frame, uint32_t item, uint32_t) const {
  const RowRange range = row_range(frame, frame.tokens, item);
  for (int t = range.first; t < range.end; ++t) {
    const float *const x = x_.row(frame, t), *const gate = gate_.row(frame, t);
    float* const out = out_.row(frame, t);
    if (gate_.width != 1) {
      frame.kernels->gate(x, gate, x_.width, out);
      continue;
    }
    const float one = 1.0f;
    float factor = 0;
    frame.kernels->gate(&one, gate, 1, &factor);
    for (int i = 0; i < x_.width; ++i) out[i] = x[i] * factor;
  }
}

void RangeStage::run(const Frame& frame, uint32_t item, uint32_t) const {
  const RowRange range = row_range(frame, frame.tokens, item);
  for (int t = range.first; t < range.end; ++t)
    reinterpret_cast<ValueRange*>(frame.scratch + out_)[t] =
        reference::range_of(in_.row(frame, t), static_cast<size_t>(in_.width));
}

void TapStage::run(const Frame& frame, uint32_t item, uint32_t) const {
  const RowRange range = row_range(frame, frame.tokens, item);
  auto* const out = reinterpret_cast<float*>(frame.scratch + out_);
  for (int t = range.first; t < range.end; ++t) {
    std::memcpy(out + static_cast<int64_t>(t) * in_.width, in_.row(frame, t), sizeof(float) * in_.width);
  }
}

}  // namespace gristmill::device::cpu
