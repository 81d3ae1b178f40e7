// Llama and its kin (SmolLM, Mistral, ...): pre-norm decoder layers of grouped-query attention and a SiLU-gated MLP.
#include <cmath>
#include <vector>

#include "base/error.h"
#include "model/architectures.h"
#include "model/gguf_config.h"
#include "model/load_quantization.h"
#include "model/tensor_binder.h"

namespace gristmill::model {
namespace {

using device::Linear;
using device::Norm;
using device::ProgramBuilder;
using device::Value;
using device::WeightRef;

/// Llama's converters order the rows of each query and key head for rotation of adjacent pairs: row 2j and 2j + 1 were
/// j and j + n/2 (n rotary dimensions). This is the way back to half-split pairs, for all heads. Row order[r] becomes
/// row r.
std::vector<int32_t> half_split_order(int heads, int head_dim, int rotary) {
  std::vector<int32_t> order;
  for (int head = 0; head < heads; ++head) {
    const int first = head * head_dim;
    for (int j = 0; j < rotary / 2; ++j) order.push_back(first + 2 * j);
    for (int j = 0; j < rotary / 2; ++j) order.push_back(first + 2 * j + 1);
    for (int j = rotary; j < head_dim; ++j) order.push_back(first + j);
  }
  return order;
}

class LlamaBuilder {
 public:
  LlamaBuilder(const std::shared_ptr<const weights::GgufFile>& file, const BuildOptions& options)
      : config_(read_gguf_config(*file)), options_(options), tensors_(file, options.exact) {
    config_.rope_interleaved = true;
    if (file->integer(config_.architecture + ".expert_count", 0) != 0)
      throw Error(cat(file->path(), ": key \"", config_.architecture, ".expert_count\": experts are not supported"));
    tensors_.use("rope_freqs.weight");
    set_up_quantization(file->path(), options_, &tensors_);
  }

  Model build() && {
    const WeightRef table = builder_.weight(tensors_.matrix("token_embd.weight", config_.vocabulary, config_.hidden));
    Value x = builder_.embed(table);
    if (options_.tap_layers) builder_.tap(x, 0);
    for (int i = 0; i < config_.layers; ++i) {
      x = layer(x, cat("blk.", i, "."));
      if (options_.tap_layers) builder_.tap(x, i + 1);
    }
    const Norm output_norm = norm("output_norm.weight");
    const WeightRef vocabulary =
        config_.tied_embeddings ? table
                                : builder_.weight(tensors_.matrix("output.weight", config_.vocabulary, config_.hidden));
    builder_.head(x, output_norm, vocabulary);
    tensors_.check_complete();
    return {config_, std::make_shared<const device::Program>(std::move(builder_).build())};
  }

 private:
  Norm norm(const std::string& name) {
    return {builder_.weight(tensors_.vector(name, config_.hidden)), config_.norm_eps};
  }

  /// `name`.weight and, if there is one, `name`.bias.
  Linear linear(const std::string& name, int outputs, int inputs) {
    Linear linear;
    linear.weight = builder_.weight(tensors_.matrix(name + ".weight", outputs, inputs));
    if (auto bias = tensors_.optional_vector(name + ".bias", outputs)) linear.bias = builder_.weight(std::move(bias));
    return linear;
  }

  /// Queries or keys, their rows put back into half-split order.
  Linear rotated_linear(const std::string& name, int heads) {
    const int outputs = heads * config_.head_dim;
    const auto order = half_split_order(heads, config_.head_dim, static_cast<int>(2 * config_.rope.inv_freq.size()));
    Linear linear;
    linear.weight =
        builder_.weight(weights::permute_rows(tensors_.matrix(name + ".weight", outputs, config_.hidden), order));
    if (auto bias = tensors_.optional_vector(name + ".bias", outputs))
      linear.bias = builder_.weight(weights::permute_rows(std::move(bias), order));
    return linear;
  }

  Value layer(Value x, const std::string& prefix) {
    const ModelConfig& c = config_;
    const std::vector<Value> qkv =
        builder_.linear(x, norm(prefix + "attn_norm.weight"),
                        {rotated_linear(prefix + "attn_q", c.heads), rotated_linear(prefix + "attn_k", c.kv_heads),
                         linear(prefix + "attn_v", c.kv_heads * c.head_dim, c.hidden)});
    device::Attention attention;
    attention.heads = c.heads;
    attention.kv_heads = c.kv_heads;
    attention.head_dim = c.head_dim;
    attention.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    attention.rope = c.rope;
    attention.cache = builder_.cache(c.kv_heads, c.head_dim);
    const Value mixed = builder_.attention(qkv[0], qkv[1], qkv[2], attention);
    x = builder_.residual(
        x, builder_.linear(mixed, std::nullopt, {linear(prefix + "attn_output", c.hidden, c.heads * c.head_dim)})[0]);
    const Value gated =
        builder_.linear(x, norm(prefix + "ffn_norm.weight"),
                        {linear(prefix + "ffn_gate", c.ffn, c.hidden), linear(prefix + "ffn_up", c.ffn, c.hidden)},
                        device::Activation::silu_mul)[0];
    return builder_.residual(x,
                             builder_.linear(gated, std::nullopt, {linear(prefix + "ffn_down", c.hidden, c.ffn)})[0]);
  }

  ModelConfig config_;
  BuildOptions options_;
  TensorBinder tensors_;
  ProgramBuilder builder_;
};

}  // namespace

Model load_llama(const std::shared_ptr<const weights::GgufFile>& file, const BuildOptions& options) {
  return LlamaBuilder(file, options).build();
}

}  // namespace gristmill::model
