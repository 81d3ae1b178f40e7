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
///
/// Qwen3.5's gains are 1 + w. Its attention multiplies each channel by a gate between v and o, so that there is no
/// rotation of heads; what goes into and comes out of DeltaNet and the vision tower's merger is rotated with the
/// stream. Draft heads that share embeddings and head cannot follow, since the final norm's gain is inside the head now
/// and theirs is another: they are left out.
class QuaRot {
 public:
  /// Throws Error for architectures whose parts it does not know, and sizes without a Hadamard matrix.
  QuaRot(const model::HfConfig& keys, const model::ModelConfig& config,
         std::shared_ptr<const weights::Checkpoint> checkpoint);

  const Rotation& global_rotation() const { return stream_; }
  const std::string& table() const { return table_; }  ///< name of the embeddings
  /// Whether the tensor belongs to a draft head.
  bool leaves_out(const std::string& name) const;
  /// Folds the rotation into the tensor of that name: a matrix, bias or norm weight.
  void fold(const std::string& name, FloatMatrix* tensor, ComputeTeam& team) const;

 private:
  bool fold_outside_of_layers(const std::string& name, FloatMatrix* tensor, ComputeTeam& team) const;
  void scale_columns(const std::string& norm, FloatMatrix* tensor) const;

  std::shared_ptr<const weights::Checkpoint> checkpoint_;
  int64_t layers_;
  bool zero_centred_ = false;  ///< gains are 1 + w
  bool rotates_heads_ = true;
  std::string table_, norm_;  ///< names
  Rotation stream_, head_;
};

}  // namespace gristmill::quantize
