// Llama and its kin from Hugging Face folders: pre-norm decoder layers of grouped-query attention and a SiLU-gated MLP.
// Mistral and SmolLM2 differ in numbers only, Qwen2 has biases on queries, keys and values.
#include "model/architectures.h"
#include "model/hf_decoder.h"

namespace gristmill::model {
namespace {

using device::Value;

class LlamaHf : HfDecoder {
 public:
  LlamaHf(DecoderFiles files, const BuildOptions& options) : HfDecoder(std::move(files), options) {
    config_.ffn = keys_.size("intermediate_size");
    apply_sliding_window(keys_, &config_);
    const bool qwen2 = config_.architecture == "Qwen2ForCausalLM";
    const auto bias = [&](const char* key) { return keys_.boolean(key, false) ? Bias::required : Bias::none; };
    input_bias_ = qwen2 ? Bias::required : bias("attention_bias");
    output_bias_ = qwen2 ? Bias::none : bias("attention_bias");
    mlp_bias_ = bias("mlp_bias");
  }

  Model build() && {
    return HfDecoder::build([this](Value x, int, const std::string& prefix) { return layer(x, prefix); });
  }

 private:
  Value layer(Value x, const std::string& prefix) {
    const ModelConfig& c = config_;
    const std::string self = prefix + "self_attn.";
    const int q_width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
    const auto qkv = builder_.linear(x, norm(prefix + "input_layernorm.weight", c.hidden),
                                     {linear(self + "q_proj", q_width, c.hidden, input_bias_),
                                      linear(self + "k_proj", kv_width, c.hidden, input_bias_),
                                      linear(self + "v_proj", kv_width, c.hidden, input_bias_)});
    const Value mixed = builder_.attention(qkv[0], qkv[1], qkv[2], attention(self));
    x = builder_.residual(
        x, builder_.linear(mixed, std::nullopt, {linear(self + "o_proj", c.hidden, q_width, output_bias_)})[0]);
    const device::Norm before_mlp = norm(prefix + "post_attention_layernorm.weight", c.hidden);
    return builder_.residual(x, gated_mlp(x, before_mlp, prefix + "mlp", c.ffn, mlp_bias_));
  }

  Bias input_bias_, output_bias_, mlp_bias_;
};

}  // namespace

Model load_llama_hf(DecoderFiles files, const BuildOptions& options) {
  return LlamaHf(std::move(files), options).build();
}

}  // namespace gristmill::model
