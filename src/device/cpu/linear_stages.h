#pragma once
// Stages of matrix products. An item is a chunk of outputs for one block of rows; the weights of the chunk are read
// once for all rows of the block.
#include <optional>
#include <vector>

#include "device/cpu/stage.h"

namespace gristmill::device::cpu {

/// The rows that a group of linears reads, in the forms that its weights need.
struct LinearInput {
  Rows floats;
  CodedRows codes;
  std::vector<TokenRows> tokens;  ///< one for each way of quantizing a row as a whole

  const TokenRows& tokens_for(const PackedWeight& weight) const {
    for (const TokenRows& rows : tokens)
      if (rows.input == weight.input) return rows;
    return tokens.front();
  }
};

/// y[rows of block][outputs of `panels` panels from `first`].
void multiply(const Frame& frame, const PackedWeight& weight, const LinearInput& in, int rows, int block, int64_t first,
              int64_t panels, float* y, int64_t y_stride);

struct Matrix {
  const PackedWeight* weight = nullptr;
  const float* const* bias = nullptr;  ///< null: none (by address: loaded after compilation)
  Rows out;
};

/// y = W x (+ bias) for each matrix.
class LinearStage final : public Stage {
 public:
  LinearStage(LinearInput in, std::vector<Matrix> matrices);
  uint32_t items(const Frame& frame) const override;
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;

 private:
  struct Chunk {
    int matrix = 0;
    int64_t first = 0, panels = 0;
  };
  LinearInput in_;
  std::vector<Matrix> matrices_;
  std::vector<Chunk> chunks_;
};

/// silu(gate x) * (up x), to float32 rows or straight to quantized ones.
class GatedLinearStage final : public Stage {
 public:
  GatedLinearStage(LinearInput in, Matrix gate, Matrix up, std::optional<Rows> floats, std::optional<CodedRows> codes);
  uint32_t items(const Frame& frame) const override;
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;
  size_t working_bytes() const override;

 private:
  LinearInput in_;
  Matrix gate_, up_;
  std::optional<Rows> floats_;
  std::optional<CodedRows> codes_;
  int64_t chunks_;
};

/// Logits of the gathered rows; keeps each chunk's maximum and, where wanted, the logits themselves.
class HeadStage final : public Stage {
 public:
  struct Best {
    float value;
    int32_t id;
  };
  /// `best` is where [limits.rows][chunks()] of Best go, `logits` where [limits.rows] rows of the vocabulary go.
  HeadStage(LinearInput in, const PackedWeight& vocabulary);
  void place(size_t best, Rows logits) { best_ = best, logits_ = logits; }
  int64_t chunks() const { return chunks_; }
  const Rows& logits() const { return logits_; }
  const Best* best(const Frame& frame, int row) const {
    return reinterpret_cast<const Best*>(frame.scratch + best_) + row * chunks_;
  }
  uint32_t items(const Frame& frame) const override;
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;
  size_t working_bytes() const override;

 private:
  LinearInput in_;
  const PackedWeight& vocabulary_;
  int64_t chunk_panels_, chunks_;
  size_t best_ = 0;
  Rows logits_;
};

/// Joins the chunks of a HeadStage: the lowest id among equal maxima.
class ArgmaxStage final : public Stage {
 public:
  ArgmaxStage(const HeadStage& head, size_t out) : head_(head), out_(out) {}
  uint32_t items(const Frame& frame) const override { return row_items(frame, rows(frame)); }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;

 private:
  static int rows(const Frame& frame) { return static_cast<int>(frame.inputs.logit_rows.size()); }
  const HeadStage& head_;
  size_t out_;
};

}  // namespace gristmill::device::cpu
