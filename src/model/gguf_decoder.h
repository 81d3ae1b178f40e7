#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "model/hf_decoder.h"
#include "weights/gguf.h"

namespace gristmill::model {

/// The class of Hugging Face whose builder takes GGUF files of that general.architecture; "" when there is none.
std::string_view hf_class_of_gguf(std::string_view architecture);

/// A GGUF file as its Hugging Face original: keys and tensors under the names that builders ask for. What converters
/// change on the way is undone: experts are taken apart again, norms centred on zero lose the one that was added,
/// -exp(A_log) becomes A_log, dropped dimensions come back; value heads of Gated DeltaNet stay in GGUF's order, which
/// DecoderFiles::tiled_value_heads tells. Throws Error naming file and key or tensor.
DecoderFiles open_gguf_decoder(const std::shared_ptr<const weights::GgufFile>& file);

}  // namespace gristmill::model
