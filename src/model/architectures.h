#pragma once
#include <memory>

#include "model/hf_decoder.h"
#include "model/model.h"
#include "weights/gguf.h"

namespace gristmill::model {

// One builder per architecture, each in a file of its own. A builder reads the config, builds the Program, and throws
// Error naming the file and the key or tensor that does not fit. It may read small tensors (rope divisors), no weights.
Model load_llama(const std::shared_ptr<const weights::GgufFile>& file, const BuildOptions& options);

// From Hugging Face folders, and GGUF files in their clothes (model/gguf_decoder.h).
Model load_llama_hf(DecoderFiles files, const BuildOptions& options);  // Llama, Mistral, SmolLM2, Qwen2
Model load_qwen3(DecoderFiles files, const BuildOptions& options);     // dense and mixtures of experts
Model load_qwen3_5(DecoderFiles files, const BuildOptions& options);   // the text tower, dense and mixtures of experts
Model load_minimax_m2(DecoderFiles files, const BuildOptions& options);

}  // namespace gristmill::model
