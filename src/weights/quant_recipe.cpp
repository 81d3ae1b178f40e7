#include "weights/quant_recipe.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "weights/mapped_file.h"

namespace gristmill::weights {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

template <size_t kCount>
bool is_one_of(std::string_view name, const std::string_view (&all)[kCount]) {
  return std::find(std::begin(all), std::end(all), name) != std::end(all);
}

/// The name of the module that holds a tensor: "q_proj" of "model.layers.0.self_attn.q_proj.weight". Experts in one
/// tensor have no ".weight".
std::string_view module_of(std::string_view tensor) {
  if (tensor.ends_with(".weight")) tensor.remove_suffix(7);
  return tensor.substr(tensor.rfind('.') + 1);
}

bool is_expert(std::string_view tensor) {
  return contains(tensor, ".experts.");
}

bool is_linear(std::string_view tensor) {
  if (tensor.starts_with("mtp.") || contains(tensor, ".visual.") || tensor.starts_with("visual.")) return false;
  constexpr std::string_view kExperts[] = {"gate_proj", "up_proj", "down_proj", "gate_up_proj", "w1", "w2", "w3"};
  constexpr std::string_view kLinears[] = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
                                           "in_proj_qkv", "in_proj_z", "out_proj",
                                           // of GGUF files
                                           "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up",
                                           "ffn_down"};
  if (is_expert(tensor)) return is_one_of(module_of(tensor), kExperts);
  return tensor.ends_with(".weight") && is_one_of(module_of(tensor), kLinears);
}

}  // namespace

QuantRecipe recipe_of(std::string_view name, bool has_experts) {
  if (name == "all-linear") return QuantRecipe::all_linear;
  if (name == "minimax-m2") return QuantRecipe::minimax_m2;
  if (name == "qwen3.5") return has_experts ? QuantRecipe::qwen3_5_moe : QuantRecipe::qwen3_5_dense;
  throw Error(cat("recipe ", quoted(name), " is not known (choose minimax-m2, qwen3.5 or all-linear)"));
}

QuantRecipe recipe_for(std::string_view architecture, bool has_experts) {
  if (architecture.starts_with("MiniMaxM2")) return QuantRecipe::minimax_m2;
  if (architecture.starts_with("Qwen3_5")) return recipe_of("qwen3.5", has_experts);
  return QuantRecipe::all_linear;
}

WeightBits bits_of(QuantRecipe recipe, bool w4a8, std::string_view tensor) {
  if (!is_linear(tensor)) return WeightBits::as_stored;
  const bool attention = contains(tensor, ".self_attn.");
  bool quantized = true;
  switch (recipe) {
    case QuantRecipe::all_linear:
      return w4a8 ? WeightBits::int4 : WeightBits::int8;
    case QuantRecipe::minimax_m2:
      quantized = attention || is_expert(tensor);
      break;
    case QuantRecipe::qwen3_5_moe:
      quantized = (attention && module_of(tensor) != "o_proj") || is_expert(tensor);
      break;
    case QuantRecipe::qwen3_5_dense:
      quantized = attention || contains(tensor, ".mlp.");
      break;
  }
  if (!quantized) return WeightBits::as_stored;
  return w4a8 && !attention ? WeightBits::int4 : WeightBits::int8;
}

}  // namespace gristmill::weights
