// Qwen3, dense and mixtures of experts: Llama's layer with a norm on each head of queries and keys before rope. A layer
// of a mixture is dense where "mlp_only_layers" or "decoder_sparse_step" say so.
#include <algorithm>

#include "model/architectures.h"
#include "model/hf_decoder.h"

namespace gristmill::model {
namespace {

using device::Value;

class Qwen3 : HfDecoder {
 public:
  Qwen3(DecoderFiles files, const BuildOptions& options) : HfDecoder(std::move(files), options) {
    apply_sliding_window(keys_, &config_);
    bias_ = keys_.boolean("attention_bias", false) ? Bias::required : Bias::none;
    if (config_.architecture == "Qwen3MoeForCausalLM") {
      moe_.experts = read_experts(keys_);
      if (moe_.experts == 0) keys_.fail("num_experts", "is missing");
      moe_.top_k = keys_.size("num_experts_per_tok", std::nullopt, moe_.experts);
      moe_.width = keys_.size("moe_intermediate_size");
      moe_.renormalize = keys_.boolean("norm_topk_prob", false);
      dense_layers_ = keys_.integers("mlp_only_layers");
      sparse_step_ = keys_.size("decoder_sparse_step", 1);
      config_.ffn = moe_.width;
    } else {
      config_.ffn = keys_.size("intermediate_size");
    }
  }

  Model build() && {
    return HfDecoder::build([this](Value x, int i, const std::string& prefix) { return layer(x, i, prefix); });
  }

 private:
  bool is_dense(int layer) const {
    return moe_.experts == 0 || (layer + 1) % sparse_step_ != 0 ||
           std::find(dense_layers_.begin(), dense_layers_.end(), layer) != dense_layers_.end();
  }

  Value layer(Value x, int index, const std::string& prefix) {
    const ModelConfig& c = config_;
    const std::string self = prefix + "self_attn.";
    const int q_width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
    const auto qkv = builder_.linear(
        x, norm(prefix + "input_layernorm.weight", c.hidden),
        {linear(self + "q_proj", q_width, c.hidden, bias_), linear(self + "k_proj", kv_width, c.hidden, bias_),
         linear(self + "v_proj", kv_width, c.hidden, bias_)});
    device::Attention a = attention(self);
    a.q_norm = norm(self + "q_norm.weight", c.head_dim);
    a.k_norm = norm(self + "k_norm.weight", c.head_dim);
    const Value mixed = builder_.attention(qkv[0], qkv[1], qkv[2], a);
    x = builder_.residual(x,
                          builder_.linear(mixed, std::nullopt, {linear(self + "o_proj", c.hidden, q_width, bias_)})[0]);
    const device::Norm before_mlp = norm(prefix + "post_attention_layernorm.weight", c.hidden);
    const std::string mlp = prefix + "mlp";
    if (is_dense(index)) {
      const int width = keys_.size("intermediate_size");
      return builder_.residual(x, gated_mlp(x, before_mlp, mlp, width));
    }
    device::Moe moe = moe_;
    moe.router = builder_.weight(tensors_.matrix(mlp + ".gate.weight", moe.experts, c.hidden));
    add_experts(&moe, mlp + ".experts", {"gate_proj", "up_proj", "down_proj"});
    return builder_.residual(x, mixture(builder_.norm(x, before_mlp), moe));
  }

  Bias bias_;
  device::Moe moe_;  ///< without weights; no experts: the model is dense
  std::vector<int64_t> dense_layers_;
  int sparse_step_ = 1;
};

}  // namespace

Model load_qwen3(DecoderFiles files, const BuildOptions& options) {
  return Qwen3(std::move(files), options).build();
}

}  // namespace gristmill::model
