// MiniMax-M2 and M2.5: grouped-query attention with a norm over all channels of queries (and of keys) at once, rope on
// part of each head, and a mixture of experts with sigmoid scores, where a bias helps to choose but does not weigh.
#include <algorithm>

#include "base/error.h"
#include "model/architectures.h"
#include "model/hf_decoder.h"
#include "weights/mapped_file.h"

namespace gristmill::model {
namespace {

using device::Value;

class MiniMaxM2 : HfDecoder {
 public:
  MiniMaxM2(DecoderFiles files, const BuildOptions& options) : HfDecoder(std::move(files), options) {
    moe_.experts = read_experts(keys_);
    if (moe_.experts == 0) keys_.fail("num_local_experts", "is missing");
    moe_.top_k = keys_.size("num_experts_per_tok", std::nullopt, moe_.experts);
    moe_.width = keys_.size("intermediate_size");
    moe_.sigmoid = true;
    config_.ffn = moe_.width;
    check_variant();
    tensors_.skip("mtp.", "draft heads");
    for (const std::string& name : extra_layers()) tensors_.skip(name, "draft layers");
  }

  Model build() && {
    return HfDecoder::build([this](Value x, int, const std::string& prefix) { return layer(x, prefix); });
  }

 private:
  /// Keys that could ask for another computation.
  void check_variant() const {
    if (const std::string scores = keys_.string("scoring_func", "sigmoid"); scores != "sigmoid")
      keys_.fail("scoring_func", cat(weights::quoted(scores), " is not supported (supported: sigmoid)"));
    if (!keys_.boolean("use_qk_norm", true)) keys_.fail("use_qk_norm", "false is not supported");
    if (const std::string type = keys_.string("qk_norm_type", "per_layer"); type != "per_layer")
      keys_.fail("qk_norm_type", cat(weights::quoted(type), " is not supported (supported: per_layer)"));
    const auto types = keys_.integers("attn_type_list");
    if (std::any_of(types.begin(), types.end(), [](int64_t type) { return type != 1; }))
      keys_.fail("attn_type_list", "only 1 (full attention) is supported");
    const Json* const shared = keys_.find("shared_intermediate_size");
    if (shared != nullptr && shared->number != 0) keys_.fail("shared_intermediate_size", "only 0 is supported");
  }

  /// Layers behind the last one are draft layers ("num_mtp_modules").
  std::vector<std::string> extra_layers() const {
    const auto of = [&](const char* key) {
      const Json* const value = keys_.find(key);
      return value != nullptr && value->is_integer ? std::clamp<int64_t>(value->integer, 0, 64) : 0;
    };
    std::vector<std::string> names;
    const int64_t count = of("num_mtp_modules") * std::max<int64_t>(1, of("mtp_transformer_layers"));
    for (int64_t i = 0; i < count; ++i) names.push_back(cat(tensor_prefix_, "layers.", config_.layers + i, "."));
    return names;
  }

  Value layer(Value x, const std::string& prefix) {
    const ModelConfig& c = config_;
    const std::string self = prefix + "self_attn.";
    const int q_width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
    const auto qkv =
        builder_.linear(x, norm(prefix + "input_layernorm.weight", c.hidden),
                        {linear(self + "q_proj", q_width, c.hidden), linear(self + "k_proj", kv_width, c.hidden),
                         linear(self + "v_proj", kv_width, c.hidden)});
    device::Attention a = attention(self);
    a.q_norm = norm(self + "q_norm.weight", q_width);
    a.k_norm = norm(self + "k_norm.weight", kv_width);
    const Value mixed = builder_.attention(qkv[0], qkv[1], qkv[2], a);
    x = builder_.residual(x, builder_.linear(mixed, std::nullopt, {linear(self + "o_proj", c.hidden, q_width)})[0]);

    const std::string block = prefix + "block_sparse_moe";
    device::Moe moe = moe_;
    moe.router = builder_.weight(tensors_.matrix(block + ".gate.weight", moe.experts, c.hidden));
    if (keys_.boolean("use_routing_bias", true))
      moe.select_bias = builder_.weight(tensors_.vector(block + ".e_score_correction_bias", moe.experts));
    add_experts(&moe, block + ".experts", {"w1", "w3", "w2"});
    const Value normed = builder_.norm(x, norm(prefix + "post_attention_layernorm.weight", c.hidden));
    return builder_.residual(x, mixture(normed, moe));
  }

  device::Moe moe_;  ///< without weights
};

}  // namespace

Model load_minimax_m2(DecoderFiles files, const BuildOptions& options) {
  return MiniMaxM2(std::move(files), options).build();
}

}  // namespace gristmill::model
