#include "model/load_quantization.h"

#include "base/error.h"
#include "base/log.h"
#include "weights/mapped_file.h"
#include "weights/quant_description.h"
#include "weights/quant_recipe.h"

namespace gristmill::model {
namespace {

bool quantizes(const BuildOptions& options) {
  return options.quantization == "w8a8" || options.quantization == "w4a8";
}

void check_options(const std::string& path, const BuildOptions& options) {
  const std::string& how = options.quantization;
  for (const char* const known : {"", "ascend", "fp8", "compressed-tensors", "gguf", "w8a8", "w4a8"}) {
    if (how != known) continue;
    for (const char* const floats : {"", "bf16", "int8", "int4"}) {
      if (options.float_linears != floats) continue;
      const bool requantizes = options.float_linears == "int8" || options.float_linears == "int4";
      if (options.exact && (quantizes(options) || requantizes))
        throw Error(cat("--dtype float32 and quantization at load contradict each other; leave out one of them"));
      return;
    }
    throw Error(cat("--float-linears ", options.float_linears, " is not known (choose bf16, int8 or int4)"));
  }
  throw Error(cat("--quantization ", how, ": ", path, " cannot be read like that (choose ascend, fp8, ",
                  "compressed-tensors, gguf, w8a8 or w4a8)"));
}

void quantize_by_recipe(const HfConfig& keys, const std::string& architecture, const BuildOptions& options,
                        TensorBinder* tensors) {
  const weights::QuantRecipe recipe = weights::recipe_for(architecture, read_experts(keys) != 0);
  tensors->quantize_floats([recipe, w4a8 = options.quantization == "w4a8"](std::string_view name) {
    return weights::bits_of(recipe, w4a8, name);
  });
}

}  // namespace

void set_up_dummy_quantization(const HfConfig& keys, const std::string& architecture, const BuildOptions& options,
                               TensorBinder* tensors) {
  check_options(keys.path(), options);
  const bool requantizes = options.float_linears == "int8" || options.float_linears == "int4";
  if (requantizes || (!options.quantization.empty() && !quantizes(options)))
    throw Error(cat(keys.path(),
                    ": made-up weights (--load-format dummy) can be quantized with --quantization w8a8 or "
                    "w4a8 only"));
  if (quantizes(options)) quantize_by_recipe(keys, architecture, options, tensors);
}

void set_up_quantization(const HfConfig& keys, const std::string& architecture, const BuildOptions& options,
                         TensorBinder* tensors) {
  const std::string& folder = keys.folder();
  const std::string& how = options.quantization;
  check_options(folder, options);
  const bool requantizes = options.float_linears == "int8" || options.float_linears == "int4";
  auto description = weights::QuantDescription::find(folder);
  if (description == nullptr) {
    if (how == "ascend" || requantizes)
      throw Error(cat(folder, ": ",
                      requantizes ? cat("--float-linears ", options.float_linears) : "--quantization ascend",
                      " needs a quant_model_description.json there"));
    const HfQuantization quantization = read_quantization(keys);
    const bool is_quantized = quantization.kind != HfQuantization::Kind::none;
    if (how == "gguf") throw Error(cat(folder, ": --quantization gguf is for GGUF files"));
    const Json* const config = keys.find("quantization_config");
    const Json* const method = config == nullptr ? nullptr : config->find("quant_method");
    if ((how == "fp8" || how == "compressed-tensors") && (method == nullptr || method->string != how))
      throw Error(cat(folder, ": --quantization ", how, " needs a quantization_config of that method in config.json"));
    if (quantizes(options) && is_quantized)
      throw Error(cat(folder, ": --quantization ", how, " is for float checkpoints; this one is quantized already"));
    tensors->set_quantization(quantization);
  } else {
    if (!how.empty() && how != "ascend")
      throw Error(cat(folder, ": --quantization ", how, " does not go with its ", weights::quoted(description->path()),
                      "; leave it out, or say ascend"));
    tensors->set_description(std::move(description));
  }
  if (quantizes(options)) {
    quantize_by_recipe(keys, architecture, options, tensors);
  } else if (requantizes) {
    tensors->quantize_floats([int4 = options.float_linears == "int4"](std::string_view name) {
      return weights::bits_of(weights::QuantRecipe::all_linear, int4, name);
    });
  }
}

void set_up_quantization(const std::string& path, const BuildOptions& options, TensorBinder* tensors) {
  check_options(path, options);
  const std::string& how = options.quantization;
  if (how == "ascend" || how == "fp8" || how == "compressed-tensors")
    throw Error(cat(path, ": --quantization ", how, " is for Hugging Face folders"));
  if (options.float_linears == "int8" || options.float_linears == "int4")
    throw Error(cat(path, ": --float-linears ", options.float_linears, " is for ascend folders"));
  if (!quantizes(options)) return;
  LOG_INFO(path, ": --quantization ", how, " quantizes the file's numbers, which may be quantized already; errors are ",
           "relative to them");
  tensors->quantize_floats(
      [w4a8 = how == "w4a8"](std::string_view name) {
        return weights::bits_of(weights::QuantRecipe::all_linear, w4a8, name);
      },
      true);
}

}  // namespace gristmill::model
