#pragma once
#include <memory>
#include <string>

#include "device/program.h"
#include "model/hf_config.h"
#include "model/model.h"
#include "model/tensor_binder.h"

namespace gristmill::model {

/// What a builder starts from.
struct DecoderFiles {
  HfConfig keys;
  ModelConfig config;
  std::shared_ptr<const weights::Checkpoint> tensors;  ///< null: weights are made up (LoadFormat::dummy)
  bool tiled_value_heads = false;                      ///< DeltaNet::tiled
};

/// What the builders of Hugging Face architectures share: a pre-norm decoder over named tensors. An architecture
/// derives from it, describes one layer with the parts below, and calls build().
class HfDecoder {
 protected:
  enum class Bias : uint8_t { none, required };

  HfDecoder(DecoderFiles files, const BuildOptions& options);
  ~HfDecoder() = default;

  /// Embedding, layers, output norm and head. layer(x, i, prefix) gives the residual stream after layer i, whose
  /// tensors are named `prefix`*.
  template <class Layer>
  Model build(Layer layer) {
    device::Value x = embed();
    for (int i = 0; i < config_.layers; ++i) {
      x = layer(x, i, tensor_prefix_ + "layers." + std::to_string(i) + ".");
      if (options_.tap_layers) builder_.tap(x, i + 1);
    }
    return finish(x);
  }

  /// w * x / rms(x), or (1 + w) * x / rms(x) where the architecture centres its norms on zero.
  device::Norm norm(const std::string& name, int width);
  device::Norm zero_centred_norm(const std::string& name, int width);
  /// NAME.weight [outputs, inputs] and NAME.bias.
  device::Linear linear(const std::string& name, int outputs, int inputs, Bias bias = Bias::none);
  /// The decoder's heads with its rope and a cache of its own, and that cache's scales where the checkpoint has some
  /// for the layer whose tensors are named `self`k_proj and so on; norms are added by the caller.
  device::Attention attention(const std::string& self);
  /// down(silu(gate x) * up x) of NAME.gate_proj and so on, behind an optional norm.
  device::Value gated_mlp(device::Value x, std::optional<device::Norm> norm, const std::string& name, int width,
                          Bias bias = Bias::none);

  /// How the experts' matrices are called within NAME.E.
  struct ExpertNames {
    const char *gate, *up, *down;
  };
  /// Fills in a Moe's gate_up and down from NAME.gate_up_proj and NAME.down_proj (all experts in one tensor), or from
  /// one tensor per expert and matrix.
  void add_experts(device::Moe* moe, const std::string& name, const ExpertNames& names);
  /// The mixture, tapped where BuildOptions say so.
  device::Value mixture(device::Value normed, const device::Moe& moe);

  HfConfig keys_;
  ModelConfig config_;
  BuildOptions options_;
  TensorBinder tensors_;
  device::ProgramBuilder builder_;
  std::string tensor_prefix_ = "model.";
  bool zero_centred_output_norm_ = false;
  bool tiled_value_heads_;

 private:
  device::Value embed();
  Model finish(device::Value x);

  device::WeightRef table_;
  int router_taps_ = 0;
};

}  // namespace gristmill::model
