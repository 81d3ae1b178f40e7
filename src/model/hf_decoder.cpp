#include "model/hf_decoder.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "model/load_quantization.h"
#include "weights/weight_views.h"

namespace gristmill::model {

using device::Linear;
using device::Norm;
using device::Value;
using device::WeightRef;

namespace {

/// Experts go through one matrix. Those quantized in different ways take the finest of them, which loses nothing: codes
/// of 8 bits where any has them, groups that divide everyone's; with floats among them, float32. Throws Error where
/// static inputs differ.
void make_alike(std::vector<std::shared_ptr<const device::WeightSource>>* parts) {
  const device::Encoding& first = parts->front()->encoding();
  const auto differs = [&](const auto& part) { return !(part->encoding() == first); };
  const auto odd = std::find_if(parts->begin(), parts->end(), differs);
  if (odd == parts->end()) return;
  bool all_codes = true;
  device::Encoding finest{device::ComputeClass::i4_channel, 0, 0, false};
  const int64_t columns = parts->front()->columns();
  for (const auto& part : *parts) {
    const device::Encoding& encoding = part->encoding();
    if (encoding.input)
      throw Error(cat(parts->front()->name(), " and ", (*odd)->name(),
                      ": experts of a layer with static inputs must agree in type and input"));
    all_codes = all_codes && device::is_channel_class(encoding.cls);
    if (encoding.cls == device::ComputeClass::i8_channel) finest.cls = encoding.cls;
    if (encoding.group != 0)
      finest.group = static_cast<int>(std::gcd(finest.group == 0 ? columns : finest.group, encoding.group));
  }
  if (all_codes)
    for (auto& part : *parts) part = weights::recode(part, finest);
  const std::string group = finest.group == 0 ? "" : cat(" in groups of ", finest.group);
  LOG_INFO(parts->front()->name(), " and ", (*odd)->name(),
           ": are quantized in different ways; the layer's experts are ", "computed as ",
           all_codes ? cat(name_of(finest.cls), group) : "float32");
}

}  // namespace

HfDecoder::HfDecoder(DecoderFiles files, const BuildOptions& options)
    : keys_(std::move(files.keys)),
      config_(std::move(files.config)),
      options_(options),
      tensors_(files.tensors == nullptr
                   ? TensorBinder::dummy(options.exact ? device::ComputeClass::f32 : options.dummy_class)
                   : TensorBinder(files.tensors, options.exact)),
      tiled_value_heads_(files.tiled_value_heads) {
  if (files.tensors == nullptr) {
    set_up_dummy_quantization(keys_, config_.architecture, options_, &tensors_);
  } else if (keys_.folder().empty()) {
    set_up_quantization(keys_.path(), options_, &tensors_);
  } else {
    set_up_quantization(keys_, config_.architecture, options_, &tensors_);
  }
  if (options_.watch_inputs) builder_.watch_inputs();
  // Older exports carry the frequencies that the config already tells.
  for (int i = 0; i < config_.layers; ++i) tensors_.use(cat("model.layers.", i, ".self_attn.rotary_emb.inv_freq"));
}

Value HfDecoder::embed() {
  table_ = builder_.weight(tensors_.matrix(tensor_prefix_ + "embed_tokens.weight", config_.vocabulary, config_.hidden));
  const Value x = builder_.embed(table_);
  if (options_.tap_layers) builder_.tap(x, 0);
  return x;
}

Model HfDecoder::finish(Value x) {
  const std::string name = tensor_prefix_ + "norm.weight";
  const Norm output_norm =
      zero_centred_output_norm_ ? zero_centred_norm(name, config_.hidden) : norm(name, config_.hidden);
  constexpr const char* kHead = "lm_head.weight";
  config_.tied_embeddings = keys_.boolean("tie_word_embeddings", !tensors_.has(kHead));
  WeightRef vocabulary = table_;
  if (config_.tied_embeddings) {
    tensors_.skip(kHead, "the head is tied to the embeddings");
  } else {
    vocabulary = builder_.weight(tensors_.matrix(kHead, config_.vocabulary, config_.hidden));
  }
  builder_.head(x, output_norm, vocabulary);
  tensors_.check_complete();
  return {config_, std::make_shared<const device::Program>(std::move(builder_).build())};
}

Norm HfDecoder::norm(const std::string& name, int width) {
  return {builder_.weight(tensors_.vector(name, width)), config_.norm_eps};
}

Norm HfDecoder::zero_centred_norm(const std::string& name, int width) {
  return {builder_.weight(weights::add_one(tensors_.vector(name, width))), config_.norm_eps};
}

Linear HfDecoder::linear(const std::string& name, int outputs, int inputs, Bias bias) {
  Linear linear;
  linear.weight = builder_.weight(tensors_.matrix(name + ".weight", outputs, inputs));
  if (auto values = tensors_.bias(name, outputs, bias == Bias::required))
    linear.bias = builder_.weight(std::move(values));
  return linear;
}

device::Attention HfDecoder::attention(const std::string& self) {
  device::Attention attention;
  attention.heads = config_.heads;
  attention.kv_heads = config_.kv_heads;
  attention.head_dim = config_.head_dim;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  attention.rope = config_.rope;
  attention.cache = builder_.cache(config_.kv_heads, config_.head_dim);
  attention.cache_scales = tensors_.cache_scales(self, int64_t{config_.kv_heads} * config_.head_dim);
  return attention;
}

Value HfDecoder::gated_mlp(Value x, std::optional<Norm> norm, const std::string& name, int width, Bias bias) {
  const Value inner = builder_.linear(x, norm,
                                      {linear(name + ".gate_proj", width, config_.hidden, bias),
                                       linear(name + ".up_proj", width, config_.hidden, bias)},
                                      device::Activation::silu_mul)[0];
  return builder_.linear(inner, std::nullopt, {linear(name + ".down_proj", config_.hidden, width, bias)})[0];
}

void HfDecoder::add_experts(device::Moe* moe, const std::string& name, const ExpertNames& names) {
  const int64_t experts = moe->experts, width = moe->width, hidden = config_.hidden;
  if (tensors_.has(name + ".gate_up_proj") || tensors_.has(name + ".down_proj")) {
    moe->gate_up = builder_.weight(tensors_.tensor(name + ".gate_up_proj", {experts, 2 * width, hidden}));
    moe->down = builder_.weight(tensors_.tensor(name + ".down_proj", {experts, hidden, width}));
    return;
  }
  std::vector<std::shared_ptr<const device::WeightSource>> gate_up, down;
  for (int e = 0; e < moe->experts; ++e) {
    const std::string expert = cat(name, ".", e, ".");
    gate_up.push_back(tensors_.matrix(expert + names.gate + ".weight", width, hidden));
    gate_up.push_back(tensors_.matrix(expert + names.up + ".weight", width, hidden));
    down.push_back(tensors_.matrix(expert + names.down + ".weight", hidden, width));
  }
  for (auto* const parts : {&gate_up, &down}) make_alike(parts);
  moe->gate_up = builder_.weight(weights::concatenate_rows(name + ".*.gate_up", std::move(gate_up)));
  moe->down = builder_.weight(weights::concatenate_rows(name + ".*.down", std::move(down)));
}

Value HfDecoder::mixture(Value normed, const device::Moe& moe) {
  if (options_.tap_router_inputs) builder_.tap(normed, router_taps_++);
  return builder_.moe(normed, moe);
}

}  // namespace gristmill::model
