// Qwen3.5, the text tower, dense and mixtures of experts: most layers mix with Gated DeltaNet, every fourth with gated
// attention. All norms are (1 + w) * x / rms(x) except the one behind DeltaNet. Images are not served yet: the vision
// tower is skipped, and so is the draft head.
#include "base/error.h"
#include "model/architectures.h"
#include "model/hf_decoder.h"
#include "weights/mapped_file.h"
#include "weights/weight_views.h"

namespace gristmill::model {
namespace {

using device::Linear;
using device::Norm;
using device::Value;

class Qwen3_5 : HfDecoder {
 public:
  Qwen3_5(DecoderFiles files, const BuildOptions& options) : HfDecoder(std::move(files), options) {
    // Text-only exports have the shorter prefix, most of them with a flat config.
    const std::string nested = "model.language_model.", table = "embed_tokens.weight";
    if (tensors_.has(nested + table) || (keys_.is_nested() && !tensors_.has(tensor_prefix_ + table)))
      tensor_prefix_ = nested;
    zero_centred_output_norm_ = true;
    delta_.tiled = tiled_value_heads_;
    read_layer_types();
    delta_.k_heads = keys_.size("linear_num_key_heads", std::nullopt, 1 << 12);
    delta_.v_heads = keys_.size("linear_num_value_heads", std::nullopt, 1 << 12);
    delta_.k_dim = keys_.size("linear_key_head_dim", std::nullopt, 1 << 12);
    delta_.v_dim = keys_.size("linear_value_head_dim", std::nullopt, 1 << 12);
    delta_.conv_width = keys_.size("linear_conv_kernel_dim", std::nullopt, 64);
    if (delta_.v_heads % delta_.k_heads != 0)
      keys_.fail("linear_num_value_heads", cat(delta_.v_heads, " heads cannot share ", delta_.k_heads, " key heads"));
    bias_ = keys_.boolean("attention_bias", false) ? Bias::required : Bias::none;
    moe_.experts = read_experts(keys_);
    if (moe_.experts == 0 && config_.architecture.starts_with("Qwen3_5Moe")) keys_.fail("num_experts", "is missing");
    if (moe_.experts != 0) {
      moe_.top_k = keys_.size("num_experts_per_tok", std::nullopt, moe_.experts);
      moe_.width = keys_.size("moe_intermediate_size");
      shared_width_ = keys_.size("shared_expert_intermediate_size");
      config_.ffn = moe_.width;
    } else {
      config_.ffn = keys_.size("intermediate_size");
    }
    tensors_.skip("model.visual.", "the vision tower");
    tensors_.skip("mtp.", "the draft head");
  }

  Model build() && {
    return HfDecoder::build([this](Value x, int i, const std::string& prefix) { return layer(x, i, prefix); });
  }

 private:
  void read_layer_types() {
    const std::vector<std::string> types = keys_.strings("layer_types");
    if (types.empty()) {
      const int interval = keys_.size("full_attention_interval");
      for (int i = 0; i < config_.layers; ++i) is_full_.push_back((i + 1) % interval == 0);
      return;
    }
    if (types.size() != static_cast<size_t>(config_.layers))
      keys_.fail("layer_types", cat("names ", types.size(), " layers of ", config_.layers));
    for (const std::string& type : types) {
      if (type != "full_attention" && type != "linear_attention")
        keys_.fail("layer_types", cat(weights::quoted(type),
                                      " is not supported (supported: full_attention, "
                                      "linear_attention)"));
      is_full_.push_back(type == "full_attention");
    }
  }

  Value layer(Value x, int index, const std::string& prefix) {
    const Norm before_mixer = zero_centred_norm(prefix + "input_layernorm.weight", config_.hidden);
    x = builder_.residual(x, is_full_[static_cast<size_t>(index)]
                                 ? attend(x, before_mixer, prefix + "self_attn.")
                                 : delta_net(x, before_mixer, prefix + "linear_attn."));
    const Norm before_mlp = zero_centred_norm(prefix + "post_attention_layernorm.weight", config_.hidden);
    const std::string mlp = prefix + "mlp";
    if (moe_.experts == 0) return builder_.residual(x, gated_mlp(x, before_mlp, mlp, config_.ffn));
    return builder_.residual(x, experts(builder_.norm(x, before_mlp), mlp));
  }

  /// q_proj has, for each head, its query rows and then its gate rows.
  std::pair<Linear, Linear> query_and_gate(const std::string& name) {
    const ModelConfig& c = config_;
    const auto both = tensors_.matrix(name + ".weight", int64_t{2} * c.heads * c.head_dim, c.hidden);
    std::vector<int32_t> rows[2];
    for (int row = 0; row < 2 * c.heads * c.head_dim; ++row) rows[row / c.head_dim % 2].push_back(row);
    const auto bias = tensors_.bias(name, both->rows(), false);
    Linear linears[2];
    for (int half : {0, 1}) {
      linears[half].weight = builder_.weight(weights::select_rows(both->name(), both, rows[half]));
      if (bias != nullptr) linears[half].bias = builder_.weight(weights::select_elements(bias, rows[half]));
    }
    return {linears[0], linears[1]};
  }

  Value attend(Value x, const Norm& before, const std::string& prefix) {
    const ModelConfig& c = config_;
    const int q_width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
    const bool gated = keys_.boolean("attn_output_gate", true);
    if (gated && bias_ == Bias::required) keys_.fail("attention_bias", "true is not supported with attn_output_gate");
    std::vector<Linear> linears{
        {}, linear(prefix + "k_proj", kv_width, c.hidden, bias_), linear(prefix + "v_proj", kv_width, c.hidden, bias_)};
    if (gated) {
      const auto [query, gate] = query_and_gate(prefix + "q_proj");
      linears[0] = query;
      linears.push_back(gate);
    } else {
      linears[0] = linear(prefix + "q_proj", q_width, c.hidden, bias_);
    }
    const auto in = builder_.linear(x, before, linears);
    device::Attention a = attention(prefix);
    a.q_norm = zero_centred_norm(prefix + "q_norm.weight", c.head_dim);
    a.k_norm = zero_centred_norm(prefix + "k_norm.weight", c.head_dim);
    Value mixed = builder_.attention(in[0], in[1], in[2], a);
    if (gated) mixed = builder_.gate(mixed, in[3]);
    return builder_.linear(mixed, std::nullopt, {linear(prefix + "o_proj", c.hidden, q_width, bias_)})[0];
  }

  Value delta_net(Value x, const Norm& before, const std::string& prefix) {
    const int hidden = config_.hidden, v_width = delta_.v_heads * delta_.v_dim;
    const int channels = 2 * delta_.k_heads * delta_.k_dim + v_width;
    const auto in = builder_.linear(
        x, before,
        {linear(prefix + "in_proj_qkv", channels, hidden), linear(prefix + "in_proj_z", v_width, hidden),
         linear(prefix + "in_proj_b", delta_.v_heads, hidden), linear(prefix + "in_proj_a", delta_.v_heads, hidden)});
    device::DeltaNet d = delta_;
    d.conv = builder_.weight(tensors_.tensor(prefix + "conv1d.weight", {channels, 1, d.conv_width}));
    d.a_log = builder_.weight(tensors_.vector(prefix + "A_log", d.v_heads));
    d.dt_bias = builder_.weight(tensors_.vector(prefix + "dt_bias", d.v_heads));
    d.out_norm = norm(prefix + "norm.weight", d.v_dim);
    d.state = builder_.state({d.v_heads, d.k_heads, d.k_dim, d.v_dim, d.conv_width});
    const Value mixed = builder_.delta_net(in[0], in[1], in[2], in[3], d);
    return builder_.linear(mixed, std::nullopt, {linear(prefix + "out_proj", hidden, v_width)})[0];
  }

  /// The chosen experts and a shared one that every token goes through, behind a gate of its own.
  Value experts(Value normed, const std::string& mlp) {
    device::Moe moe = moe_;
    moe.router = builder_.weight(tensors_.matrix(mlp + ".gate.weight", moe.experts, config_.hidden));
    add_experts(&moe, mlp + ".experts", {"gate_proj", "up_proj", "down_proj"});
    const Value routed = mixture(normed, moe);
    const Value shared = gated_mlp(normed, std::nullopt, mlp + ".shared_expert", shared_width_);
    const Value gate =
        builder_.linear(normed, std::nullopt, {linear(mlp + ".shared_expert_gate", 1, config_.hidden)})[0];
    return builder_.residual(routed, builder_.gate(shared, gate));
  }

  std::vector<bool> is_full_;
  device::DeltaNet delta_;  ///< without weights
  device::Moe moe_;         ///< without weights; no experts: the model is dense
  int shared_width_ = 0;
  Bias bias_;
};

}  // namespace

Model load_qwen3_5(DecoderFiles files, const BuildOptions& options) {
  return Qwen3_5(std::move(files), options).build();
}

}  // namespace gristmill::model
