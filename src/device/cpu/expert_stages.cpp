#include "device/cpu/expert_stages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/reference/scalar_ops.h"

namespace gristmill::device::cpu {
namespace {

constexpr int kGateChunk = kGroup;  // so that a chunk is one group of quantized activations
constexpr int kDownChunk = 64;

/// Columns that hold `count` outputs from any row on, in whole panels.
int64_t covering(const PackedWeight& weight, int count) {
  return count + 2 * weight.panel;
}

/// The rows of one expert, as the input of a multiplication of its own.
struct Segment {
  Segment(const Frame& frame, const ExpertBuffers& buffers, int expert)
      : first(buffers.first_of(frame)[expert]), rows(buffers.first_of(frame)[expert + 1] - first) {}
  int first, rows;

  int blocks() const { return (rows + kRowBlock - 1) / kRowBlock; }
  CodedRows codes(CodedRows all) const {
    all.codes += static_cast<size_t>(first) * static_cast<size_t>(all.groups) * kGroup;
    all.scales += static_cast<size_t>(first) * static_cast<size_t>(all.groups) * sizeof(GroupScale);
    return all;
  }
  LinearInput input(LinearInput all) const {
    for (TokenRows& tokens : all.tokens) tokens = tokens.from(first);
    all.floats.offset += static_cast<size_t>(first) * static_cast<size_t>(all.floats.stride) * sizeof(float);
    all.codes = codes(all.codes);
    return all;
  }
};

/// Outputs [first, first + count) of `weight` for one block of rows: the panels that hold them go to `work`.
struct Outputs {
  Outputs(const Frame& frame, const PackedWeight& weight, const LinearInput& in, int rows, int block, int64_t first,
          int64_t count, float* work) {
    const int64_t begin = first / weight.panel, end = (first + count + weight.panel - 1) / weight.panel;
    stride = (end - begin) * weight.panel;
    y = work + (first - begin * weight.panel);
    multiply(frame, weight, in, rows, block, begin, end - begin, work, stride);
  }
  float* row(int index) const { return y + index * stride; }
  float* y;
  int64_t stride;
};

}  // namespace

void RouteStage::run(const Frame& frame, uint32_t item, uint32_t) const {
  const RowRange range = row_range(frame, frame.tokens, item);
  for (int t = range.first; t < range.end; ++t)
    reference::route(moe_, select_bias_ == nullptr ? nullptr : *select_bias_, buffers_.scores.row(frame, t),
                     buffers_.chosen_of(frame) + t * moe_.top_k, buffers_.weights_of(frame) + t * moe_.top_k);
}

void PlaceStage::run(const Frame& frame, uint32_t, uint32_t) const {
  const int pairs = frame.tokens * buffers_.top_k;
  const int32_t* const chosen = buffers_.chosen_of(frame);
  int32_t* const first = buffers_.first_of(frame);
  int32_t* const place = buffers_.place_of(frame);
  std::fill_n(first, buffers_.experts + 1, 0);
  for (int i = 0; i < pairs; ++i) ++first[chosen[i]];
  int32_t sum = 0;
  for (int e = 0; e <= buffers_.experts; ++e) sum += std::exchange(first[e], sum);
  // The first places serve as the next ones, and are one expert too far afterwards.
  for (int i = 0; i < pairs; ++i) place[i] = first[chosen[i]]++;
  for (int e = buffers_.experts; e > 0; --e) first[e] = first[e - 1];
  first[0] = 0;
  int32_t* active = buffers_.active_of(frame);
  for (int e = 0; e < buffers_.experts; ++e)
    if (first[e] != first[e + 1]) *active++ = e;
  // To the end: stages have items for as many experts as there may be, and what a step before left there would have an
  // expert computed twice at a time.
  std::fill(active, buffers_.active_of(frame) + buffers_.experts + 1, -1);
}

void DispatchStage::run(const Frame& frame, uint32_t item, uint32_t) const {
  const RowRange range = row_range(frame, frame.tokens, item);
  for (int t = range.first; t < range.end; ++t)
    for (int r = 0; r < buffers_.top_k; ++r) {
      const int pair = t * buffers_.top_k + r, place = buffers_.place_of(frame)[pair];
      const float* const row = in_.row(frame, t);
      if (buffers_.gate_up->channel()) {
        const Segment segment(frame, buffers_, buffers_.chosen_of(frame)[pair]);
        tokens_.front().copy(frame, frame.tokens, t, buffers_.in.tokens.front().from(segment.first), segment.rows,
                             place - segment.first);
        continue;
      }
      if (!buffers_.gate_up->coded()) {
        std::memcpy(buffers_.in.floats.row(frame, place), row, sizeof(float) * static_cast<size_t>(in_.width));
        continue;
      }
      const Segment segment(frame, buffers_, buffers_.chosen_of(frame)[pair]);
      const CodedRows codes = segment.codes(buffers_.in.codes);
      codes.quantize(frame, segment.rows, place - segment.first, row, 0, codes.groups);
    }
}

ExpertGateStage::ExpertGateStage(const PackedWeight& gate_up, const ExpertBuffers& buffers)
    : gate_up_(gate_up), buffers_(buffers), chunks_((buffers.width + kGateChunk - 1) / kGateChunk) {}

size_t ExpertGateStage::working_bytes() const {
  return sizeof(float) * 2 * kRowBlock * static_cast<size_t>(covering(gate_up_, kGateChunk));
}

void ExpertGateStage::run(const Frame& frame, uint32_t item, uint32_t member) const {
  const int expert = buffers_.active_of(frame)[static_cast<int>(item) / chunks_];
  const int chunk = static_cast<int>(item) % chunks_;
  if (expert < 0) return;
  const Segment segment(frame, buffers_, expert);
  const LinearInput in = segment.input(buffers_.in);
  const CodedRows codes = segment.codes(buffers_.inner.codes);
  const int column = chunk * kGateChunk, columns = std::min(kGateChunk, buffers_.width - column);
  const int64_t gate_row = int64_t{expert} * 2 * buffers_.width + column;
  auto* const work = reinterpret_cast<float*>(frame.working_memory(member));
  for (int block = 0; block < segment.blocks(); ++block) {
    const Outputs gate(frame, gate_up_, in, segment.rows, block, gate_row, columns, work);
    const Outputs up(frame, gate_up_, in, segment.rows, block, gate_row + buffers_.width, columns,
                     work + kRowBlock * covering(gate_up_, kGateChunk));
    for (int r = 0; r < CodedRows::block_rows(segment.rows, block); ++r) {
      const int row = block * kRowBlock + r;
      float* const out =
          buffers_.down->coded() ? gate.row(r) : buffers_.inner.floats.row(frame, segment.first + row) + column;
      frame.kernels->silu_mul(gate.row(r), up.row(r), columns, out);
      if (buffers_.down->coded()) codes.quantize(frame, segment.rows, row, out, chunk, 1);
    }
  }
}

void ExpertQuantizeStage::run(const Frame& frame, uint32_t item, uint32_t) const {
  const RowRange range = row_range(frame, frame.tokens * buffers_.top_k, item);
  const int32_t* const first = buffers_.first_of(frame);
  int expert = static_cast<int>(std::upper_bound(first, first + buffers_.experts + 1, range.first) - first) - 1;
  for (int place = range.first; place < range.end; ++place) {
    while (first[expert + 1] <= place) ++expert;
    const Segment segment(frame, buffers_, expert);
    buffers_.inner.tokens.front()
        .from(segment.first)
        .quantize(frame, segment.rows, place - segment.first, buffers_.inner.floats.row(frame, place));
  }
}

ExpertDownStage::ExpertDownStage(const PackedWeight& down, const ExpertBuffers& buffers)
    : down_(down), buffers_(buffers), chunks_((buffers.hidden + kDownChunk - 1) / kDownChunk) {}

size_t ExpertDownStage::working_bytes() const {
  return sizeof(float) * kRowBlock * static_cast<size_t>(covering(down_, kDownChunk));
}

void ExpertDownStage::run(const Frame& frame, uint32_t item, uint32_t member) const {
  const int expert = buffers_.active_of(frame)[static_cast<int>(item) / chunks_];
  const int chunk = static_cast<int>(item) % chunks_;
  if (expert < 0) return;
  const Segment segment(frame, buffers_, expert);
  const LinearInput in = segment.input(buffers_.inner);
  const int column = chunk * kDownChunk, columns = std::min(kDownChunk, buffers_.hidden - column);
  auto* const work = reinterpret_cast<float*>(frame.working_memory(member));
  for (int block = 0; block < segment.blocks(); ++block) {
    const Outputs y(frame, down_, in, segment.rows, block, int64_t{expert} * buffers_.hidden + column, columns, work);
    for (int r = 0; r < CodedRows::block_rows(segment.rows, block); ++r)
      std::memcpy(buffers_.results.row(frame, segment.first + block * kRowBlock + r) + column, y.row(r),
                  sizeof(float) * static_cast<size_t>(columns));
  }
}

void CombineStage::run(const Frame& frame, uint32_t item, uint32_t) const {
  const RowRange range = row_range(frame, frame.tokens, item);
  for (int t = range.first; t < range.end; ++t) {
    float* const out = out_.row(frame, t);
    std::fill_n(out, buffers_.hidden, 0.0f);
    for (int r = 0; r < buffers_.top_k; ++r) {
      const int pair = t * buffers_.top_k + r;
      const float weight = buffers_.weights_of(frame)[pair];
      const float* const result = buffers_.results.row(frame, buffers_.place_of(frame)[pair]);
      frame.kernels->add_weighted(weight, result, buffers_.hidden, out);
    }
  }
}

}  // namespace gristmill::device::cpu
