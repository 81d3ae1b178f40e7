#include "device/cpu/linear_stages.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace gristmill::device::cpu {
namespace {

// Outputs per item: about a microsecond of memory time for one row of a small model, so that members end together.
constexpr int kChunk = 64;
constexpr int kGatedChunk = 32;
constexpr int kHeadChunk = 128;

int row_blocks(int rows) {
  return (rows + kRowBlock - 1) / kRowBlock;
}

}  // namespace

void multiply(const Frame& frame, const PackedWeight& weight, const LinearInput& in, int rows, int block, int64_t first,
              int64_t panels, float* y, int64_t y_stride) {
  if (weight.channel()) {
    frame.kernels->channel_linear(weight, first, panels, in.tokens_for(weight).block(frame, rows, block), y, y_stride);
  } else if (weight.coded()) {
    frame.kernels->coded_linear(weight, first, panels, in.codes.block(frame, rows, block), y, y_stride);
  } else {
    frame.kernels->float_linear(weight, first, panels, in.floats.row(frame, block * kRowBlock), in.floats.stride,
                                CodedRows::block_rows(rows, block), y, y_stride);
  }
}

LinearStage::LinearStage(LinearInput in, std::vector<Matrix> matrices)
    : in_(std::move(in)), matrices_(std::move(matrices)) {
  for (size_t i = 0; i < matrices_.size(); ++i) {
    const PackedWeight& weight = *matrices_[i].weight;
    const int64_t step = kChunk / weight.panel;
    for (int64_t first = 0; first < weight.panels(); first += step) {
      chunks_.push_back({static_cast<int>(i), first, std::min(step, weight.panels() - first)});
    }
  }
}

uint32_t LinearStage::items(const Frame& frame) const {
  return static_cast<uint32_t>(chunks_.size()) * static_cast<uint32_t>(row_blocks(frame.tokens));
}

void LinearStage::run(const Frame& frame, uint32_t item, uint32_t) const {
  const Chunk& chunk = chunks_[item % chunks_.size()];
  const int block = static_cast<int>(item / chunks_.size());
  const Matrix& matrix = matrices_[chunk.matrix];
  const int64_t column = chunk.first * matrix.weight->panel;
  float* const y = matrix.out.row(frame, block * kRowBlock) + column;
  multiply(frame, *matrix.weight, in_, frame.tokens, block, chunk.first, chunk.panels, y, matrix.out.stride);
  if (matrix.bias == nullptr) return;
  const int64_t columns = std::min<int64_t>(chunk.panels * matrix.weight->panel, matrix.weight->outputs - column);
  for (int r = 0; r < CodedRows::block_rows(frame.tokens, block); ++r) {
    float* const row = y + r * matrix.out.stride;
    frame.kernels->add(row, *matrix.bias + column, columns, row);
  }
}

GatedLinearStage::GatedLinearStage(LinearInput in, Matrix gate, Matrix up, std::optional<Rows> floats,
                                   std::optional<CodedRows> codes)
    : in_(std::move(in)),
      gate_(gate),
      up_(up),
      floats_(floats),
      codes_(codes),
      chunks_((gate.weight->outputs + kGatedChunk - 1) / kGatedChunk) {}

uint32_t GatedLinearStage::items(const Frame& frame) const {
  return static_cast<uint32_t>(chunks_) * static_cast<uint32_t>(row_blocks(frame.tokens));
}

size_t GatedLinearStage::working_bytes() const {
  return sizeof(float) * 2 * kRowBlock * kGatedChunk;
}

void GatedLinearStage::run(const Frame& frame, uint32_t item, uint32_t member) const {
  const int64_t chunk = item % chunks_;
  const int block = static_cast<int>(item / chunks_), rows = CodedRows::block_rows(frame.tokens, block);
  const int64_t column = chunk * kGatedChunk;
  const int64_t columns = std::min<int64_t>(kGatedChunk, gate_.weight->outputs - column);
  float* const gate = reinterpret_cast<float*>(frame.working_memory(member));
  float* const up = gate + kRowBlock * kGatedChunk;
  const auto half = [&](const Matrix& matrix, float* y) {
    const int64_t first = column / matrix.weight->panel;
    const int64_t panels = std::min<int64_t>(kGatedChunk / matrix.weight->panel, matrix.weight->panels() - first);
    multiply(frame, *matrix.weight, in_, frame.tokens, block, first, panels, y, kGatedChunk);
    for (int r = 0; matrix.bias != nullptr && r < rows; ++r) {
      frame.kernels->add(y + r * kGatedChunk, *matrix.bias + column, columns, y + r * kGatedChunk);
    }
  };
  half(gate_, gate);
  half(up_, up);
  for (int r = 0; r < rows; ++r) {
    const int t = block * kRowBlock + r;
    float* const out = floats_ ? floats_->row(frame, t) + column : gate + r * kGatedChunk;
    frame.kernels->silu_mul(gate + r * kGatedChunk, up + r * kGatedChunk, columns, out);
    if (codes_) codes_->quantize(frame, frame.tokens, t, out, chunk, 1);
  }
}

HeadStage::HeadStage(LinearInput in, const PackedWeight& vocabulary)
    : in_(std::move(in)),
      vocabulary_(vocabulary),
      chunk_panels_(kHeadChunk / vocabulary.panel),
      chunks_((vocabulary.panels() + chunk_panels_ - 1) / chunk_panels_) {}

uint32_t HeadStage::items(const Frame& frame) const {
  return static_cast<uint32_t>(chunks_) *
         static_cast<uint32_t>(row_blocks(static_cast<int>(frame.inputs.logit_rows.size())));
}

size_t HeadStage::working_bytes() const {
  return sizeof(float) * kRowBlock * kHeadChunk;
}

void HeadStage::run(const Frame& frame, uint32_t item, uint32_t member) const {
  const int total = static_cast<int>(frame.inputs.logit_rows.size());
  const int64_t chunk = item % chunks_, first = chunk * chunk_panels_;
  const int block = static_cast<int>(item / chunks_);
  float* const y = reinterpret_cast<float*>(frame.working_memory(member));
  multiply(frame, vocabulary_, in_, total, block, first, std::min(chunk_panels_, vocabulary_.panels() - first), y,
           kHeadChunk);
  const int64_t column = chunk * kHeadChunk;
  const int64_t columns = std::min<int64_t>(kHeadChunk, vocabulary_.outputs - column);
  for (int r = 0; r < CodedRows::block_rows(total, block); ++r) {
    const int row = block * kRowBlock + r;
    const float* const logits = y + r * kHeadChunk;
    const int64_t top = frame.kernels->argmax(logits, columns);
    reinterpret_cast<Best*>(frame.scratch + best_)[row * chunks_ + chunk] = {logits[top],
                                                                             static_cast<int32_t>(column + top)};
    if (frame.inputs.want_logits[row] != 0) {
      std::memcpy(logits_.row(frame, row) + column, logits, sizeof(float) * columns);
    }
  }
}

void ArgmaxStage::run(const Frame& frame, uint32_t item, uint32_t) const {
  const RowRange range = row_range(frame, rows(frame), item);
  for (int row = range.first; row < range.end; ++row) {
    const HeadStage::Best* const best = head_.best(frame, row);
    HeadStage::Best top = best[0];
    for (int64_t i = 1; i < head_.chunks(); ++i) {
      if (best[i].value > top.value || std::isnan(best[i].value)) top = best[i];
    }
    reinterpret_cast<int32_t*>(frame.scratch + out_)[row] = std::isfinite(top.value) ? top.id : -1;
  }
}

}  // namespace gristmill::device::cpu
