#include "quantize/quarot.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "quantize/quantizer.h"
#include "weights/mapped_file.h"

namespace gristmill::quantize {
namespace {

constexpr uint64_t kSeed = 1234;

bool ends_with_any(const std::string& name, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const char* ending) { return name.ends_with(ending); });
}

/// x <- x Q along rows, one part of each row after the other.
void rotate_columns(const Rotation& q, FloatMatrix* tensor, ComputeTeam& team) {
  in_parallel(team, tensor->rows, [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; ++row)
      for (int64_t part = 0; part < tensor->columns; part += q.size()) q.apply(tensor->row(row) + part);
  });
}

/// Q' W, one part of the rows after the other.
void rotate_rows(const Rotation& q, FloatMatrix* tensor, ComputeTeam& team) {
  in_parallel(team, tensor->columns, [&](int64_t first, int64_t count) {
    std::vector<float> column(static_cast<size_t>(q.size()));
    for (int64_t k = first; k < first + count; ++k)
      for (int64_t part = 0; part < tensor->rows; part += q.size()) {
        for (int64_t i = 0; i < q.size(); ++i) column[static_cast<size_t>(i)] = tensor->row(part + i)[k];
        q.apply(column.data());
        for (int64_t i = 0; i < q.size(); ++i) tensor->row(part + i)[k] = column[static_cast<size_t>(i)];
      }
  });
}

}  // namespace

QuaRot::QuaRot(const model::HfConfig& keys, const model::ModelConfig& config,
               std::shared_ptr<const weights::Checkpoint> checkpoint)
    : checkpoint_(std::move(checkpoint)),
      layers_(config.layers),
      stream_(config.hidden, kSeed),
      head_(config.head_dim, kSeed) {
  constexpr std::string_view kKnown[] = {"LlamaForCausalLM",      "MistralForCausalLM",
                                         "Qwen2ForCausalLM",      "Qwen3ForCausalLM",
                                         "Qwen3MoeForCausalLM",   "MiniMaxM2ForCausalLM",
                                         "Qwen3_5ForCausalLM",    "Qwen3_5ForConditionalGeneration",
                                         "Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"};
  if (std::find(std::begin(kKnown), std::end(kKnown), config.architecture) == std::end(kKnown))
    throw Error(
        cat(keys.path(), ": --quarot is not supported for ", weights::quoted(config.architecture), "; leave it out"));
  if (config.architecture.starts_with("Qwen3_5")) {
    zero_centred_ = true;
    rotates_heads_ = !keys.boolean("attn_output_gate", true);
  }
  const std::string nested = "model.language_model.", name = "embed_tokens.weight";
  const std::string prefix = checkpoint_->contains(nested + name) ? nested : "model.";
  table_ = prefix + name;
  norm_ = prefix + "norm.weight";
}

bool QuaRot::leaves_out(const std::string& name) const {
  return name.starts_with("mtp.") || layer_of(name) >= layers_;
}

void QuaRot::scale_columns(const std::string& norm, FloatMatrix* tensor) const {
  const auto source = weights::make_weight_source(checkpoint_, norm, weights::ReadAs::exact);
  if (source->columns() != tensor->columns)
    throw Error(cat(checkpoint_->path(), ": tensor ", weights::quoted(norm), ": has ", source->columns(),
                    " elements where ", tensor->columns, " are read"));
  std::vector<float> gain(static_cast<size_t>(source->columns()));
  source->read_f32(0, 1, gain.data());
  if (zero_centred_)
    for (float& each : gain) each += 1.0f;
  for (int64_t row = 0; row < tensor->rows; ++row)
    for (int64_t k = 0; k < tensor->columns; ++k) tensor->row(row)[k] *= gain[static_cast<size_t>(k)];
}

bool QuaRot::fold_outside_of_layers(const std::string& name, FloatMatrix* tensor, ComputeTeam& team) const {
  const bool is_merger = name.find("visual.") != std::string::npos && name.find("merger") != std::string::npos;
  if (name == "lm_head.weight") {
    scale_columns(norm_, tensor);
    rotate_columns(stream_, tensor, team);
  } else if (name == table_ || (is_merger && name.ends_with(".linear_fc2.bias"))) {
    rotate_columns(stream_, tensor, team);
  } else if (is_merger && name.ends_with(".linear_fc2.weight")) {
    rotate_rows(stream_, tensor, team);
  } else {
    return name.find("visual.") != std::string::npos;
  }
  return true;
}

void QuaRot::fold(const std::string& name, FloatMatrix* tensor, ComputeTeam& team) const {
  if (fold_outside_of_layers(name, tensor, team)) return;
  if (name == norm_ || ends_with_any(name, {"input_layernorm.weight", "post_attention_layernorm.weight"})) {
    std::fill(tensor->values.begin(), tensor->values.end(), zero_centred_ ? 0.0f : 1.0f);
    return;
  }
  const size_t layer = name.find("layers."), end = name.find('.', layer + 7);
  if (layer == std::string::npos || end == std::string::npos) return;
  const std::string prefix = name.substr(0, end + 1);
  if (ends_with_any(name, {".q_proj.weight", ".k_proj.weight", ".v_proj.weight", ".in_proj_qkv.weight",
                           ".in_proj_z.weight", ".in_proj_b.weight", ".in_proj_a.weight"})) {
    scale_columns(prefix + "input_layernorm.weight", tensor);
    rotate_columns(stream_, tensor, team);
    if (rotates_heads_ && name.ends_with(".v_proj.weight")) rotate_rows(head_, tensor, team);
  } else if (name.ends_with(".v_proj.bias")) {
    if (rotates_heads_) rotate_columns(head_, tensor, team);
  } else if (ends_with_any(name, {".o_proj.weight", ".out_proj.weight"})) {
    if (rotates_heads_ && name.ends_with(".o_proj.weight")) rotate_columns(head_, tensor, team);
    rotate_rows(stream_, tensor, team);
  } else if (ends_with_any(name, {".gate_proj.weight", ".up_proj.weight", ".w1.weight", ".w3.weight", ".gate.weight",
                                  ".shared_expert_gate.weight"})) {
    scale_columns(prefix + "post_attention_layernorm.weight", tensor);
    rotate_columns(stream_, tensor, team);
  } else if (ends_with_any(name, {".down_proj.weight", ".w2.weight"})) {
    rotate_rows(stream_, tensor, team);
  } else if (ends_with_any(name, {".o_proj.bias", ".down_proj.bias"})) {
    rotate_columns(stream_, tensor, team);
  }
}

}  // namespace gristmill::quantize
