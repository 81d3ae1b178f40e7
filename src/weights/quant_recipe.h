#pragma once
#include <string>
#include <string_view>

#include "weights/quant_description.h"

namespace gristmill::weights {

/// Which matrices of a model are quantized.
enum class QuantRecipe : uint8_t {
  all_linear,     ///< every linear of the decoder layers; not routers, gates of one output, embeddings and head
  minimax_m2,     ///< queries, keys, values, outputs, and the experts
  qwen3_5_moe,    ///< queries, keys, values of full attention, and the routed experts
  qwen3_5_dense,  ///< all of full attention, and the MLP
};
/// "minimax-m2", "qwen3.5" or "all-linear"; Error for others. `has_experts` tells which Qwen3.5 it is.
QuantRecipe recipe_of(std::string_view name, bool has_experts);
/// The recipe's usual choice for an architecture of config.json.
QuantRecipe recipe_for(std::string_view architecture, bool has_experts);

/// Bits of the weights that a scheme asks for: in `w4a8` the experts (with all_linear every matrix) have 4, the rest 8.
enum class WeightBits : uint8_t { as_stored, int8, int4 };
WeightBits bits_of(QuantRecipe recipe, bool w4a8, std::string_view tensor);

}  // namespace gristmill::weights
