#pragma once
// Mixture of experts: the rows of a step are brought together by expert, go through the ordinary kernels on the panels
// of that expert, and are added up in rank order. A token's bits do not depend on which tokens share its experts,
// because the kernels' rows do not depend on each other.
#include "device/cpu/linear_stages.h"
#include "device/cpu/stage.h"

namespace gristmill::device::cpu {

/// Buffers of a mixture, reused by all layers of its shape. A place is a row of (token, rank) pairs sorted by expert.
struct ExpertBuffers {
  int experts = 0, top_k = 0, hidden = 0, width = 0;
  const PackedWeight* gate_up = nullptr;  ///< what decides the form of `in` ...
  const PackedWeight* down = nullptr;     ///< ... and of `inner`

  Rows scores;         ///< [tokens][experts]
  size_t chosen = 0;   ///< int32 [tokens][top_k]
  size_t weights = 0;  ///< float [tokens][top_k]
  size_t first = 0;    ///< int32 [experts + 1]: first place of each expert
  size_t place = 0;    ///< int32 [tokens][top_k]
  size_t active = 0;   ///< int32 [experts + 1]: the experts that have tokens, ascending; behind them -1
  LinearInput in;      ///< by place: the rows that experts read ...
  LinearInput inner;   ///< ... what silu(gate) * up leaves ...
  Rows results;        ///< ... and the experts' results

  int32_t* chosen_of(const Frame& frame) const { return reinterpret_cast<int32_t*>(frame.scratch + chosen); }
  float* weights_of(const Frame& frame) const { return reinterpret_cast<float*>(frame.scratch + weights); }
  int32_t* first_of(const Frame& frame) const { return reinterpret_cast<int32_t*>(frame.scratch + first); }
  int32_t* place_of(const Frame& frame) const { return reinterpret_cast<int32_t*>(frame.scratch + place); }
  int32_t* active_of(const Frame& frame) const { return reinterpret_cast<int32_t*>(frame.scratch + active); }
  /// So many experts can have tokens in this step. Which have is known only when the step runs; what is handed out
  /// before that must not grow with the number of experts.
  uint32_t most_active(const Frame& frame) const {
    return static_cast<uint32_t>(frame.tokens < experts / top_k ? frame.tokens * top_k : experts);
  }
};

/// Scores to choices, row by row.
class RouteStage final : public Stage {
 public:
  RouteStage(const Moe& moe, const float* const* select_bias, const ExpertBuffers& buffers)
      : moe_(moe), select_bias_(select_bias), buffers_(buffers) {}
  uint32_t items(const Frame& frame) const override { return row_items(frame, frame.tokens); }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;

 private:
  Moe moe_;
  const float* const* select_bias_;
  ExpertBuffers buffers_;
};

/// Gives every (token, rank) its place: a counting sort by expert, ascending by token. Lists the experts with tokens.
class PlaceStage final : public Stage {
 public:
  explicit PlaceStage(const ExpertBuffers& buffers) : buffers_(buffers) {}
  uint32_t items(const Frame&) const override { return 1; }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;

 private:
  ExpertBuffers buffers_;
};

/// Copies (or quantizes) each token's row to its places. `tokens` are rows that are quantized already.
class DispatchStage final : public Stage {
 public:
  DispatchStage(Rows in, std::vector<TokenRows> tokens, const ExpertBuffers& buffers)
      : in_(in), tokens_(std::move(tokens)), buffers_(buffers) {}
  uint32_t items(const Frame& frame) const override { return row_items(frame, frame.tokens); }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;

 private:
  Rows in_;
  std::vector<TokenRows> tokens_;
  ExpertBuffers buffers_;
};

/// silu(gate x) * (up x). An item is a chunk of the outputs of one expert that has tokens: no other expert's
/// weights are read.
class ExpertGateStage final : public Stage {
 public:
  ExpertGateStage(const PackedWeight& gate_up, const ExpertBuffers& buffers);
  uint32_t items(const Frame& frame) const override {
    return buffers_.most_active(frame) * static_cast<uint32_t>(chunks_);
  }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;
  size_t working_bytes() const override;

 private:
  const PackedWeight& gate_up_;
  ExpertBuffers buffers_;
  int chunks_;
};

/// Quantizes each row of silu(gate) * up as a whole; an item goes over places.
class ExpertQuantizeStage final : public Stage {
 public:
  explicit ExpertQuantizeStage(const ExpertBuffers& buffers) : buffers_(buffers) {}
  uint32_t items(const Frame& frame) const override { return row_items(frame, frame.tokens * buffers_.top_k); }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;

 private:
  ExpertBuffers buffers_;
};

/// The experts' last matrix, to results by place.
class ExpertDownStage final : public Stage {
 public:
  ExpertDownStage(const PackedWeight& down, const ExpertBuffers& buffers);
  uint32_t items(const Frame& frame) const override {
    return buffers_.most_active(frame) * static_cast<uint32_t>(chunks_);
  }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;
  size_t working_bytes() const override;

 private:
  const PackedWeight& down_;
  ExpertBuffers buffers_;
  int chunks_;
};

/// out = sum of weight * result, in rank order.
class CombineStage final : public Stage {
 public:
  CombineStage(const ExpertBuffers& buffers, Rows out) : buffers_(buffers), out_(out) {}
  uint32_t items(const Frame& frame) const override { return row_items(frame, frame.tokens); }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;

 private:
  ExpertBuffers buffers_;
  Rows out_;
};

}  // namespace gristmill::device::cpu
