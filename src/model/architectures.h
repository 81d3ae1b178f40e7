#pragma once
#include <memory>

#include "model/model.h"
#include "weights/gguf.h"

namespace gristmill::model {

// One builder per architecture, each in a file of its own. A builder reads the config, builds the Program, and throws
// Error naming the file and the key or tensor that does not fit. It may read small tensors (rope divisors), no weights.
Model load_llama(const std::shared_ptr<const weights::GgufFile>& file, const BuildOptions& options);

}  // namespace gristmill::model
