#pragma once
#include "model/model.h"
#include "weights/gguf.h"

namespace gristmill::model {

/// The decoder's shape from the keys that all GGUF architectures share ("<architecture>.block_count" and so on); rope
/// scaling is resolved into frequencies. Throws Error naming file and key.
ModelConfig read_gguf_config(const weights::GgufFile& file);

}  // namespace gristmill::model
