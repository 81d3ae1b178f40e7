#pragma once
// Stages that go over rows: embedding, what comes before a linear, copies.
#include <optional>
#include <vector>

#include "device/cpu/stage.h"

namespace gristmill::device::cpu {

class AttentionStage;

/// Rows of the table by token id.
class EmbedStage final : public Stage {
 public:
  EmbedStage(const PackedWeight& table, Rows out) : table_(table), out_(out) {}
  uint32_t items(const Frame& frame) const override { return row_items(frame, frame.tokens); }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;

 private:
  const PackedWeight& table_;
  Rows out_;
};

/// What one row goes through before a group of linears reads it, in this order; each part is optional.
struct Preparation {
  const AttentionStage* merge = nullptr;  ///< joins the partitions of `in`, the result of this attention
  Rows in;
  std::optional<Rows> addend;                 ///< in + addend ...
  std::optional<Rows> sum;                    ///< ... kept here
  const float* const* norm_weight = nullptr;  ///< null: no norm; its data is there once the weights are loaded
  float norm_eps = 0;
  bool logit_rows = false;         ///< only the rows that go through the head, gathered
  std::optional<Rows> floats;      ///< the result as float32
  std::optional<CodedRows> codes;  ///< the result quantized per group of columns ...
  std::vector<TokenRows> tokens;   ///< ... and as a whole
};

class PrepareStage final : public Stage {
 public:
  explicit PrepareStage(const Preparation& preparation) : p_(preparation) {}
  uint32_t items(const Frame& frame) const override { return row_items(frame, rows(frame)); }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;
  size_t working_bytes() const override { return static_cast<size_t>(p_.in.stride) * sizeof(float) * 2; }

 private:
  int rows(const Frame& frame) const {
    return p_.logit_rows ? static_cast<int>(frame.inputs.logit_rows.size()) : frame.tokens;
  }
  Preparation p_;
};

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

/// x * sigmoid(gate); a gate of width 1 scales the whole row.
class GateStage final : public Stage {
 public:
  GateStage(Rows x, Rows gate, Rows out) : x_(x), gate_(gate), out_(out) {}
  uint32_t items(const Frame& frame) const override { return row_items(frame, frame.tokens); }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;

 private:
  Rows x_, gate_, out_;
};

/// Least and largest element of each row, to ValueRange [tokens].
class RangeStage final : public Stage {
 public:
  RangeStage(Rows in, size_t out) : in_(in), out_(out) {}
  uint32_t items(const Frame& frame) const override { return row_items(frame, frame.tokens); }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;

 private:
  Rows in_;
  size_t out_;
};

/// Rows to a tap, [tokens][width] without padding.
class TapStage final : public Stage {
 public:
  TapStage(Rows in, size_t out) : in_(in), out_(out) {}
  uint32_t items(const Frame& frame) const override { return row_items(frame, frame.tokens); }
  void run(const Frame& frame, uint32_t item, uint32_t member) const override;

 private:
  Rows in_;
  size_t out_;
};

}  // namespace gristmill::device::cpu
