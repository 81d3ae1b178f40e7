#include "device/cpu/attention_stages.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "device/rope_table.h"

namespace gristmill::device::cpu {

void RotaryStage::run(const Frame& frame, uint32_t item, uint32_t) const {
  const RowRange range = row_range(frame, frame.tokens, item);
  for (int t = range.first; t < range.end; ++t) {
    float* const cosines = table_.row(frame, t);
    rope_table(rope_, frame.position_of[t], cosines, cosines + table_.stride / 2);
  }
}

CacheWriteStage::CacheWriteStage(const Attention& attention, const RotaryStage* rotary, const LayerCache& cache, Rows q,
                                 Rows k, Rows v, Rows rotated_q)
    : heads_(attention.heads),
      kv_heads_(attention.kv_heads),
      head_dim_(attention.head_dim),
      half_(rotary == nullptr ? 0 : static_cast<int>(rotary->rope().inv_freq.size())),
      factor_(static_cast<float>(static_cast<double>(attention.scale) * std::numbers::log2e)),
      rotary_(rotary),
      cache_(cache),
      q_(q),
      k_(k),
      v_(v),
      rotated_q_(rotated_q) {}

void CacheWriteStage::run(const Frame& frame, uint32_t item, uint32_t member) const {
  const RowRange range = row_range(frame, frame.tokens, item);
  const KvLayout& layout = cache_.layout;
  const KvPool pool = cache_.pool(frame);
  auto* const rotated = reinterpret_cast<float*>(frame.working_memory(member));
  auto* const rounded = reinterpret_cast<uint16_t*>(rotated + head_dim_);
  for (int t = range.first; t < range.end; ++t) {
    const float* const cosines = rotary_ == nullptr ? nullptr : rotary_->table().row(frame, t);
    const float* const sines = rotary_ == nullptr ? nullptr : cosines + rotary_->table().stride / 2;
    const float* const q = q_.row(frame, t);
    for (int h = 0; h < heads_; ++h) {
      frame.kernels->rotate(q + h * head_dim_, cosines, sines, half_, head_dim_, factor_,
                            rotated_q_.row(frame, t) + h * head_dim_);
      if (cache_.scales != nullptr)
        cache_.scales->scale_query(h / (heads_ / kv_heads_), rotated_q_.row(frame, t) + h * head_dim_);
    }
    const SequenceStep& sequence = frame.inputs.sequences[frame.sequence_of[t]];
    const int position = frame.position_of[t];
    const int32_t block = sequence.blocks[position >> layout.block_shift];
    const int slot = position & (layout.block_size - 1);
    for (int h = 0; h < kv_heads_; ++h) {
      frame.kernels->rotate(k_.row(frame, t) + h * head_dim_, cosines, sines, half_, head_dim_, 1.0f, rotated);
      const float* const v = v_.row(frame, t) + h * head_dim_;
      std::byte* const k_block = pool.k(layout, h, block);
      std::byte* const v_block = pool.v(layout, h, block);
      if (layout.scaled()) {
        auto* const codes = reinterpret_cast<uint8_t*>(rounded);
        const float k_scale = cache_.scales != nullptr ? cache_.scales->encode_k(h, rotated, codes)
                                                       : frame.kernels->encode(layout.dtype, rotated, head_dim_, codes);
        layout.write_k(k_block, slot, codes, k_scale);
        const float v_scale = cache_.scales != nullptr ? cache_.scales->encode_v(h, v, codes)
                                                       : frame.kernels->encode(layout.dtype, v, head_dim_, codes);
        layout.write_v(v_block, slot, codes, v_scale);
        continue;
      }
      if (layout.dtype == DType::f32) {
        layout.write_k(k_block, slot, rotated);
        layout.write_v(v_block, slot, v);
        continue;
      }
      frame.kernels->round(layout.dtype, rotated, head_dim_, rounded);
      layout.write_k(k_block, slot, rounded);
      frame.kernels->round(layout.dtype, v, head_dim_, rounded);
      layout.write_v(v_block, slot, rounded);
    }
  }
}

void AttentionWork::plan(const Frame& frame) {
  pieces_.clear();
  const int step = tile_queries(group_);
  for (size_t i = 0; i < frame.inputs.sequences.size(); ++i) {
    const SequenceStep& sequence = frame.inputs.sequences[i];
    if (sequence.rows == 1) {
      const int keys = sequence.context + 1;
      for (int first = 0; first < keys; first += kPartition) {
        pieces_.push_back({static_cast<int>(i), first / kPartition, std::min(kPartition, keys - first), false});
      }
      continue;
    }
    // The last tiles see the most keys: they come first, so that members end together.
    for (int first = (sequence.rows - 1) / step * step; first >= 0; first -= step) {
      pieces_.push_back({static_cast<int>(i), first, std::min(step, sequence.rows - first), true});
    }
  }
}

AttentionStage::AttentionStage(const Attention& attention, const AttentionWork& work, const LayerCache& cache, Rows q,
                               Rows out, size_t partials, int partitions)
    : kv_heads_(attention.kv_heads),
      group_(attention.heads / attention.kv_heads),
      work_(work),
      cache_(cache),
      q_(q),
      out_(out),
      partials_(partials),
      partitions_(partitions) {}

uint32_t AttentionStage::items(const Frame&) const {
  return static_cast<uint32_t>(work_.pieces().size()) * static_cast<uint32_t>(kv_heads_);
}

float* AttentionStage::partials_of(const Frame& frame, int sequence, int head) const {
  const int64_t index = (static_cast<int64_t>(sequence) * kv_heads_ * group_ + head) * partitions_;
  return reinterpret_cast<float*>(frame.scratch + partials_) + index * partial_floats(cache_.layout);
}

void AttentionStage::run_head(const Frame& frame, const AttentionWork::Piece& piece, int head,
                              std::byte* scratch) const {
  const SequenceStep& sequence = frame.inputs.sequences[piece.sequence];
  const KvHead kv = cache_.pool(frame).head(cache_.layout, head, sequence.blocks.data());
  const int head_dim = cache_.layout.head_dim, first_head = head * group_;
  const int row = sequence.first_row + (piece.tile ? piece.first : 0);
  AttentionQuery query{q_.row(frame, row) + first_head * head_dim, q_.stride, 1, group_, sequence.context};
  if (!piece.tile) {
    float* const out = partials_of(frame, piece.sequence, first_head) + piece.first * partial_floats(cache_.layout);
    frame.kernels->attend_partition(cache_.layout, kv, query, piece.first, piece.count, scratch, out,
                                    partitions_ * partial_floats(cache_.layout));
    return;
  }
  query.queries = piece.count;
  query.first_position = sequence.context + piece.first;
  frame.kernels->attend_tile(cache_.layout, kv, query, scratch, out_.row(frame, row) + first_head * head_dim,
                             out_.stride);
  for (int i = 0; i < piece.count; ++i) finish(head, out_.row(frame, row + i) + first_head * head_dim);
}

void AttentionStage::run(const Frame& frame, uint32_t item, uint32_t member) const {
  // Piece after piece of one head: a member then walks on in the memory that it has walked.
  const auto pieces = static_cast<uint32_t>(work_.pieces().size());
  run_head(frame, work_.pieces()[item % pieces], static_cast<int>(item / pieces), frame.working_memory(member));
}

void AttentionStage::merge_row(const Frame& frame, int row) const {
  const int sequence = frame.sequence_of[row];
  if (frame.inputs.sequences[sequence].rows != 1) return;
  const int partitions = frame.position_of[row] / kPartition + 1;
  const KvLayout& layout = cache_.layout;
  for (int head = 0; head < kv_heads_ * group_; ++head) {
    frame.kernels->merge_partitions(partials_of(frame, sequence, head), partial_floats(layout), partitions,
                                    layout.v_dim, layout.head_dim, out_.row(frame, row) + head * layout.head_dim);
  }
  for (int head = 0; head < kv_heads_; ++head) finish(head, out_.row(frame, row) + head * group_ * layout.head_dim);
}

}  // namespace gristmill::device::cpu
