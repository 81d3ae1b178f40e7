#pragma once
#include <memory>
#include <string>

#include "model/hf_config.h"
#include "model/model.h"
#include "quantize/float_matrix.h"
#include "quantize/rotation.h"
#include "weights/checkpoint.h"

namespace gristmill::quantize {

/// QuaRot folded into a checkpoint: the residual stream is rotated by Q, values and what reads them by a rotation of
/// each head, and norm gains move into the matrices behind them. The model computes the same, and nothing special while
/// it runs; its linears have fewer outliers.
///
///   embeddings E Q;  q, k, v, gate, up, router, head (W diag(gain)) Q;  o, down Q' W;  per head v: Qh' W, o: W Qh
class QuaRot {
 public:
  /// Throws Error for architectures whose parts it does not know, and sizes without a Hadamard matrix.
  QuaRot(const model::HfConfig& keys, const model::ModelConfig& config,
         std::shared_ptr<const weights::Checkpoint> checkpoint);

  const Rotation& global_rotation() const { return stream_; }
  /// Folds the rotation into the tensor of that name: a matrix, bias or norm weight.
  void fold(const std::string& name, FloatMatrix* tensor, ComputeTeam& team) const;

 private:
  void scale_columns(const std::string& norm, FloatMatrix* tensor) const;

  std::shared_ptr<const weights::Checkpoint> checkpoint_;
  int64_t head_dim_;
  Rotation stream_, head_;
};

}  // namespace gristmill::quantize
