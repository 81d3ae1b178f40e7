#pragma once
#include <memory>
#include <string>

#include "model/hf_config.h"
#include "model/model.h"
#include "model/tensor_binder.h"

namespace gristmill::model {

/// Settles how the weights of a Hugging Face folder are read: by its description, by its config, and by what
/// BuildOptions ask for. Throws Error naming flag and folder where these do not go together.
void set_up_quantization(const HfConfig& keys, const std::string& architecture, const BuildOptions& options,
                         TensorBinder* tensors);

/// The same for weights that are made up (LoadFormat::dummy): they can be quantized at load only.
void set_up_dummy_quantization(const HfConfig& keys, const std::string& architecture, const BuildOptions& options,
                               TensorBinder* tensors);

/// The same for a GGUF file.
void set_up_quantization(const std::string& path, const BuildOptions& options, TensorBinder* tensors);

}  // namespace gristmill::model
