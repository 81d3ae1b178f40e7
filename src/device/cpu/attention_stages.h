#pragma once
// Stages of attention: rotary tables, rotation and cache write, attention itself.
#include <vector>

#include "device/cpu/stage.h"
#include "device/cpu/static_cache.h"

namespace gristmill::device::cpu {

/// cos and sin of position * inv_freq[j] for the rows of the step, computed once for all layers: in float64, then
/// rounded. A row holds `half` cosines, then (from stride / 2 on) the sines.
class RotaryStage final : public Stage {
 public:
  RotaryStage(Rope rope, Rows table) : rope_(std::move(rope)), table_(table) {}
  const Rope& rope() const { return rope_; }
  const Rows& table() const { return table_; }
  uint32_t items(const Frame& frame) const override { return row_items(frame, frame.tokens); }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;

 private:
  Rope rope_;
  Rows table_;
};

/// Where one layer's K and V are.
struct LayerCache {
  KvLayout layout;
  size_t prefix = 0;                            ///< bytes per block of the layers before this one
  std::shared_ptr<const StaticCache> scales{};  ///< of an int8 cache whose scales were known; null: made per token

  KvPool pool(const Frame& frame) const {
    return {frame.cache + prefix * static_cast<size_t>(frame.group_blocks), frame.group_bytes};
  }
};

/// Rotates q (times the softmax scale, log2(e), and scales of K that were known beforehand) and k, and writes k and v
/// into the cache.
class CacheWriteStage final : public Stage {
 public:
  CacheWriteStage(const Attention& attention, const RotaryStage* rotary, const LayerCache& cache, Rows q, Rows k,
                  Rows v, Rows rotated_q);
  uint32_t items(const Frame& frame) const override { return row_items(frame, frame.tokens); }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;
  size_t working_bytes() const override { return (sizeof(float) + sizeof(uint16_t)) * static_cast<size_t>(head_dim_); }

 private:
  int heads_, kv_heads_, head_dim_, half_;
  float factor_;
  const RotaryStage* rotary_;
  LayerCache cache_;
  Rows q_, k_, v_, rotated_q_;
};

/// How the sequences of a step are cut into pieces of attention, for all layers with that many heads to a K/V head: a
/// sequence with one new token by partitions of its keys, others by tiles of their queries.
class AttentionWork {
 public:
  struct Piece {
    int sequence = 0;
    int first = 0;  ///< partition, or the tile's first query within the sequence
    int count = 0;  ///< keys, or queries
    bool tile = false;
  };
  explicit AttentionWork(int group) : group_(group) {}
  int group() const { return group_; }
  void plan(const Frame& frame);
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  int group_;
  std::vector<Piece> pieces_;
};

class AttentionStage final : public Stage {
 public:
  /// `partials`: offset of [limits.seqs][heads][partitions] partial results.
  AttentionStage(const Attention& attention, const AttentionWork& work, const LayerCache& cache, Rows q, Rows out,
                 size_t partials, int partitions);
  uint32_t items(const Frame& frame) const override;
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;
  size_t working_bytes() const override { return attention_scratch(cache_.layout, group_); }
  /// Completes a row whose keys were cut into partitions; no other row needs it.
  void merge_row(const Frame& frame, int row) const;

 private:
  /// Heads [first, first + group) of a row, which read K/V head `head`, meet V's scales that were known beforehand.
  void finish(int head, float* out) const {
    for (int h = 0; cache_.scales != nullptr && h < group_; ++h)
      cache_.scales->finish(head, out + h * cache_.layout.head_dim);
  }
  float* partials_of(const Frame& frame, int sequence, int head) const;
  void run_head(const Frame& frame, const AttentionWork::Piece& piece, int head, std::byte* scratch) const;
  int kv_heads_, group_;
  const AttentionWork& work_;
  LayerCache cache_;
  Rows q_, out_;
  size_t partials_;
  int partitions_;
};

}  // namespace gristmill::device::cpu
